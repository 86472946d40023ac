/* An instruction's rows in registers, where memory runs along them.  A part of multiply.cuh.
 *
 * Of 64 rows and 8 steps of k lane l of warp w has four words (PTX ISA, "Register fragments for
 * wgmma.mma_async.m64nNk8"):
 *
 *                step l % 4      step l % 4 + 4
 *     row r      word 0          word 2                  r = 16 w + l / 4
 *     row r + 8  word 1          word 3
 *
 * Shared memory has squares of 32 rows side by side by BLOCK_K steps of k below each other, in lines
 * of 128 bytes whose 16-byte pieces are exchanged: piece p of step s is at p ^ s % 8.  Were all lanes
 * to read the same word at once, steps 0 and 1 would meet in the same banks.  So lanes of odd steps
 * read words 2 and 3 first, which puts four steps into four quarters of a line:
 *
 *     steps read together     0    5    2    7        then     4    1    6    3
 *     pieces of rows 0 to 7   0 1  5 4  2 3  7 6               4 5  1 0  6 7  3 2
 */

/* Of one instruction. */
struct words_of_rows {
    unsigned int word[4];
};

/* `from` is a multiple of 1024: the first of 64 rows, at a step that is a multiple of 8. */
HELPER words_of_rows read_rows(shared_at from)
{
    const int lane = THREAD_ID % 32, warp = THREAD_ID / 32 % 4;
    const bool odd = lane & 1;
    const int step = lane % 4 + 4 * odd, piece = warp % 2 * 4 + lane / 16;
    const shared_at at = from + warp / 2 * (BLOCK_K * 128) + step * 128 + (piece ^ step) * 16 +
                         lane / 4 % 4 * 4;
    /* Four steps away, whose pieces are exchanged by four more; eight rows away. */
    const shared_at other = at ^ (4 * 128 + 4 * 16), below = 2 * 16;
    words_of_rows v;
    UNROLL for (int h = 0; h < 2; ++h) {
        const unsigned int first = read_word(at ^ h * below), second = read_word(other ^ h * below);
        v.word[h] = odd ? second : first;
        v.word[2 + h] = odd ? first : second;
    }
    return v;
}
