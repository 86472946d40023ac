/* Hopper's words that C++ lacks, one a function: copy engine, barriers, tensor cores (sm_90a).
 * Whoever runs a rung elsewhere defines EMULATED as a file that has these functions. */

/* An address in shared memory, in bytes. */
typedef unsigned int shared_at;

/* A tile in shared memory as the tensor cores are told of it; bytes / 16 added move it. */
typedef unsigned long long operand_at;

/* A matrix in device memory, and the box of it that one copy takes; the host fills it in. */
struct ALIGNED(64) tensor_map {
    unsigned long long opaque[16];
};

#ifdef EMULATED
#include EMULATED
#else

#define GRID_CONSTANT __grid_constant__
#define CLUSTER_OF(blocks) __attribute__((cluster_dims(blocks, 1, 1)))

/* Where shared memory begins: at a multiple of 1024 bytes, with which the pattern of exchanged
 * pieces repeats. */
HELPER shared_at shared_memory(void)
{
    DYNAMIC_SHARED_ARRAY ALIGNED(1024) unsigned char arena[];
    unsigned long long at;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(at) : "l"(arena));
    return ((shared_at)at + 1023) & ~1023u;
}

/* ---- Barriers in shared memory: 8 bytes each; its phases count up as they end. ---- */

/* A phase ends with so many arrivals, and with all bytes that were announced. */
HELPER void begin_barrier(shared_at barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/* Barriers that were begun are there for the copy engine and for other blocks too. */
HELPER void publish_barriers(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;\n\t"
                 "fence.proxy.async.shared::cta;" ::: "memory");
}

/* Arrive, and announce bytes that copies will bring before this phase ends. */
HELPER void expect_bytes(shared_at barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

HELPER void arrive(shared_at barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrive at the barrier in the same place of another block of the cluster. */
HELPER void arrive_at(shared_at barrier, unsigned int rank)
{
    asm volatile("{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %0, %1;\n\t"
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n\t}" ::"r"(
                     barrier),
                 "r"(rank)
                 : "memory");
}

/* Wait until a phase of that parity, 0 for the first, has ended. */
HELPER void wait_for(shared_at barrier, unsigned int parity)
{
    asm volatile("{\n\t.reg .pred done;\nagain:\n\t"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra again;\n\t}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* ---- The copy engine (TMA). ---- */

/* Start copying the box whose first element is (row, column) of a row-major matrix; `full` is told
 * of the bytes as they come.  Outside the matrix there are zeros. */
HELPER void copy_box(const tensor_map *from, shared_at to, shared_at full, int row, int column)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(from), "r"(full), "r"(column), "r"(row)
                 : "memory");
}

/* The same, to the same place of every block of the cluster whose bit is set in `mask`, each of
 * whose barriers is told. */
HELPER void copy_box_to_all(const tensor_map *from, shared_at to, shared_at full, int row,
                            int column, unsigned short mask)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(to),
                 "l"(from), "r"(full), "h"(mask), "r"(column), "r"(row)
                 : "memory");
}

/* ---- The tensor cores: groups of multiplies start, and are waited for. ---- */

HELPER void begin_multiplies(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
HELPER void end_multiplies(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/* Wait for all groups but the latest LATEST. */
template <int LATEST> HELPER void wait_for_multiplies(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LATEST) : "memory");
}

#include "kernels/tensor/multiply.h"

/* ---- Blocks and warpgroups. ---- */

HELPER unsigned int cluster_rank(void)
{
    unsigned int rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* All threads of the cluster's blocks are here. */
HELPER void cluster_barrier(void)
{
    asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}

/* This warpgroup goes on with fewer registers a thread, or with more that others gave. */
template <int COUNT> HELPER void shrink_to(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> HELPER void grow_to(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

#endif /* EMULATED */
