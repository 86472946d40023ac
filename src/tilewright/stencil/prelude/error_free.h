/* Rounded operations on doubles that no compiler may change, and the error-free ones made
 * of them.  Names and counts of operations as in Joldes, Muller & Popescu, "Tight and
 * rigorous error bounds for basic building blocks of double-word arithmetic", ACM TOMS
 * 44(2), 2017.
 *
 * A compiler that joins a product and a sum into one fused operation where the source has two,
 * or that reorders sums, makes all of this wrong.
 */
#ifdef __CUDACC__

/* These intrinsics are never joined with others (CUDA C++ Programming Guide, appendix on
 * mathematical functions). */
HELPER double plus(double x, double y) { return __dadd_rn(x, y); }
HELPER double minus(double x, double y) { return __dadd_rn(x, -y); }
HELPER double times(double x, double y) { return __dmul_rn(x, y); }
HELPER double fused(double x, double y, double z) { return __fma_rn(x, y, z); }

#else

#pragma OPENCL FP_CONTRACT OFF
HELPER double plus(double x, double y) { return x + y; }
HELPER double minus(double x, double y) { return x - y; }
HELPER double times(double x, double y) { return x * y; }

/* x y + z, rounded once.  On a CPU with an instruction for it, clang emits that instruction
 * for an expression that may be contracted, while PoCL's fma() is a call of a function. */
#if defined(__clang__) && (defined(__FMA__) || defined(__ARM_FEATURE_FMA))
HELPER double fused(double x, double y, double z)
{
#pragma OPENCL FP_CONTRACT ON
    return x * y + z;
}
#else
HELPER double fused(double x, double y, double z) { return fma(x, y, z); }
#endif

#endif

/* A number as the sum of two doubles: x the high word, y the low word.  Normalised, x is the
 * double nearest to the sum. */
typedef double2 pair;

HELPER pair pair_of(double high, double low)
{
    pair z;
    z.x = high;
    z.y = low;
    return z;
}

/* 2Sum, 6 operations: x + y exactly. */
HELPER pair two_sum(double x, double y)
{
    const double s = plus(x, y);
    const double of_y = minus(s, x);
    const double of_x = minus(s, of_y);
    return pair_of(s, plus(minus(x, of_x), minus(y, of_y)));
}

/* Fast2Sum, 3 operations: x + y exactly if |x| >= |y| or x = 0. */
HELPER pair fast_two_sum(double x, double y)
{
    const double s = plus(x, y);
    return pair_of(s, minus(y, minus(s, x)));
}

/* 2Prod, 2 operations: x y exactly, unless it underflows. */
HELPER pair two_product(double x, double y)
{
    const double p = times(x, y);
    return pair_of(p, fused(x, y, -p));
}

/* Neither infinite nor NaN. */
HELPER int is_finite(double x) { return minus(x, x) == 0.0; }
