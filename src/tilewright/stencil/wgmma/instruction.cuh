/* The tensor core's instruction: 64 x INSTRUCTION_M sums of 32 bytes of k.  A part of
 * kernel.cuh.
 *
 * PTX wants every register by name: "%0, %1 ...", and the operands behind them.
 */

#if ELEMENT == ELEMENT_F16
#define SHAPE "k16.f32.f16.f16 "
#elif ELEMENT == ELEMENT_BF16
#define SHAPE "k16.f32.bf16.bf16 "
#elif ELEMENT == ELEMENT_TF32
#define SHAPE "k8.f32.tf32.tf32 "
#elif ELEMENT == ELEMENT_S8
#define SHAPE "k32.s32.s8.s8 "
#elif ELEMENT == ELEMENT_E4M3
#define SHAPE "k32.f32.e4m3.e4m3 "
#elif ELEMENT == ELEMENT_E5M2
#define SHAPE "k32.f32.e5m2.e5m2 "
#endif

/* Signs of the operands, and whether each lies along m or n. */
#if ELEMENT == ELEMENT_S8
#define FORM ""
#elif ELEMENT == ELEMENT_F16 || ELEMENT == ELEMENT_BF16
#define FORM ", 1, 1, %" PLACE(3) ", %" PLACE(4)
#else
#define FORM ", 1, 1"
#endif

#if ELEMENT == ELEMENT_S8
#define SUM(i) "+r"(sum[i])
#else
#define SUM(i) "+f"(sum[i])
#endif
/* NAMES of the registers, numbers of the operands behind them, and REGISTERS are of registers.py. */
#define PLACE(i) PLACE_##i

#define TEXT(x) TEXT_OF(x)
#define TEXT_OF(x) #x

/* sum <- rows * columns, plus sum if `go_on`: 64 rows along n, of op(B), INSTRUCTION_M columns along
 * m, of op(A).  It starts; the sums are there after a wait. */
HELPER void start_multiply(accumulator *sum, operand_at rows, operand_at columns, int go_on)
{
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" PLACE(2) ", 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n" TEXT(INSTRUCTION_M) SHAPE "{" NAMES "}, %"
                 PLACE(0) ", %" PLACE(1) ", p" FORM ";\n\t}"
                 : REGISTERS
                 : "l"(rows), "l"(columns), "r"(go_on)
#if ELEMENT == ELEMENT_F16 || ELEMENT == ELEMENT_BF16
                   , "n"(TRANS_B), "n"(!TRANS_A)
#endif
                 );
}

#if ELEMENT == ELEMENT_TF32
/* The same, of rows that the lanes of the warpgroup hold, four words each (rows.cuh). */
HELPER void start_multiply_words(accumulator *sum, const unsigned int *rows, operand_at columns,
                                 int go_on)
{
    asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %" PLACE(5) ", 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n" TEXT(INSTRUCTION_M) SHAPE "{" NAMES "}, {%"
                 PLACE(0) ", %" PLACE(1) ", %" PLACE(2) ", %" PLACE(3) "}, %" PLACE(4) ", p"
                 ", 1, 1;\n\t}"
                 : REGISTERS
                 : "r"(rows[0]), "r"(rows[1]), "r"(rows[2]), "r"(rows[3]),
                   "l"(columns), "r"(go_on));
}
#endif
