/* GEMM for a CPU: C <- alpha op(A) op(B) + beta C, column-major.

   A work-group is one work-item, so one core.  It owns a block of C, walks over k in
   steps of BLOCK_K, packs its blocks of A and B into local memory and multiplies them by
   a register micro-kernel:

              n panels of MICRO_N columns
              +----+----+----+
              | B0 | B1 | .. |  block of B, packed: for each k, MICRO_N values
              +----+----+----+
     +----+   +----+----+----+
     | A0 |   |    |    |    |  one cell is a micro-tile: MICRO_VECTORS x VECTOR rows
     +----+   +----+----+----+  by MICRO_N columns, held in named vector registers
     | A1 |   |    | ## |    |  while k runs over the block
     +----+   +----+----+----+
     block of A, packed: for each k, MICRO_VECTORS vectors

   One step in k loads the vectors of A, broadcasts MICRO_N values of B and does
   MICRO_VECTORS x MICRO_N multiply-adds.  The panel of the outer loop (ORDER) stays in the
   first-level cache, the panels of the inner one stream from the second.

   A thread block's share of C is counted in whole panels and split evenly over the grid, so
   BLOCK_M and BLOCK_N are upper limits and no block is a narrow leftover.

   Macros: REAL_BYTES 4|8, WORDS 1 real | 2 complex, or double-double with pairs.h before this, TRANS_A, CONJ_A, TRANS_B, CONJ_B, VECTOR,
   MICRO_VECTORS, MICRO_N, BLOCK_M, BLOCK_N, BLOCK_K, UNROLL, ORDER. */

#if REAL_BYTES == 8
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double real;
typedef double4 real4;
#define VECTOR_OF(n) PASTE(double, n)
#else
typedef float real;
typedef float4 real4;
#define VECTOR_OF(n) PASTE(float, n)
#endif

#ifndef PAIRS
typedef real scalar;
#define SCALAR_ONE 1
#endif

#include "packed/columns.h"
#include "prelude/run_if.h"

typedef VECTOR_OF(VECTOR) vector;

/* Clang turns an access through an element-aligned vector type into one unaligned move;
   older PoCL calls a function for vloadn, around which all accumulators go to memory. */
#ifdef __clang__
typedef real vector_unaligned __attribute__((ext_vector_type(VECTOR), aligned(REAL_BYTES)));
typedef real real4_unaligned __attribute__((ext_vector_type(4), aligned(REAL_BYTES)));
#define LOAD_UNALIGNED(p) (*(global const vector_unaligned *)(p))
#define STORE_GLOBAL(x, p) (*(global vector_unaligned *)(p) = (x))
#define STORE_UNALIGNED(x, p) (*(local vector_unaligned *)(p) = (x))
#define LOAD4(p) (*(global const real4_unaligned *)(p))
#define STORE4(x, p) (*(local real4_unaligned *)(p) = (x))
#else
#define LOAD_UNALIGNED(p) PASTE(vload, VECTOR)(0, p)
#define STORE_GLOBAL(x, p) PASTE(vstore, VECTOR)(x, 0, p)
#define STORE_UNALIGNED(x, p) PASTE(vstore, VECTOR)(x, 0, p)
#define LOAD4(p) vload4(0, p)
#define STORE4(x, p) vstore4(x, 0, p)
#endif

/* Without it, clang splits 512-bit vectors on processors that it tunes for 256 bits. */
#if defined(__has_attribute)
#if __has_attribute(min_vector_width)
#define WIDE __attribute__((min_vector_width(512)))
#endif
#endif
#ifndef WIDE
#define WIDE
#endif

#define PRAGMA(text) _Pragma(#text)
#define UNROLL_BY(count) PRAGMA(unroll count)
/* Loops that only copy: every vector in them is written out already, and what LLVM tries
   on them takes a third of the compile time. */
#ifdef __clang__
#define PLAIN _Pragma("clang loop vectorize(disable) unroll(disable)")
#else
#define PLAIN
#endif

#define MICRO_M (MICRO_VECTORS * VECTOR)
#define PANELS_M (BLOCK_M / MICRO_M)
#define PANELS_N (BLOCK_N / MICRO_N)

#define PACK_NAME pack_a
#define PACK_WIDTH MICRO_M
#define PACK_ALONG_K TRANS_A
#define PACK_CONJUGATE CONJ_A
#include "packed/pack.h"
#undef PACK_NAME
#undef PACK_WIDTH
#undef PACK_ALONG_K
#undef PACK_CONJUGATE

#define PACK_NAME pack_b
#define PACK_WIDTH MICRO_N
#define PACK_ALONG_K (!TRANS_B)
#define PACK_CONJUGATE CONJ_B
#include "packed/pack.h"

#ifndef PAIRS /* pairs.h has its own update() and scale() */

/* c <- alpha x + beta c for one element.  Scalars without an imaginary part only scale, and
   beta = 1 leaves c alone: 0 * Inf would make a NaN that a plain loop does not have. */
static inline void update(global real *c, const real xr, const real xi, const real alpha_re,
                          const real alpha_im, const real beta_re, const real beta_im)
{
#if WORDS == 1
    const real x = alpha_re * xr;
    c[0] = beta_re == 0 ? x : beta_re == 1 ? x + c[0] : x + beta_re * c[0];
#else
    real re = alpha_re * xr, im = alpha_re * xi;
    if (alpha_im != 0) {
        re -= alpha_im * xi;
        im += alpha_im * xr;
    }
    if (beta_im != 0) {
        const real cr = c[0], ci = c[1];
        re += beta_re * cr - beta_im * ci;
        im += beta_re * ci + beta_im * cr;
    } else if (beta_re == 1) {
        re += c[0];
        im += c[1];
    } else if (beta_re != 0) {
        re += beta_re * c[0];
        im += beta_re * c[1];
    }
    c[0] = re;
    c[1] = im;
#endif
}

/* k = 0: the product is empty, A and B are not touched. */
static inline void scale(global real *c, const long ldc, const long rows, const long columns,
                         const real beta_re, const real beta_im)
{
    PLAIN for (long j = 0; j < columns; ++j)
        PLAIN for (long i = 0; i < rows; ++i) {
            global real *const at = c + WORDS * (i + j * ldc);
#if WORDS == 1
            at[0] = beta_re == 0 ? 0 : beta_re * at[0];
#else
            const real re = at[0], im = at[1];
            if (beta_im != 0) {
                at[0] = beta_re * re - beta_im * im;
                at[1] = beta_re * im + beta_im * re;
            } else {
                at[0] = beta_re == 0 ? 0 : beta_re * re;
                at[1] = beta_re == 0 ? 0 : beta_re * im;
            }
#endif
        }
}

#endif

/* The micro-kernel's statements, one macro for each thing done to a vector (v) of a column (j). */
#if WORDS == 1
#define DECLARE(v, j) vector c##v##_##j = (vector)(0);
#define LOAD_A(v, j) const vector a##v = ((local const vector *)ap)[v];
#define MULTIPLY(v, j) c##v##_##j += a##v * b;
#define COLUMN_STEP(j) { const vector b = (vector)(bp[j]); EACH_ROW(MULTIPLY, j) }
#define KEEP(v, j) ((local vector *)tile)[v + j * MICRO_VECTORS] = c##v##_##j;
#else
#define DECLARE(v, j) vector re##v##_##j = (vector)(0), im##v##_##j = (vector)(0);
#define LOAD_A(v, j)                                                                          \
    const vector ar##v = ((local const vector *)ap)[v],                                       \
                 ai##v = ((local const vector *)ap)[v + MICRO_VECTORS];
#ifndef PAIRS
#define MULTIPLY(v, j)                                                                        \
    re##v##_##j += ar##v * br; im##v##_##j += ar##v * bi;                                     \
    re##v##_##j -= ai##v * bi; im##v##_##j += ai##v * br;
#endif
#define COLUMN_STEP(j)                                                                        \
    { const vector br = (vector)(bp[j]), bi = (vector)(bp[j + MICRO_N]); EACH_ROW(MULTIPLY, j) }
#define KEEP(v, j)                                                                            \
    ((local vector *)tile)[v + 2 * j * MICRO_VECTORS] = re##v##_##j;                          \
    ((local vector *)tile)[v + (2 * j + 1) * MICRO_VECTORS] = im##v##_##j;
#endif
#define DECLARE_COLUMN(j) EACH_ROW(DECLARE, j)
#define KEEP_COLUMN(j) EACH_ROW(KEEP, j)
#define SETTLE_COLUMN(j) EACH_ROW(SETTLE, j)

/* Adds a finished micro-tile, laid down in `tile`, to the rows x columns of C it covers. */
static inline void store_tile(local const real *tile, global real *c, const long ldc,
                              const int rows, const int columns, const scalar alpha_re,
                              const scalar alpha_im, const scalar beta_re, const scalar beta_im)
{
#if WORDS == 1
    if (rows == MICRO_M) {
        PLAIN for (int j = 0; j < columns; ++j)
            for (int v = 0; v < MICRO_VECTORS; ++v) {
                const vector x = alpha_re * ((local const vector *)tile)[v + j * MICRO_VECTORS];
                global real *const at = c + j * ldc + v * VECTOR;
                if (beta_re == 0)
                    STORE_GLOBAL(x, at);
                else
                    STORE_GLOBAL(x + beta_re * LOAD_UNALIGNED(at), at);
            }
        return;
    }
#endif
    PLAIN for (int j = 0; j < columns; ++j)
        PLAIN for (int i = 0; i < rows; ++i)
            update(c + WORDS * (i + j * ldc), tile[i + j * WORDS * MICRO_M],
                   tile[i + (j * WORDS + WORDS - 1) * MICRO_M], alpha_re, alpha_im, beta_re,
                   beta_im);
}

WIDE __attribute__((reqd_work_group_size(1, 1, 1))) kernel void
gemm(const long m, const long n, const long k, const scalar alpha_re, const scalar alpha_im,
     global const real *restrict A, const long offset_a, const long lda,
     global const real *restrict B, const long offset_b, const long ldb, const scalar beta_re,
     const scalar beta_im, global real *restrict C, const long offset_c, const long ldc
     RUN_IF_ARGUMENT)
{
    RETURN_UNLESS_WANTED
    /* 64: the widest vector, and a cache line. */
    local real block_a[BLOCK_M * BLOCK_K * WORDS] __attribute__((aligned(64)));
    local real block_b[BLOCK_N * BLOCK_K * WORDS] __attribute__((aligned(64)));
    local real tile[MICRO_M * MICRO_N * WORDS] __attribute__((aligned(64)));

    const long all_m = (m + MICRO_M - 1) / MICRO_M, all_n = (n + MICRO_N - 1) / MICRO_N;
    const long groups_m = get_num_groups(0), groups_n = get_num_groups(1);
    const long first_m = all_m * get_group_id(0) / groups_m;
    const long first_n = all_n * get_group_id(1) / groups_n;
    const int panels_m = (int)(all_m * (get_group_id(0) + 1) / groups_m - first_m);
    const int panels_n = (int)(all_n * (get_group_id(1) + 1) / groups_n - first_n);
    const long row = first_m * MICRO_M, column = first_n * MICRO_N;
    const long rows = min(m - row, (long)panels_m * MICRO_M);
    const long columns = min(n - column, (long)panels_n * MICRO_N);
    global const real *const a = A + WORDS * (offset_a + row * (TRANS_A ? lda : 1));
    global const real *const b = B + WORDS * (offset_b + column * (TRANS_B ? 1 : ldb));
    global real *const c = C + WORDS * (offset_c + row + column * ldc);

    if (k == 0) {
        scale(c, ldc, rows, columns, beta_re, beta_im);
        return;
    }

    const long blocks_k = (k + BLOCK_K - 1) / BLOCK_K;
    PLAIN for (long block = 0; block < blocks_k; ++block) {
        const long l0 = k * block / blocks_k;
        const int kc = (int)(k * (block + 1) / blocks_k - l0);

        PLAIN for (int p = 0; p < panels_m; ++p)
            pack_a(block_a + p * MICRO_M * WORDS * kc,
                   a + WORDS * ((long)p * MICRO_M * (TRANS_A ? lda : 1) + l0 * (TRANS_A ? 1 : lda)),
                   lda, kc, (int)min(rows - (long)p * MICRO_M, (long)MICRO_M));
        PLAIN for (int q = 0; q < panels_n; ++q)
            pack_b(block_b + q * MICRO_N * WORDS * kc,
                   b + WORDS * ((long)q * MICRO_N * (TRANS_B ? 1 : ldb) + l0 * (TRANS_B ? ldb : 1)),
                   ldb, kc, (int)min(columns - (long)q * MICRO_N, (long)MICRO_N));

        /* Later blocks in k add to what the first one stored. */
        scalar scale_re = beta_re, scale_im = beta_im;
        if (block > 0) {
            scale_re = SCALAR_ONE;
            scale_im = 0;
        }
        const int outer = ORDER ? panels_m : panels_n, inner = ORDER ? panels_n : panels_m;
        PLAIN for (int o = 0; o < outer; ++o)
            PLAIN for (int i = 0; i < inner; ++i) {
                const int p = ORDER ? o : i, q = ORDER ? i : o;
                local const real *ap = block_a + p * MICRO_M * WORDS * kc;
                local const real *bp = block_b + q * MICRO_N * WORDS * kc;
                EACH_COLUMN(DECLARE_COLUMN)
                UNROLL_BY(UNROLL)
                for (int l = 0; l < kc; ++l) {
                    EACH_ROW(LOAD_A, 0)
                    EACH_COLUMN(COLUMN_STEP)
                    ap += MICRO_M * WORDS;
                    bp += MICRO_N * WORDS;
#ifdef SETTLE_STEPS
                    if ((l + 1) % SETTLE_STEPS == 0) {
                        EACH_COLUMN(SETTLE_COLUMN)
                    }
#endif
                }
#ifdef PAIRS
                EACH_COLUMN(SETTLE_COLUMN)
#endif
                EACH_COLUMN(KEEP_COLUMN)
#ifdef PAIRS
                REPAIR_TILE(tile, ap - kc * 2 * MICRO_M, bp - kc * 2 * MICRO_N, kc)
#endif
                store_tile(tile, c + WORDS * ((long)p * MICRO_M + (long)q * MICRO_N * ldc), ldc,
                           (int)min(rows - (long)p * MICRO_M, (long)MICRO_M),
                           (int)min(columns - (long)q * MICRO_N, (long)MICRO_N), alpha_re,
                           alpha_im, scale_re, scale_im);
            }
    }
}
