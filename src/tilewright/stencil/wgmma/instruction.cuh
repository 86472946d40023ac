/* The tensor core's instruction: 64 x INSTRUCTION_M sums of 32 bytes of k.  A part of
 * kernel.cuh.
 *
 * PTX wants every register by name, so there is a list for each number of sums: "%0, %1 ...",
 * and the operands behind them.
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

#define TEN(t)                                                                              \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t  \
    "8, %" #t "9, "
#if ELEMENT == ELEMENT_S8
#define SUM(i) "+r"(sum[i])
#else
#define SUM(i) "+f"(sum[i])
#endif
#define EIGHT(i)                                                                            \
    SUM(i), SUM(i + 1), SUM(i + 2), SUM(i + 3), SUM(i + 4), SUM(i + 5), SUM(i + 6), SUM(i + 7)
#define SIXTEEN(i) EIGHT(i), EIGHT(i + 8)
#define THIRTY_TWO(i) SIXTEEN(i), SIXTEEN(i + 16)
#define SIXTY_FOUR(i) THIRTY_TWO(i), THIRTY_TWO(i + 32)

/* The registers' names, the operands' numbers behind them, and the registers. */
#if SUMS == 32
#define NAMES TEN() TEN(1) TEN(2) "%30, %31"
#define BEHIND(x) x("32", "33", "34", "35", "36")
#define REGISTERS THIRTY_TWO(0)
#elif SUMS == 48
#define NAMES TEN() TEN(1) TEN(2) TEN(3) "%40, %41, %42, %43, %44, %45, %46, %47"
#define BEHIND(x) x("48", "49", "50", "51", "52")
#define REGISTERS THIRTY_TWO(0), SIXTEEN(32)
#elif SUMS == 64
#define NAMES TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) "%60, %61, %62, %63"
#define BEHIND(x) x("64", "65", "66", "67", "68")
#define REGISTERS SIXTY_FOUR(0)
#elif SUMS == 96
#define NAMES                                                                               \
    TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8)                           \
    "%90, %91, %92, %93, %94, %95"
#define BEHIND(x) x("96", "97", "98", "99", "100")
#define REGISTERS SIXTY_FOUR(0), THIRTY_TWO(64)
#elif SUMS == 128
#define NAMES                                                                               \
    TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9) TEN(10) TEN(11)    \
    "%120, %121, %122, %123, %124, %125, %126, %127"
#define BEHIND(x) x("128", "129", "130", "131", "132")
#define REGISTERS SIXTY_FOUR(0), SIXTY_FOUR(64)
#endif
#define FIRST(a, b, c, d, e) a
#define SECOND(a, b, c, d, e) b
#define THIRD(a, b, c, d, e) c
#define FOURTH(a, b, c, d, e) d
#define FIFTH(a, b, c, d, e) e
#define PLACE_0 BEHIND(FIRST)
#define PLACE_1 BEHIND(SECOND)
#define PLACE_2 BEHIND(THIRD)
#define PLACE_3 BEHIND(FOURTH)
#define PLACE_4 BEHIND(FIFTH)
#define PLACE(i) PLACE_##i

#define TEXT(x) TEXT_OF(x)
#define TEXT_OF(x) #x

/* sum <- rows * columns, plus sum if `go_on`: rows are 64 along n, of op(B), columns
 * INSTRUCTION_M along m, of op(A).  It starts; the sums are there after a wait. */
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
