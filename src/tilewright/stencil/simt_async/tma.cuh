/* Whole tiles by the copy engine (TMA, compute capability 9.0), and the loop over k that takes
 * them.  A part of kernel.cuh, in the place of copies.cuh and pipeline.cuh.
 *
 * Operands lie in shared memory as they do in device memory, row by row, or line by line
 * (mma_f64/lines.cuh).  So a tile is one box of a tensor map, or a few: one lane asks for it, and
 * the engine finds addresses and writes zeros for what lies outside the matrix.  No thread has
 * pointers to move, and the registers that they took are free for a larger part of C.
 *
 *     stage 0                                              stage 1
 *     | boxes of A | boxes of B | full, empty, STAGE_ALIGNED | boxes of A ...
 *
 * Two barriers (mbarriers) behind each stage alternate; both end their phases with parity 0, 1,
 * 0, ... as the ring comes round:
 *
 *     full     all bytes of both boxes have come       every warp waits before it reads
 *     empty    every warp has read the last of it      warp 0 waits before it asks for more
 *
 * So warps do not wait for each other within the loop: one may be some tiles ahead.
 */

#define BOX_BYTES (BLOCK_K * (BLOCK_M + BLOCK_N) * ELEM_BYTES)

#define LAST_STAGE ((STAGES - 1) * STAGE_BYTES)

/* Numbers of a map that an element is: one of 16 bytes and more is some doubles. */
#define BOX_WORDS (ELEM_BYTES > 8 ? ELEM_BYTES / 8 : 1)

HELPER shared_at full_of(shared_at stage) { return stage + BARRIER_AT; }
HELPER shared_at empty_of(shared_at stage) { return stage + BARRIER_AT + 8; }

/* A thread block's view of op(A) or op(B). */
struct operand {
    const tensor_map *map;
    int at;    /* the block's first row (or column), in numbers of the map */
    bool wide; /* whether whole tiles may be copied: always */
    bool even; /* whether its side is whole lines, so that all of a tile are one box */
};

#ifdef IN_LINE
HELPER bool in_lines(isize side) { return side % IN_LINE == 0; }
#else
HELPER bool in_lines(isize) { return true; }
#endif

HELPER operand operand_a(const matrices *x, edge begin)
{
    const operand a = {x->map_a, (int)begin.at * (K_FAST_A ? 1 : BOX_WORDS), true, in_lines(x->m)};
    return a;
}
HELPER operand operand_b(const matrices *x, edge begin)
{
    const operand b = {x->map_b, (int)begin.at * (K_FAST_B ? 1 : BOX_WORDS), true, in_lines(x->n)};
    return b;
}

/* Ask for an operand's tile that begins at k_at. */
template <int SIDE, int K_FAST>
HELPER void bring_tile(operand x, int k_at, shared_at to, shared_at full)
{
#ifdef IN_LINE
    if (K_FAST) {
        UNROLL for (int on = 0; on < BLOCK_K; on += IN_LINE)
            copy_box(x.map, to + on * SIDE * ELEM_BYTES, full, (k_at + on) * BOX_WORDS, x.at);
    } else if (x.even) {
        copy_lines(x.map, to, full, 0, k_at, x.at / (IN_LINE * BOX_WORDS));
    } else {
        ROLLED for (int on = 0; on < SIDE; on += IN_LINE)
            copy_lines(x.map, to + on * BLOCK_K * ELEM_BYTES, full, x.at + on * BOX_WORDS, k_at, 0);
    }
#else
    copy_box(x.map, to, full, x.at, k_at);
#endif
}

/* The boxes of a piece's tiles, one after another. */
struct feeds {
    operand a, b;
    int k_at;          /* where the next ones begin */
    unsigned int more; /* tiles that this warp asks for in the loop: none, but in warp 0 */

    /* The remainder of k is the end of its tile: what lies before the matrix is zero.  Where an
     * operand lies along k it is the beginning of the last tile: a box may not begin within 16 bytes
     * of what is contiguous, or the engine ends the kernel with an illegal instruction. */
    METHOD void begin(operand rows, operand columns, steps mine)
    {
        a = rows;
        b = columns;
        k_at = K_FAST_A || K_FAST_B ? (int)(mine.begin * BLOCK_K)
                                    : (int)(mine.first_depth + (mine.begin - 1) * BLOCK_K);
        const bool asks = warp_number() == 0;
        more = asks && mine.count > STAGES - 1 ? mine.count - (STAGES - 1) : 0;
    }

    /* Ask for a tile, into the stage that begins here. */
    METHOD void bring(shared_at stage)
    {
        if (is_elected()) {
            expect_bytes(full_of(stage), BOX_BYTES);
            bring_tile<BLOCK_M, K_FAST_A>(a, k_at, stage, full_of(stage));
            bring_tile<BLOCK_N, K_FAST_B>(b, k_at, stage + BYTES_A, full_of(stage));
        }
    }
};

/* Make the stages' barriers anew, and ask for the first tiles.  Nobody waits at a barrier now, nor
 * reads a stage. */
template <bool WIDE>
HELPER void begin_tiles(feeds *f, operand a, operand b, steps mine, shared_at tiles)
{
    f->begin(a, b, mine);
    if (warp_number() == 0) {
        if (is_elected()) {
            UNROLL for (int s = 0; s < STAGES; ++s) {
                begin_barrier(full_of(tiles + s * STAGE_BYTES), 1);
                begin_barrier(empty_of(tiles + s * STAGE_BYTES), THREADS / 32);
            }
            publish_barriers();
        }
        UNROLL for (int s = 0; s < STAGES - 1; ++s) {
            if (s < mine.count)
                f->bring(tiles + s * STAGE_BYTES);
            f->k_at += BLOCK_K;
        }
    }
}

/* Multiply the tiles whose first boxes have been asked for.
 *
 *     l = 0 .. STEPS - 2    read l + 1, multiply l; in the middle ask for t + STAGES - 1 in the
 *                           place of t - 1, which all have left half a tile ago
 *     l = STEPS - 1         leave t; wait for t + 1 and read its l = 0; multiply l
 *
 * What waits and asks stands before a step's reads, where fragments leave registers free for it. */
template <bool WIDE>
HELPER void multiply_tiles(elem *sum, feeds *f, operand, operand, steps mine, shared_at tiles)
{
    BARRIER(); /* the stages' barriers are begun */
    wait_for(full_of(tiles), 0);

    const shared_at from_a = tiles + first_fragment_a();
    const shared_at from_b = tiles + BYTES_A + first_fragment_b();
    fragments held[2];
    UNROLL for (int part = 0; part < INTERLEAVE; ++part)
        read_fragments(&held[0], from_a, from_b, 0, part);

    shared_at stage = 0;            /* of this tile, counted from the first */
    unsigned int parity = 0;        /* of its phase */
    unsigned int left = mine.count; /* tiles to multiply, this one too */
    ROLLED do {
        UNROLL for (int l = 0; l < STEPS; ++l) {
            fragments *const now = &held[l % 2], *const next = &held[(l + 1) % 2];
            if (l == STEPS / 2 && f->more > 0) {
                /* The stage before this one; where this is the first, of the round before.  Nobody
                 * has to empty what was never full. */
                const bool first = stage == 0;
                const shared_at into = tiles + (first ? LAST_STAGE : stage - STAGE_BYTES);
                wait_for(empty_of(into), parity ^ first);
                f->bring(into);
                f->k_at += BLOCK_K;
                --f->more;
            }
            if (l == STEPS - 1) {
                warp_barrier();
                if (is_elected())
                    arrive(empty_of(tiles + stage));
                const bool last = stage == LAST_STAGE;
                stage = last ? 0 : stage + STAGE_BYTES;
                parity ^= last;
                if (--left > 0)
                    wait_for(full_of(tiles + stage), parity);
            }
            UNROLL for (int part = 0; part < INTERLEAVE; ++part) {
                read_fragments(next, from_a + stage, from_b + stage, (l + 1) % STEPS, part);
                multiply(sum, now, part);
            }
        }
    } while (left > 0);
    BARRIER(); /* all have read: the next piece may come */
}

/* Multiply this block's tiles. */
template <bool WIDE>
HELPER void accumulate(elem *sum, operand a, operand b, steps mine, shared_at tiles)
{
    feeds f;
    begin_tiles<WIDE>(&f, a, b, mine, tiles);
    multiply_tiles<WIDE>(sum, &f, a, b, mine, tiles);
}
