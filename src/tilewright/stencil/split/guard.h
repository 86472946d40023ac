/* What the guard counts, and how it decides; docs/fp32_accurate.md derives every number.
 *
 * Sides are the m rows of op(A), then, from `first_b` on, the n columns of op(B), `all` together,
 * where m and n are rounded up to 4.  Two arrays of ints tell of them:
 *
 *     tops   | blocks done, 3 unused | top of every side |
 *     sides  | exponent of every side | faint of every side | narrow ... | cut ... | 2 marks |
 *
 * top: bits of the largest magnitude; a mark, of A and of B: some part but the first is not 0.
 * Tops and the number before them are zero between calls: the last block of the second pass to
 * end leaves them so, wherever those of the next call may lie.
 */
#define DONE 0
#define TOP(side) (4 + (side))
#define EXPONENT(side) (side)
#define COUNT(side, c) ((1 + (c)) * all + (side))
#define MARK(operand) ((1 + COUNTS) * all + (operand))

/* Ints of either array; the next product of a batch has its own behind them. */
#define TOPS (4 + all)
#define SIDES ((1 + COUNTS) * all + 4)

#define COUNTS 3
#define FAINT 0  /* below 2^-SEEN_BITS of the side's largest: may be lost in a sum */
#define NARROW 1 /* faint, or of fewer than WIDE_BITS significant bits: products may be exact */
#define CUT 2    /* not 0, and so small that FP16 parts lose more of it than of others */

/* A product of two numbers that are not faint is at least 2^-20 of the largest that there can
 * be, so single precision rounds when it is added. */
#define SEEN_BITS 10

/* Products of two wide numbers have 31 bits and more: single precision rounds them. */
#define WIDE_BITS 16

/* The largest of a side is scaled to 2^TOP_EXPONENT and more, below 2^15: FP16 holds it. */
#define TOP_EXPONENT 14

/* From 2^-2 on two parts have 22 bits: the second one's last place is 2^-24. */
#define WHOLE_EXPONENT (-2)

/* Terms that every element of C has to have, for three products of FP16 parts and for six of
 * BF16 parts: with as many single precision errs more than they do. */
#define TERMS_FP16 128
#define TERMS_BF16 64

/* Of so many terms one may have been cut. */
#define TERMS_A_CUT 128

#define ROUTE_IEEE 0
#define ROUTE_FP16X3 1
#define ROUTE_BF16X6 2

/* What decide.h writes, one int each. */
#define DECISION_ROUTE 0
#define DECISION_FINITE 1     /* 0: infinity or NaN among the operands */
#define DECISION_SEEN 2       /* terms that each element of C has, at least */
#define DECISION_WIDE 3       /* of these, with both factors wide, at least */
#define DECISION_CUT_A 4      /* cut elements of a row of op(A), at most */
#define DECISION_CUT_B 5      /* ... of a column of op(B) */
#define DECISION_SHORT_A 6    /* 1: FP16 parts of op(A) but the first are all zero */
#define DECISION_SHORT_B 7
#define DECISIONS 8
