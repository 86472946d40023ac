/* The loop over k.  A part of kernel.cuh, which draws its steps. */

/* Steps in the text of the loop: with a whole round of the ring every stage's address is
 * an immediate; with one step the loop is short, and carries the stages around. */
#define ROUND (UNROLL_STAGES ? STAGES : 1)

/* Multiply this block's tiles.  WIDE: both operands lie inside, aligned: nothing is
 * checked but the remainder of k. */
template <bool WIDE>
HELPER void accumulate(elem *sum, operand a, operand b, steps mine, shared_at tiles)
{
    feed<BLOCK_M, PITCH_A, K_FAST_A> feed_a;
    feed<BLOCK_N, PITCH_B, K_FAST_B> feed_b;
    const int copies_a = feed_a.COPIES, copies = feed_a.COPIES + feed_b.COPIES;
    const bool remainder = mine.begin == 0 && mine.first_depth < BLOCK_K;
    const isize k_at = tile_at(mine, mine.begin + remainder);
    feed_a.begin(a, k_at, tiles);
    feed_b.begin(b, k_at, tiles + BYTES_A);

    UNROLL for (int s = 0; s < STAGES - 1; ++s) {
        if (s < mine.count) {
            if (!WIDE || (s == 0 && remainder))
                copy_checked_tile(a, b, mine, mine.begin + s, tiles + s * STAGE_BYTES);
            else
                UNROLL for (int i = 0; i < copies; ++i) {
                    if (i < copies_a)
                        feed_a.copy(i, s * STAGE_BYTES);
                    else
                        feed_b.copy(i - copies_a, s * STAGE_BYTES);
                }
        }
        end_group(); /* empty ones too: they are counted */
    }
    wait_for_groups<STAGES - 2>();
    BARRIER();

    const shared_at from_a = tiles + thread_m() * 16, from_b = tiles + BYTES_A + thread_n() * 16;
    fragments f[2];
    read_fragments(&f[0], from_a, from_b, 0);

    shared_at now = 0, into = (STAGES - 1) * STAGE_BYTES;
    ROLLED for (isize t = 0; t < mine.count; t += ROUND)
        UNROLL for (int u = 0; u < ROUND; ++u) {
            if (u > 0 && t + u >= mine.count)
                break;
            if (UNROLL_STAGES) {
                now = u * STAGE_BYTES;
                into = (u + STAGES - 1) % STAGES * STAGE_BYTES;
            }
            const shared_at next = now == (STAGES - 1) * STAGE_BYTES ? 0 : now + STAGE_BYTES;
            const bool more = t + u + STAGES - 1 < mine.count;
            if (!WIDE && more)
                copy_checked_tile(a, b, mine, mine.begin + t + u + STAGES - 1, tiles + into);
            UNROLL for (int l = 0; l < BLOCK_K; ++l) {
                if (l < BLOCK_K - 1) {
                    read_fragments(&f[(l + 1) % 2], from_a + now, from_b + now, l + 1);
                } else {
                    /* All of the next tile is there, and all have read the fragments of
                     * this one: its stage is free. */
                    end_group();
                    wait_for_groups<STAGES - 2>();
                    BARRIER();
                    read_fragments(&f[(l + 1) % 2], from_a + next, from_b + next, 0);
                }
                /* In COPY_GROUPS groups, spread evenly over the steps before the barrier. */
                if (WIDE && more)
                    UNROLL for (int i = 0; i < copies; ++i)
                        if (i * COPY_GROUPS / copies * (BLOCK_K - 1) / COPY_GROUPS == l) {
                            if (i < copies_a)
                                feed_a.copy(i, into);
                            else
                                feed_b.copy(i - copies_a, into);
                        }
                multiply(sum, &f[l % 2]);
            }
            into = now;
            now = next;
        }
}
