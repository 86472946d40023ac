/* What C++ has no words for: loads of what is read once.  A part of kernel.cuh.
 *
 * Whoever runs this source elsewhere defines EMULATED as a file that has these functions.
 */

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
HELPER const operand *step(const operand *from, isize apart)
{
    asm volatile("add.s64 %0, %0, %1;" : "+l"(from) : "l"(apart * OPERAND_BYTES));
    return from;
}

/* Reads of operands: none is written meanwhile (.nc), none is read again by this multiprocessor
 * (L1::no_allocate).  Volatile, so that they stay together, before the barrier and the
 * multiply-adds behind them. */
HELPER chunk load_chunk(const operand *from)
{
    chunk v;
#ifdef ELEMENT
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.r[0]), "=r"(v.r[1]), "=r"(v.r[2]), "=r"(v.r[3])
                 : "l"(from));
#elif REAL_BYTES == 4
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

HELPER operand load_element(const operand *from)
{
    operand v;
#ifdef ELEMENT
    asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(v) : "l"(from));
#elif ELEM_BYTES == 4
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

#ifdef ELEMENT
#if ELEMENT == ELEMENT_F16
#define FORMAT "f16"
#else
#define FORMAT "bf16"
#endif

HELPER elem widened(operand bits)
{
    elem v;
    asm("cvt.f32." FORMAT " %0, %1;" : "=f"(v) : "h"(bits));
    return v;
}
#endif

#ifdef ELEMENT
/* A chunk of which a neighbour reads a part, too: kept in the first-level cache. */
HELPER chunk load_chunk_for_two(const operand *from)
{
    chunk v;
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.r[0]), "=r"(v.r[1]), "=r"(v.r[2]), "=r"(v.r[3])
                 : "l"(from));
    return v;
}

/* Begin to copy the first elements of a chunk to shared memory; zeros follow them. */
HELPER void copy_chunk(operand *to, const operand *from, int elements)
{
    asm volatile("{\n\t.reg .u64 shared;\n\tcvta.to.shared.u64 shared, %0;\n\t"
                 "cp.async.cg.shared.global [shared], [%1], 16, %2;\n\t}" ::"l"(to),
                 "l"(from), "r"(elements * OPERAND_BYTES)
                 : "memory");
}

/* Wait for all copies that this thread began. */
HELPER void wait_for_copies(void) { asm volatile("cp.async.wait_all;" ::: "memory"); }

/* 16 x 8 sums, 16 steps of k: tensor.cuh says who holds what. */
HELPER void mma(elem *d, word a0, word a1, word a2, word a3, word b0, word b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32." FORMAT "." FORMAT ".f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
#endif

/* A result to the nearest number that C has, ties to even. */
HELPER output rounded(elem v)
{
#if defined(OUTPUT) && OUTPUT != OUTPUT_F32
    output bits;
    asm("cvt.rn." FORMAT ".f32 %0, %1;" : "=h"(bits) : "f"(v));
    return bits;
#else
    return v;
#endif
}

#endif /* EMULATED */
