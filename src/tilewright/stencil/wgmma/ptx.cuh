/* What C++ has no words for, one idea of PTX a function.  A part of kernel.cuh.
 *
 * Whoever runs this source elsewhere defines EMULATED as a file that has these functions.
 */

/* An address in shared memory, in bytes. */
typedef unsigned int shared_at;

/* A tile in shared memory as the tensor core is told about it (PTX ISA, "Matrix descriptor
 * format"): addresses and strides in units of 16 bytes, so that adding bytes / 16 moves it. */
typedef unsigned long long operand_at;

#include "asynchronous/tensor_map.cuh"

#if ELEMENT == ELEMENT_S8
typedef int accumulator;
#else
typedef float accumulator;
#endif

/* What results are before they are rounded. */
#if ELEMENT == ELEMENT_S8 && (OUTPUT == OUTPUT_S32 || OUTPUT == OUTPUT_RESIDUES)
typedef int scalar;
#else
typedef float scalar;
#endif

#if OUTPUT == OUTPUT_F32
typedef float output;
#define OUTPUT_BYTES 4
#elif OUTPUT == OUTPUT_S32
typedef int output;
#define OUTPUT_BYTES 4
#elif OUTPUT == OUTPUT_RESIDUES
typedef signed char output;
#define OUTPUT_BYTES 1
#else
typedef unsigned short output; /* the bits */
#define OUTPUT_BYTES 2
#endif

/* Whether results pass through shared memory; of kernels that have no ring of stages none do. */
#ifndef STAGED
#define STAGED 0
#endif

union ALIGNED(8) chunk {
    output e[8 / OUTPUT_BYTES];
    unsigned int pairs[2]; /* of elements of 1 and 2 bytes: words */
};

struct ALIGNED(16) line_piece {
    unsigned int word[4];
};

/* Digits of `of_bytes`: all of either word; the first's high half, the second's low half. */
#define FIRST_WORD 0x3210
#define SECOND_WORD 0x7654
#define HALVES_OF_BOTH 0x5432
#define LOW_HALVES 0x5410
#define HIGH_HALVES 0x7632

/* Four sums side by side, as slices of k leave them (parallel_split_k.cuh). */
struct ALIGNED(16) sums_of_chunk {
    accumulator e[4];
};

/* Numbers that a thread holds of an instruction's 64 x INSTRUCTION_M results. */
#define SUMS (INSTRUCTION_M / 2)

/* A pattern in which 16-byte pieces are exchanged, by the bytes within which they are. */
#define SWIZZLE_OF(span) ((span) == 128 ? 1ull : (span) == 64 ? 2ull : (span) == 32 ? 3ull : 0ull)

/* `leading` and `stride` in bytes are what the two orders make of them: of rows of `span`
 * bytes along k, `stride` is between groups of 8 rows; of squares, `leading` is between
 * squares and `stride` between groups of 8 steps of k. */
HELPER operand_at operand_place(shared_at tile, int leading, int stride, int span)
{
    return (operand_at)(tile & 0x3ffff) >> 4 | (operand_at)leading >> 4 << 16 |
           (operand_at)stride >> 4 << 32 | SWIZZLE_OF(span) << 62;
}

/* 2^exponent, -126 <= exponent <= 127. */
HELPER float power_of_two(int exponent);

#ifdef EMULATED
#include EMULATED
#else

#if CLUSTER_BLOCKS > 1
#define CLUSTER __attribute__((cluster_dims(CLUSTER_BLOCKS, 1, 1)))
#else
#define CLUSTER
#endif

/* Where the shared memory that the launch asks for begins, at a multiple of 1024 bytes: the
 * patterns of exchanged pieces repeat with that. */
HELPER shared_at shared_memory(void)
{
    DYNAMIC_SHARED_ARRAY ALIGNED(1024) unsigned char arena[];
    unsigned long long at;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(at) : "l"(arena));
    return ((shared_at)at + 1023) & ~1023u;
}

#if PARALLEL_SPLIT_K
/* The reduction kernel's. */
HELPER sums_of_chunk *second_shared_memory(void)
{
    SHARED_ARRAY sums_of_chunk second[SECOND_THREADS];
    return second;
}
#endif

/* ---- blocks and warpgroups ---- */

/* This block's number in its cluster. */
HELPER unsigned int cluster_rank(void)
{
    unsigned int rank = 0;
    if (CLUSTER_BLOCKS > 1)
        asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* Its number among those that bring each other's operands. */
HELPER unsigned int sharing_rank(void) { return SHARING_BLOCKS > 1 ? cluster_rank() : 0; }

/* A number that all lanes of a warp have: compilers see that none goes another way by it. */
HELPER unsigned int of_whole_warp(unsigned int v)
{
    unsigned int found;
    asm volatile("shfl.sync.idx.b32 %0, %1, 0, 0x1f, 0xffffffff;" : "=r"(found) : "r"(v));
    return found;
}

/* Every thread of the cluster is here, and sees what the others wrote.  Threads of a warp
 * need not come together: the producer's comes alone. */
HELPER void cluster_barrier(void)
{
    if (CLUSTER_BLOCKS > 1)
        asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory");
    else
        BARRIER();
}

/* Registers that the producer does without are the consumers'. */
HELPER void give_registers(void)
{
#if CONSUMER_REGISTERS
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(PRODUCER_REGISTERS));
#endif
}

HELPER void take_registers(void)
{
#if CONSUMER_REGISTERS
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(CONSUMER_REGISTERS));
#endif
}

/* ---- barriers in shared memory ---- */

#include "asynchronous/barriers.cuh"

/* Arrive at the barrier at the same place of a block of the cluster.  No ordinary store is
 * handed over with it: the tensor cores have read what the copy engine writes next.  So the
 * scope is the block's; the cluster's would be a fence of all memory in every step. */
HELPER void arrive(shared_at barrier, unsigned int rank)
{
    if (SHARING_BLOCKS > 1)
        asm volatile("{\n\t.reg .b32 there;\n\t"
                     "mapa.shared::cluster.u32 there, %0, %1;\n\t"
                     "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t}" ::"r"(
                         barrier),
                     "r"(rank)
                     : "memory");
    else
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* ---- sums of a cluster's blocks ---- */

#if CLUSTER_K > 1
/* All consumers are here.  Barrier 0 is the block's; 1 is that of a group, too, which stores C: a
 * block that comes here stores nothing. */
HELPER void consumers_barrier(void)
{
    asm volatile("barrier.sync 1, %0;" ::"n"(CONSUMERS * GROUP) : "memory");
}

HELPER void put_sums(shared_at to, sums_of_chunk v)
{
#if ELEMENT == ELEMENT_S8
    asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.e[0]), "r"(v.e[1]),
                 "r"(v.e[2]), "r"(v.e[3])
                 : "memory");
#else
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(v.e[0]), "f"(v.e[1]),
                 "f"(v.e[2]), "f"(v.e[3])
                 : "memory");
#endif
}

/* Read from the same place of another block of the cluster. */
HELPER sums_of_chunk read_sums_of(unsigned int rank, shared_at at)
{
    sums_of_chunk v;
    shared_at there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
#if ELEMENT == ELEMENT_S8
    asm volatile("ld.shared::cluster.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.e[0]), "=r"(v.e[1]), "=r"(v.e[2]), "=r"(v.e[3])
                 : "r"(there));
#else
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.e[0]), "=f"(v.e[1]), "=f"(v.e[2]), "=f"(v.e[3])
                 : "r"(there));
#endif
    return v;
}
#endif

/* ---- the copy engine ---- */

/* Bring a map to where the copy engine looks for it. */
HELPER void expect_map(const tensor_map *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Copy the box at coordinates x (contiguous), y and z, and count its bytes at `full`; with
 * SHARED to the same place of every block of the mask. */
template <bool SHARED_BY_BLOCKS>
HELPER void copy_box(const tensor_map *map, shared_at to, shared_at full, int x, int y, int z,
                     unsigned short mask)
{
    if (SHARED_BY_BLOCKS)
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".multicast::cluster [%0], [%1, {%4, %5, %6}], [%2], %3;" ::"r"(to),
                     "l"(map), "r"(full), "h"(mask), "r"(x), "r"(y), "r"(z)
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
                     "l"(map), "r"(full), "r"(x), "r"(y), "r"(z)
                     : "memory");
}

/* ---- copies by threads ---- */

/* 16 bytes of device memory, if they are wanted; else zeros.  Volatile, so that many are on their way
 * at once. */
HELPER void read_piece(unsigned int *to, unsigned long long from, bool wanted)
{
    asm volatile("{\n\t.reg .pred wanted;\n\tsetp.ne.b32 wanted, %5, 0;\n\t"
                 "mov.b32 %0, 0;\n\tmov.b32 %1, 0;\n\tmov.b32 %2, 0;\n\tmov.b32 %3, 0;\n\t"
                 "@wanted ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
                 : "=&r"(to[0]), "=&r"(to[1]), "=&r"(to[2]), "=&r"(to[3])
                 : "l"(from), "r"((int)wanted));
}

HELPER void put_chunk(shared_at to, const unsigned int *word)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(word[0]), "r"(word[1]),
                 "r"(word[2]), "r"(word[3])
                 : "memory");
}

/* What the lanes of a warp put is there for the tensor cores once one of them says so. */
HELPER void publish_chunks(void)
{
    asm volatile("fence.proxy.async.shared::cta;\n\tbar.warp.sync 0xffffffff;" ::: "memory");
}

/* Start copying a word, or writing zero in its place without reading anything. */
HELPER void copy_word_if(shared_at to, const unsigned int *from, bool inside)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(inside ? 4 : 0)
                 : "memory");
}

/* All copies that this thread has started since the last call are one group. */
HELPER void end_group(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Wait for all of this thread's groups but the latest LATEST. */
template <int LATEST> HELPER void wait_for_groups(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LATEST) : "memory");
}

/* Four bytes of two words, which are chosen by four digits. */
HELPER unsigned int of_bytes(unsigned int first, unsigned int second, unsigned int digits)
{
    unsigned int found;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(found) : "r"(first), "r"(second), "r"(digits));
    return found;
}

/* ---- the tensor cores ---- */

/* What registers hold is there for the multiplies that follow. */
HELPER void begin_multiplies(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

/* The multiplies since the last call are one group. */
HELPER void end_multiplies(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/* Wait for all groups but the latest LATEST. */
template <int LATEST> HELPER void wait_for_multiplies(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LATEST) : "memory");
}

/* Sums that a wait was for: no reading of them moves before it. */
HELPER void settle(accumulator *sum, int count)
{
    UNROLL for (int i = 0; i < count; ++i)
#if ELEMENT == ELEMENT_S8
        asm volatile("" : "+r"(sum[i])::"memory");
#else
        asm volatile("" : "+f"(sum[i])::"memory");
#endif
}

/* A word of shared memory.  Volatile: none moves before the wait for what it reads. */
HELPER unsigned int read_word(shared_at from)
{
    unsigned int v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from));
    return v;
}

#include "wgmma/instruction.cuh"

/* ---- numbers ---- */

/* 2^x and 1 / x, to some 2^-22 of themselves. */
HELPER float exponential(float x)
{
    float v;
    asm("ex2.approx.f32 %0, %1;" : "=f"(v) : "f"(x));
    return v;
}

HELPER float reciprocal(float x)
{
    float v;
    asm("rcp.approx.f32 %0, %1;" : "=f"(v) : "f"(x));
    return v;
}

HELPER float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }

#if OUTPUT == OUTPUT_F16 || OUTPUT == OUTPUT_BF16
#if OUTPUT == OUTPUT_F16
#define NARROW "f16"
#else
#define NARROW "bf16"
#endif
HELPER output rounded(float v)
{
    output bits;
    asm("cvt.rn." NARROW ".f32 %0, %1;" : "=h"(bits) : "f"(v));
    return bits;
}

HELPER float widened(output bits)
{
    float v;
    asm("cvt.f32." NARROW " %0, %1;" : "=f"(v) : "h"(bits));
    return v;
}

/* Two results, the first in the low half. */
HELPER unsigned int rounded_pair(const scalar *v)
{
    unsigned int pair;
    asm("cvt.rn." NARROW "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(v[1]), "f"(v[0]));
    return pair;
}

HELPER void round_chunk(chunk *to, const scalar *v)
{
    UNROLL for (int i = 0; i < 2; ++i) to->pairs[i] = rounded_pair(v + 2 * i);
}

#else
HELPER output rounded(scalar v) { return (output)v; }
HELPER scalar widened(output v) { return v; }

HELPER void round_chunk(chunk *to, const scalar *v)
{
    UNROLL for (int i = 0; i < 8 / OUTPUT_BYTES; ++i) to->e[i] = rounded(v[i]);
}
#endif

#if STAGED
/* ---- results through shared memory ---- */

HELPER void put_pair(shared_at to, const scalar *v)
{
#if OUTPUT_BYTES == 2
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(rounded_pair(v)) : "memory");
#elif OUTPUT == OUTPUT_S32
    asm volatile("st.shared.v2.s32 [%0], {%1, %2};" ::"r"(to), "r"(v[0]), "r"(v[1]) : "memory");
#else
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(v[0]), "f"(v[1]) : "memory");
#endif
}

HELPER line_piece read_line_piece(shared_at from)
{
    line_piece v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "r"(from));
    return v;
}

#if OUTPUT == OUTPUT_F32
HELPER void put_result(shared_at to, output v)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory");
}
#endif

#if OUTPUT_BYTES == 4
HELPER output read_result(shared_at from)
{
    output v;
#if OUTPUT == OUTPUT_S32
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(v) : "r"(from));
#else
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from));
#endif
    return v;
}
#endif

/* What any lane of the warp put before is there for all. */
HELPER void warp_barrier(void) { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

/* The same of a group of four warps; barrier 0 is the block's. */
HELPER void group_barrier(void)
{
    asm volatile("barrier.sync %0, %1;" ::"r"(1 + THREAD_ID / GROUP), "n"(GROUP) : "memory");
}
#endif

#if OUTPUT_BYTES < 4
/* A word of the lane with a number, modulo 4, among the four that this one is of. */
HELPER unsigned int of_quad_lane(unsigned int v, int lane)
{
    unsigned int found;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1c1f, 0xffffffff;"
                 : "=r"(found)
                 : "r"(v), "r"(lane));
    return found;
}
#endif

/* Two lanes side by side have a pair of each of two groups; afterwards the even one has both
 * of the first group and the odd one both of the second. */
HELPER void exchange_floats(float *v)
{
    const bool odd = THREAD_ID & 1;
    UNROLL for (int e = 0; e < 2; ++e) {
        float got;
        asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 0x1f, 0xffffffff;"
                     : "=f"(got)
                     : "f"(odd ? v[e] : v[2 + e]));
        (odd ? v[e] : v[2 + e]) = got;
    }
}

/* The same of a lane's results, of which four bytes stay where they are. */
HELPER void exchange_pairs(scalar *v)
{
#if OUTPUT_BYTES == 2
    exchange_floats(v);
#endif
}

#if ELEMENT == ELEMENT_TF32
/* The transpose of 8 x 8 words whose halves are in two registers (PTX ISA, "movmatrix"). */
HELPER unsigned int turned_halves(unsigned int v)
{
    unsigned int found;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(found) : "r"(v));
    return found;
}

/* Of 8 x 8 numbers lane l has those from column 2 (l % 4) on of row l / 4; afterwards those from row
 * 2 (l % 4) on of column l / 4. */
HELPER void turn_pair(float *to, const float *from)
{
    const unsigned int first = __float_as_uint(from[0]), second = __float_as_uint(from[1]);
    const unsigned int low = turned_halves(of_bytes(first, second, LOW_HALVES));
    const unsigned int high = turned_halves(of_bytes(first, second, HIGH_HALVES));
    to[0] = __uint_as_float(of_bytes(low, high, LOW_HALVES));
    to[1] = __uint_as_float(of_bytes(low, high, HIGH_HALVES));
}
#endif

#endif /* EMULATED */
