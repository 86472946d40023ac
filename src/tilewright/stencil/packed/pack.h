/* Copies a panel of op(X) into local memory, PACK_WIDTH elements for each k:

       source, op(X) seen as width x k          packed panel
       +-----------------------------+          k=0: w0 w1 w2 ... w(W-1)
       | w0 : x(0,0) x(0,1) x(0,2) ..|          k=1: w0 w1 w2 ... w(W-1)
       | w1 : x(1,0) x(1,1)        ..|   --->   ...
       | ..                          |          complex: W real parts, then
       +-----------------------------+          W imaginary parts, for each k

   so that the micro-kernel reads one contiguous run for each step in k.

   Included once for A and once for B with
     PACK_NAME        name of the function
     PACK_WIDTH       panel width: rows of op(A) or columns of op(B)
     PACK_ALONG_K     1: neighbours in k are neighbours in memory (a transposing
                      copy), 0: neighbours in the panel are
     PACK_CONJUGATE   1: imaginary parts change sign
   Rows from `valid` on lie outside the matrix: they are filled with zeros, and
   whatever they produce is never stored. */

static inline void PACK_NAME(local real *panel, global const real *x,
                             const long ld, const int kc, const int valid)
{
    const int width = PACK_WIDTH;
    if (valid < width)
        PLAIN for (int i = 0; i < kc * width * WORDS; ++i)
            panel[i] = 0;
#if WORDS == 1 && PACK_ALONG_K
    /* Squares of 4 x 4 are transposed in registers: half the loads and stores of a
       copy by elements, and no more shuffles than a core can issue beside them. */
    int w = 0;
    PLAIN for (; w + 4 <= valid; w += 4) {
        global const real *const x0 = x + w * ld, *const x1 = x0 + ld;
        global const real *const x2 = x1 + ld, *const x3 = x2 + ld;
        int l = 0;
        PLAIN for (; l + 4 <= kc; l += 4) {
            const real4 r0 = LOAD4(x0 + l), r1 = LOAD4(x1 + l);
            const real4 r2 = LOAD4(x2 + l), r3 = LOAD4(x3 + l);
            local real *const to = panel + l * width + w;
            STORE4((real4)(r0.s0, r1.s0, r2.s0, r3.s0), to);
            STORE4((real4)(r0.s1, r1.s1, r2.s1, r3.s1), to + width);
            STORE4((real4)(r0.s2, r1.s2, r2.s2, r3.s2), to + 2 * width);
            STORE4((real4)(r0.s3, r1.s3, r2.s3, r3.s3), to + 3 * width);
        }
        PLAIN for (; l < kc; ++l) {
            local real *const to = panel + l * width + w;
            to[0] = x0[l];
            to[1] = x1[l];
            to[2] = x2[l];
            to[3] = x3[l];
        }
    }
    PLAIN for (; w < valid; ++w)
        PLAIN for (int l = 0; l < kc; ++l)
            panel[l * width + w] = x[w * ld + l];
#elif WORDS == 1
    if (valid >= width) {
        PLAIN for (int l = 0; l < kc; ++l) {
            int w = 0;
            for (; w + VECTOR <= width; w += VECTOR)
                STORE_UNALIGNED(LOAD_UNALIGNED(x + l * ld + w), panel + l * width + w);
            PLAIN for (; w < width; ++w)
                panel[l * width + w] = x[l * ld + w];
        }
    } else {
        PLAIN for (int l = 0; l < kc; ++l)
            PLAIN for (int w = 0; w < valid; ++w)
                panel[l * width + w] = x[l * ld + w];
    }
#else
    const long step_w = PACK_ALONG_K ? ld : 1, step_l = PACK_ALONG_K ? 1 : ld;
    PLAIN for (int w = 0; w < valid; ++w)
        PLAIN for (int l = 0; l < kc; ++l) {
            const long from = 2 * (w * step_w + l * step_l);
            local real *const to = panel + l * 2 * width + w;
            to[0] = x[from];
            to[width] = PACK_CONJUGATE ? -x[from + 1] : x[from + 1];
        }
#endif
}
