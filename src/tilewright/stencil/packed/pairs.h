/* Double-double elements for the packed stencil; comes before kernel.cl, which lays pairs
 * out as it does complex numbers: high words where real parts would be, low words where
 * imaginary parts would.
 *
 *     packed panel, for each k:   h0 h1 .. h(W-1)   l0 l1 .. l(W-1)
 *
 * so that a vector holds high words, or low words, of neighbouring rows.  prelude/pair.h
 * says what FAST 0 and 1 compute; MULTIPLY is its pair_madd on vectors.
 */
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define HELPER static inline __attribute__((always_inline))
#include "prelude/pair.h"

#define PAIRS
typedef pair scalar;
#define SCALAR_ONE pair_of(1.0, 0.0)

/* x y + z on vectors, rounded once; see prelude/error_free.h.  From here on a product may be
 * joined with the sum in its own expression, which the statements below want or lack. */
#if defined(__clang__) && (defined(__FMA__) || defined(__ARM_FEATURE_FMA))
#pragma OPENCL FP_CONTRACT ON
#define VECTOR_FUSED(x, y, z) ((x) * (y) + (z))
#else
#define VECTOR_FUSED(x, y, z) fma(x, y, z)
#endif

/* s + e = x + y exactly. */
#define VECTOR_TWO_SUM(s, e, x, y)                                                            \
    const vector s = (x) + (y);                                                               \
    const vector s##_of_y = s - (x);                                                          \
    const vector s##_of_x = s - s##_of_y;                                                     \
    const vector e = ((x) - s##_of_x) + ((y) - s##_of_y);

/* pair_madd's product: p + low. */
#define VECTOR_PRODUCT(v)                                                                     \
    const vector p = ar##v * br;                                                              \
    const vector p_low = VECTOR_FUSED(ar##v, br, -p);                                         \
    const vector cross = VECTOR_FUSED(ai##v, br, p_low);                                      \
    const vector low = VECTOR_FUSED(ar##v, bi, cross);

#if FAST
#define MULTIPLY(v, j)                                                                        \
    {                                                                                         \
        VECTOR_PRODUCT(v)                                                                     \
        VECTOR_TWO_SUM(s, s_low, re##v##_##j, p)                                              \
        re##v##_##j = s;                                                                      \
        im##v##_##j = im##v##_##j + (s_low + low);                                            \
    }
#else
#define MULTIPLY(v, j)                                                                        \
    {                                                                                         \
        VECTOR_PRODUCT(v)                                                                     \
        VECTOR_TWO_SUM(s, s_low, re##v##_##j, p)                                              \
        VECTOR_TWO_SUM(t, t_low, im##v##_##j, low)                                            \
        const vector s_t = s_low + t;                                                         \
        re##v##_##j = s + s_t;                                                                \
        im##v##_##j = t_low + (s_t - (re##v##_##j - s));                                      \
    }
#endif
#define SETTLE(v, j)                                                                          \
    {                                                                                         \
        const vector s = re##v##_##j + im##v##_##j;                                           \
        im##v##_##j = im##v##_##j - (s - re##v##_##j);                                        \
        re##v##_##j = s;                                                                      \
    }

/* Compute anew, as a plain loop would, what of a finished micro-tile is not finite. */
#define REPAIR_TILE(tile, ap, bp, kc)                                                         \
    PLAIN for (int at = 0; at < MICRO_M * MICRO_N; ++at) {                                    \
        const int row = at % MICRO_M, column = at / MICRO_M;                                  \
        local double *const high = tile + 2 * column * MICRO_M + row;                         \
        if (is_finite(high[0]) && is_finite(high[MICRO_M]))                                   \
            continue;                                                                         \
        pair sum = pair_of(0.0, 0.0);                                                         \
        PLAIN for (int l = 0; l < kc; ++l)                                                    \
            sum = pair_plain(sum, pair_of((ap)[l * 2 * MICRO_M + row], 0.0),                  \
                             pair_of((bp)[l * 2 * MICRO_N + column], 0.0));                   \
        high[0] = sum.x;                                                                      \
        high[MICRO_M] = 0.0;                                                                  \
    }

/* scalar x; most scalars are 1, and later blocks in k always add to C times 1. */
static inline pair scaled(const scalar s, const pair x)
{
    return s.x == 1.0 && s.y == 0.0 ? x : pair_multiply(s, x);
}

/* c <- alpha x + beta c for one element; the imaginary parts of scalars mean nothing. */
static inline void update(global double *c, const double high, const double low,
                          const scalar alpha, const scalar unused_alpha, const scalar beta,
                          const scalar unused_beta)
{
    pair x = scaled(alpha, pair_of(high, low));
    if (beta.x != 0.0)
        x = pair_add(x, scaled(beta, pair_of(c[0], c[1])));
    c[0] = x.x;
    c[1] = x.y;
}

static inline void scale(global double *c, const long ldc, const long rows, const long columns,
                         const scalar beta, const scalar unused_beta)
{
    for (long j = 0; j < columns; ++j)
        for (long i = 0; i < rows; ++i) {
            global double *const at = c + 2 * (i + j * ldc);
            pair x = pair_of(0.0, 0.0);
            if (beta.x != 0.0)
                x = pair_multiply(beta, pair_of(at[0], at[1]));
            at[0] = x.x;
            at[1] = x.y;
        }
}
