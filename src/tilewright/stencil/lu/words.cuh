/* What threads and blocks of panel.cuh tell each other, one idea of PTX a function, and arithmetic
 * that the preludes lack.
 *
 * Whoever runs this source elsewhere defines EMULATED as a file that has the PTX functions.
 */

#define WARP 32

/* 32-bit words in an element. */
#define ELEM_WORDS (ELEM_BYTES / 4)

typedef struct ALIGNED(16) { unsigned int x, y, z, w; } words4;

/* 16 bytes of elements, as memory has them. */
#define CHUNK (16 / ELEM_BYTES)
typedef struct ALIGNED(16) { elem e[CHUNK]; } chunk;

/* Whether a tensor core multiplies what a panel's earlier columns left to do. */
#define TENSOR (REAL_BYTES == 8 && ELEM_BYTES == 8 && (defined(EMULATED) || __CUDA_ARCH__ >= 900))

#ifdef EMULATED
#include EMULATED
#else
HELPER unsigned int warp_max(unsigned int v) { return __reduce_max_sync(0xffffffffu, v); }
HELPER unsigned int warp_ballot(bool v) { return __ballot_sync(0xffffffffu, v); }
HELPER unsigned int warp_read(unsigned int v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
HELPER void warp_meet(void) { __syncwarp(); }

/* Two words with their tags, written as 8 bytes that stay together: whoever finds the tags has
 * the words, and no fence is needed (as NCCL's low-latency protocol does). */
HELPER void send_words(words4 *to, words4 v)
{
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w) : "memory");
}

HELPER words4 look_at_words(const words4 *from)
{
    words4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");
    return v;
}

/* Say that this block's writes before its last barrier are there; wait for `all` blocks. */
HELPER void meet_blocks(unsigned int *counter, unsigned int all)
{
    unsigned int seen;
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
    do
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    while (seen < all);
}

#if CLUSTER
/* Where something of this block's shared memory lies in that of another block of the cluster. */
HELPER unsigned int shared_address(const void *mine)
{
    return (unsigned int)__cvta_generic_to_shared(mine);
}

/* Let an mbarrier's phases be of bytes that one thread expects. */
HELPER void make_arrivals(usize *arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrivals)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

HELPER void expect_bytes(usize *arrivals, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     shared_address(arrivals)), "r"(bytes) : "memory");
}

HELPER void wait_for_bytes(usize *arrivals, int parity)
{
    unsigned int done;
    do
        asm volatile("{\n\t.reg .pred done;\n\t"
                     "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n\t"
                     "selp.u32 %0, 1, 0, done;\n\t}"
                     : "=r"(done) : "r"(shared_address(arrivals)), "r"(parity) : "memory");
    while (!done);
}

/* Write 16 bytes to where `place` is, and say that they are there, in a block of the cluster. */
HELPER void send_to_block(words4 *place, int block, words4 v, usize *arrivals)
{
    asm volatile("{\n\t.reg .b32 to, there;\n\t"
                 "mapa.shared::cluster.u32 to, %0, %2;\n\t"
                 "mapa.shared::cluster.u32 there, %1, %2;\n\t"
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32"
                 " [to], {%3, %4, %5, %6}, [there];\n\t}" ::"r"(shared_address(place)),
                 "r"(shared_address(arrivals)), "r"(block), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

/* By all threads: what blocks of the cluster did before is there for all. */
HELPER void meet_cluster(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n\t"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
#endif

/* What other blocks wrote: past the first cache, which may hold what was there before. */
HELPER elem read_fresh(const elem *from)
{
    elem v;
#if ELEM_BYTES == 4
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(from) : "memory");
#elif ELEM_BYTES == 8 && REAL_BYTES == 8
    asm volatile("ld.global.cg.f64 %0, [%1];" : "=d"(v) : "l"(from) : "memory");
#elif ELEM_BYTES == 8
    asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];"
                 : "=f"(v.x), "=f"(v.y) : "l"(from) : "memory");
#else
    asm volatile("ld.global.cg.v2.f64 {%0, %1}, [%2];"
                 : "=d"(v.x), "=d"(v.y) : "l"(from) : "memory");
#endif
    return v;
}

HELPER int read_fresh_int(const int *from)
{
    int v;
    asm volatile("ld.global.cg.s32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
    return v;
}

/* c += a b by a warp, 16 x 8 of 4 products: lane 4 g + t has rows g and g + 8 of A's column t, column
 * g of B's row t, and columns 2 t and 2 t + 1 of C's rows g, then g + 8. */
#if TENSOR
HELPER void multiply_by_warp(double *c, const double *a, double b)
{
    asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(b));
}
#endif

/* 1 / x to half of a double's digits, or all but the last bits of a float's. */
#if ELEM_BYTES == REAL_BYTES
HELPER REAL rough_inverse(REAL x)
{
    REAL v;
#if REAL_BYTES == 8
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(v) : "d"(x));
#else
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(v) : "f"(x));
#endif
    return v;
}
#endif

HELPER usize bits_of(REAL x)
{
#if REAL_BYTES == 8
    return (usize)__double_as_longlong(x);
#else
    return (usize)(unsigned int)__float_as_int(x) << 32;
#endif
}
#endif /* EMULATED */

#define SIGN ((usize)1 << 63)

/* What a pivot is chosen by, as bits in the order of numbers, with the sign's bit set: |x|, or
 * |re| + |im| as LAPACK has it.  NaN is more than infinity, so that it is seen. */
HELPER usize size_of(elem x)
{
#if ELEM_BYTES == REAL_BYTES
    return bits_of(x) | SIGN;
#else
    const REAL re = x.x < (REAL)0 ? -x.x : x.x, im = x.y < (REAL)0 ? -x.y : x.y;
    return bits_of(re + im) | SIGN;
#endif
}

/* Whether 1 / x is too large or too small to divide by: of sizes as above, by their exponents. */
HELPER bool is_far(usize size)
{
    const int most = REAL_BYTES == 8 ? 0x7ff : 0xff;
    const int exponent = (int)(size >> (REAL_BYTES == 8 ? 52 : 55)) & most;
    return exponent < 24 || exponent > most - 24;
}

HELPER elem elem_minus(elem x)
{
#if ELEM_BYTES == REAL_BYTES
    return -x;
#else
    return elem_scalar(-x.x, -x.y);
#endif
}

HELPER elem elem_times(elem x, elem y) { return elem_madd(elem_zero(), x, y); }

HELPER elem elem_one(void) { return elem_scalar((REAL)1, (REAL)0); }

/* x / y; of complex numbers by Smith's formula, which neither overflows nor underflows early. */
HELPER elem elem_over(elem x, elem y)
{
#if ELEM_BYTES == REAL_BYTES
    return x / y;
#else
    const REAL a = y.x < (REAL)0 ? -y.x : y.x, b = y.y < (REAL)0 ? -y.y : y.y;
    if (a >= b) {
        const REAL r = y.y / y.x, d = y.x + y.y * r;
        return elem_scalar((x.x + x.y * r) / d, (x.y - x.x * r) / d);
    }
    const REAL r = y.x / y.y, d = y.x * r + y.y;
    return elem_scalar((x.x * r + x.y) / d, (x.y * r - x.x) / d);
#endif
}

/* 1 / x, where that is not far: no branches, so that other work goes on meanwhile. */
HELPER elem inverse_of(elem x)
{
#if ELEM_BYTES != REAL_BYTES
    return elem_over(elem_one(), x);
#else
    REAL v = rough_inverse(x);
    UNROLL for (int i = 0; i < REAL_BYTES / 4; ++i) {
        const REAL error = elem_madd((REAL)1, -x, v);
        v = elem_madd(v, v, error);
    }
    return v;
#endif
}
