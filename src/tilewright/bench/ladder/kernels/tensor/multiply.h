/* One instruction of the tensor cores: 64 x 256 sums of 16 products, by a warpgroup's 128 threads.
 *
 *     sum += A B        A 64 x 16 and B 16 x 256 in shared memory, BF16; 128 sums a thread, FP32
 *
 * PTX wants each register by name: "%0" to "%127" are the sums.  It only starts: the sums are
 * there after a wait, and until then nobody may touch them. */

#define TEN(t)                                                                               \
    "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t   \
    "8, %" #t "9, "
#define EIGHT(i)                                                                             \
    "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3]), "+f"(sum[i + 4]),    \
        "+f"(sum[i + 5]), "+f"(sum[i + 6]), "+f"(sum[i + 7])
#define THIRTY_TWO(i) EIGHT(i), EIGHT(i + 8), EIGHT(i + 16), EIGHT(i + 24)

HELPER void start_multiply(float *sum, operand_at a, operand_at b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" /* */
                 TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) TEN(6) TEN(7) TEN(8) TEN(9) TEN(10)
                 TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, "
                 /* add to what is there; neither changes sign; both run along k */
                 "1, 1, 1, 0, 0;"
                 : THIRTY_TWO(0), THIRTY_TWO(32), THIRTY_TWO(64), THIRTY_TWO(96)
                 : "l"(a), "l"(b));
}

/* The sums are read from here on, not before the wait that stands above. */
HELPER void settle(float *sum)
{
    UNROLL for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}
