/* Double-double dot products by several sequences of operations, each in one chain along k.
 * Compiled without contraction; double_double_sequences.py says what for. */
#include <math.h>

typedef struct { double h, l; } pair;

static pair two_sum(double x, double y)
{
    const double s = x + y, of_y = s - x, of_x = s - of_y;
    return (pair){s, (x - of_x) + (y - of_y)};
}

static pair fast_two_sum(double x, double y)
{
    const double s = x + y;
    return (pair){s, y - (s - x)};
}

/* AccurateDWPlusDW(sum, DWTimesDW3(x, y)): 29 operations. */
static pair joined(pair sum, pair x, pair y)
{
    const double p = x.h * y.h, e = fma(x.h, y.h, -p);
    const pair q = fast_two_sum(p, e + fma(x.l, y.h, fma(x.h, y.l, x.l * y.l)));
    const pair s = two_sum(sum.h, q.h), t = two_sum(sum.l, q.l);
    const pair v = fast_two_sum(s.h, s.l + t.h);
    return fast_two_sum(v.h, t.l + v.l);
}

/* The same, normalised by the next step alone: 21. */
static pair chained(pair sum, pair x, pair y)
{
    const double p = x.h * y.h, e = fma(x.h, y.h, -p);
    const double d = fma(x.h, y.l, fma(x.l, y.h, e));
    const pair s = two_sum(sum.h, p), t = two_sum(sum.l, d);
    const pair v = fast_two_sum(s.h, s.l + t.h);
    return (pair){v.h, t.l + v.l};
}

/* Dot2 on pairs: 12, and a renormalisation now and then. */
static pair dot2(pair sum, pair x, pair y)
{
    const double p = x.h * y.h, e = fma(x.h, y.h, -p);
    const double d = fma(x.h, y.l, fma(x.l, y.h, e));
    const pair s = two_sum(sum.h, p);
    return (pair){s.h, sum.l + (s.l + d)};
}

/* C = A B, all row by row; how: -1 joined, 0 chained, else dot2 settled every so many steps. */
void multiply(int how, int m, int n, int k, const pair *a, const pair *b, pair *c)
{
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            pair sum = {0, 0};
            for (int l = 0; l < k; ++l) {
                const pair x = a[i * k + l], y = b[l * n + j];
                sum = how < 0 ? joined(sum, x, y) : how ? dot2(sum, x, y) : chained(sum, x, y);
                if (how > 0 && (l + 1) % how == 0)
                    sum = fast_two_sum(sum.h, sum.l);
            }
            c[i * n + j] = fast_two_sum(sum.h, sum.l);
        }
}
