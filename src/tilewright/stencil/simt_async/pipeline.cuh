/* The loop over k.  A part of kernel.cuh, which draws its steps. */

/* The loop's body does UNROLL_K of k, which are as many trips of it for each tile.  A text
 * that outgrows the nearest instruction cache is slower than a few more trips. */
#define TRIPS (BLOCK_K / WARPS_K / UNROLL_K)

/* What one thread copies of both operands. */
struct feeds {
    feed<BLOCK_M, PITCH_A, K_FAST_A> a;
    feed<BLOCK_N, PITCH_B, K_FAST_B> b;
};

/* Start the copies of the first tiles.  WIDE: both operands lie inside, aligned: nothing is
 * checked but the remainder of k.  All stages are free: nobody reads them but to throw away
 * what is read.
 *
 * RESTS_END: the remainder is the end of its tile, whose other steps lie before the matrix, so that
 * it is copied as whole tiles are.  Elsewhere it is the beginning, and checked element by element.
 */
template <bool WIDE>
HELPER void begin_tiles(feeds *f, operand a, operand b, steps mine, shared_at tiles)
{
    const bool remainder = mine.begin == 0 && mine.first_depth < BLOCK_K;
    const isize k_at = RESTS_END ? mine.first_depth + (mine.begin - 1) * BLOCK_K
                                 : tile_at(mine, mine.begin + remainder);
    f->a.begin(a, k_at, tiles);
    f->b.begin(b, k_at, tiles + BYTES_A);

    UNROLL for (int s = 0; s < STAGES - 1; ++s) {
        if (s < mine.count) {
            if (WIDE && RESTS_END && s == 0 && remainder) {
                f->a.copy_rest(BLOCK_K - mine.first_depth, 0);
                f->b.copy_rest(BLOCK_K - mine.first_depth, 0);
            } else if (!WIDE || (s == 0 && remainder)) {
                copy_checked_tile(a, b, mine, mine.begin + s, tiles + s * STAGE_BYTES);
            } else {
                f->a.copy_tile(s * STAGE_BYTES);
                f->b.copy_tile(s * STAGE_BYTES);
            }
        }
        end_group(); /* empty ones too: they are counted */
    }
}

/* Multiply the tiles whose first copies have been started. */
template <bool WIDE>
HELPER void multiply_tiles(elem *sum, feeds *f, operand a, operand b, steps mine, shared_at tiles)
{
    wait_for_groups<STAGES - 2>();
    BARRIER();

    const shared_at from_a = tiles + first_fragment_a() + layer() * (BYTES_A / WARPS_K);
    const shared_at from_b = tiles + BYTES_A + first_fragment_b() + layer() * (BYTES_B / WARPS_K);
    fragments held[1 + DOUBLE_BUFFERED];
    if (DOUBLE_BUFFERED)
        UNROLL for (int part = 0; part < INTERLEAVE; ++part)
            read_fragments(&held[0], from_a, from_b, 0, part);

    /* Where the trip's rows lie, and its stage, counted from the first; the stage to fill. */
    shared_at rows_a = 0, rows_b = 0, stage = 0, into = (STAGES - 1) * STAGE_BYTES;
    int trip = 0;
    unsigned int left = mine.count;    /* tiles to multiply, this one too */
    isize t = mine.begin + STAGES - 1; /* the tile to copy next */
    bool fill = left > STAGES - 1; /* whether this trip fills a stage */
    ROLLED do {
        if (!WIDE && fill)
            copy_checked_tile(a, b, mine, t++, tiles + into);
        UNROLL for (int l = 0; l < STEPS; ++l) {
            fragments *const now = &held[DOUBLE_BUFFERED * l % 2],
                            *const next = &held[DOUBLE_BUFFERED * (l + 1) % 2];
            if (!DOUBLE_BUFFERED)
                UNROLL for (int part = 0; part < INTERLEAVE; ++part)
                    read_fragments(now, from_a + rows_a, from_b + rows_b, l, part);
            if (l < STEPS - 1) {
                if (DOUBLE_BUFFERED)
                    read_fragments(next, from_a + rows_a, from_b + rows_b, l + 1, 0);
            } else {
                rows_a += ADVANCE_A;
                rows_b += ADVANCE_B;
                if (++trip == TRIPS) {
                    /* All of the next tile is there, and all have read the fragments of
                     * this one: its stage is free. */
                    end_group();
                    wait_for_groups<STAGES - 2>();
                    BARRIER();
                    trip = 0;
                    --left;
                    into = stage;
                    stage = stage == (STAGES - 1) * STAGE_BYTES ? 0 : stage + STAGE_BYTES;
                    rows_a = rows_b = stage;
                }
                if (DOUBLE_BUFFERED)
                    read_fragments(next, from_a + rows_a, from_b + rows_b, 0, 0);
                fill = trip == 0 && left > STAGES - 1;
            }
            UNROLL for (int part = 0; part < INTERLEAVE; ++part) {
                if (DOUBLE_BUFFERED && part > 0)
                    read_fragments(next, from_a + rows_a, from_b + rows_b, (l + 1) % STEPS, part);
                if (WIDE && fill && l < STEPS - 1) {
                    f->a.serve(l * INTERLEAVE + part, into);
                    f->b.serve(l * INTERLEAVE + part, into);
                }
                multiply(sum, now, part);
            }
        }
#ifdef SETTLE_STEPS
        /* BLOCK_K divides SETTLE_STEPS; a trip that ends a tile has set `trip` to 0. */
        if (trip == 0 && left % (SETTLE_STEPS / BLOCK_K) == 0)
            settle(sum);
#endif
    } while (left > 0);
#ifdef SUM_NEEDS_CARE
    settle(sum);
#endif
}

/* Multiply this block's tiles. */
template <bool WIDE>
HELPER void accumulate(elem *sum, operand a, operand b, steps mine, shared_at tiles)
{
    feeds f;
    begin_tiles<WIDE>(&f, a, b, mine, tiles);
    multiply_tiles<WIDE>(sum, &f, a, b, mine, tiles);
}
