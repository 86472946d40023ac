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
    unsigned short bits;
#if OPERAND_BYTES == 1
    asm volatile("ld.global.nc.L1::no_allocate.u8 %0, [%1];" : "=h"(bits) : "l"(from));
#else
    asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(bits) : "l"(from));
#endif
    v = (operand)bits;
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

#if ELEMENT == ELEMENT_F16
#define INSTRUCTION "m16n8k16.row.col.f32.f16.f16.f32 "
#elif ELEMENT == ELEMENT_BF16
#define INSTRUCTION "m16n8k16.row.col.f32.bf16.bf16.f32 "
#elif ELEMENT == ELEMENT_E4M3
#define INSTRUCTION "m16n8k32.row.col.f32.e4m3.e4m3.f32 "
#elif ELEMENT == ELEMENT_E5M2
#define INSTRUCTION "m16n8k32.row.col.f32.e5m2.e5m2.f32 "
#else
#define INSTRUCTION "m16n8k32.row.col.s32.s8.s8.s32 "
#endif

/* Of a sum in a register. */
#if ELEMENT == ELEMENT_S8
#define SUM "+r"
#else
#define SUM "+f"
#endif

/* 16 x 8 sums, 32 bytes along k: tensor.cuh says who holds what. */
HELPER void mma(elem *d, word a0, word a1, word a2, word a3, word b0, word b1)
{
    asm("mma.sync.aligned." INSTRUCTION
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : SUM(d[0]), SUM(d[1]), SUM(d[2]), SUM(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
#endif

#endif /* EMULATED */
