/* The tensor cores' instructions, one a function.  A part of mma.cuh.
 *
 * `c` points to a lane's elements of C, two in each of MMA_M / 8 rows; `a` has as many rows for
 * each four steps along k, `b` one element.
 */

#ifndef EMULATED

#if MMA_M == 8
HELPER void mma(REAL *const *c, const REAL *a, const REAL *b)
{
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(*c[0]), "+d"(*c[1])
                 : "d"(a[0]), "d"(b[0]));
}
#elif MMA_K == 4
HELPER void mma(REAL *const *c, const REAL *a, const REAL *b)
{
    asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 "
                 "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+d"(*c[0]), "+d"(*c[1]), "+d"(*c[2]), "+d"(*c[3])
                 : "d"(a[0]), "d"(a[1]), "d"(b[0]));
}
#elif MMA_K == 8
HELPER void mma(REAL *const *c, const REAL *a, const REAL *b)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+d"(*c[0]), "+d"(*c[1]), "+d"(*c[2]), "+d"(*c[3])
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
}
#else
HELPER void mma(REAL *const *c, const REAL *a, const REAL *b)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, "
                 "{%0, %1, %2, %3};"
                 : "+d"(*c[0]), "+d"(*c[1]), "+d"(*c[2]), "+d"(*c[3])
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]),
                   "d"(a[7]), "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
}
#endif

/* Volatile as read_chunk is. */
HELPER REAL read_real(shared_at at)
{
    REAL v;
    asm volatile("ld.shared.f64 %0, [%1];" : "=d"(v) : "r"(at));
    return v;
}

/* -x by its sign bit: the units for doubles are those that multiply. */
HELPER REAL negative(REAL x)
{
    REAL y;
    asm("{\n\t.reg .b64 bits;\n\tmov.b64 bits, %1;\n\t"
        "xor.b64 bits, bits, 0x8000000000000000;\n\tmov.b64 %0, bits;\n\t}"
        : "=d"(y)
        : "d"(x));
    return y;
}

#endif /* EMULATED */
