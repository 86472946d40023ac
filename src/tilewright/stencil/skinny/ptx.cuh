/* What C++ has no words for: loads of what is read once.  A part of kernel.cuh.
 *
 * Whoever runs this source elsewhere defines EMULATED as a file that has these functions.
 */

/* 16 bytes as the reals in them. */
struct ALIGNED(16) chunk {
    REAL r[16 / REAL_BYTES];
};

#ifdef EMULATED
#include EMULATED
#else

/* The shared memory that the launch asks for. */
HELPER elem *shared_memory(void)
{
    DYNAMIC_SHARED_ARRAY ALIGNED(16) unsigned char arena[];
    return (elem *)arena;
}

/* The second kernel's, an element a thread. */
HELPER elem *second_shared_memory(void)
{
    SHARED_ARRAY ALIGNED(16) unsigned char second[SECOND_THREADS * ELEM_BYTES];
    return (elem *)second;
}

/* from + apart elements, added just here: else the compiler keeps all such sums in registers. */
HELPER const elem *step(const elem *from, isize apart)
{
    asm volatile("add.s64 %0, %0, %1;" : "+l"(from) : "l"(apart * ELEM_BYTES));
    return from;
}

/* Reads of operands: none is written meanwhile (.nc), none is read again by this multiprocessor
 * (L1::no_allocate).  Volatile, so that they stay together, before the barrier and the
 * multiply-adds behind them. */
HELPER chunk load_chunk(const elem *from)
{
    chunk v;
#if REAL_BYTES == 4
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.r[0]), "=f"(v.r[1]), "=f"(v.r[2]), "=f"(v.r[3])
                 : "l"(from));
#else
    asm volatile("ld.global.nc.L1::no_allocate.v2.f64 {%0, %1}, [%2];"
                 : "=d"(v.r[0]), "=d"(v.r[1])
                 : "l"(from));
#endif
    return v;
}

HELPER elem load_element(const elem *from)
{
    elem v;
#if ELEM_BYTES == 4
    asm volatile("ld.global.nc.L1::no_allocate.f32 %0, [%1];" : "=f"(v) : "l"(from));
#elif ELEM_BYTES == REAL_BYTES
    asm volatile("ld.global.nc.L1::no_allocate.f64 %0, [%1];" : "=d"(v) : "l"(from));
#elif REAL_BYTES == 4
    asm volatile("ld.global.nc.L1::no_allocate.v2.f32 {%0, %1}, [%2];"
                 : "=f"(v.x), "=f"(v.y)
                 : "l"(from));
#else
    asm volatile("ld.global.nc.L1::no_allocate.v2.f64 {%0, %1}, [%2];"
                 : "=d"(v.x), "=d"(v.y)
                 : "l"(from));
#endif
    return v;
}

#endif /* EMULATED */

/* Element i of a chunk. */
HELPER elem element_of(chunk v, int i)
{
#if ELEM_BYTES == REAL_BYTES
    return v.r[i];
#else
    return elem_scalar(v.r[2 * i], v.r[2 * i + 1]);
#endif
}
