/* Precisions, operations and scalars: as letters, as numbers, and in memory. */
#include "tilewright_internal.h"

const char tilewright_letters[] = "sdcz", tilewright_operations[] = "NTC";

int64_t tilewright_element_bytes(int64_t precision)
{
    return (tilewright_is_double(precision) ? 8 : 4) * (tilewright_is_complex(precision) ? 2 : 1);
}

int tilewright_precision_of(char letter)
{
    switch (letter) {
    case 's': case 'S': return 0;
    case 'd': case 'D': return 1;
    case 'c': case 'C': return 2;
    case 'z': case 'Z': return 3;
    default: return TILEWRIGHT_UNKNOWN;
    }
}

int tilewright_operation_of(char letter, int64_t precision)
{
    switch (letter) {
    case 'n': case 'N': return 0;
    case 't': case 'T': return 1;
    case 'c': case 'C': return tilewright_is_complex(precision) ? 2 : 1;
    default: return TILEWRIGHT_UNKNOWN;
    }
}

tilewright_scalar tilewright_read_scalar(const void *scalar, int64_t precision)
{
    const int is_complex = tilewright_is_complex(precision);
    const float *const single = scalar;
    const double *const wide = scalar;
    tilewright_scalar made = {0, 0, 0, 0};
    if (tilewright_is_double(precision)) {
        made.re = wide[0];
        made.im = is_complex ? wide[1] : 0;
    } else {
        made.re = (double)single[0];
        made.im = is_complex ? (double)single[1] : 0;
    }
    return made;
}

int tilewright_equals(const tilewright_scalar *x, double value)
{
    return x->re == value && x->im == 0;
}

const void *tilewright_one(int64_t precision)
{
    static const double wide[2] = {1, 0};
    static const float single[2] = {1, 0};
    return tilewright_is_double(precision) ? (const void *)wide : single;
}
