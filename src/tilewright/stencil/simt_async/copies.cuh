/* Tiles on their way from device memory to shared memory.  A part of kernel.cuh. */

/* A thread block's view of op(A) or op(B).  `side` is the index that is not k. */
struct operand {
    const elem *first; /* the block's first row (or column) at k = 0 */
    isize ld;
    int side_left; /* how much of the block's side lies inside the matrix */
    bool wide;     /* whether whole tiles may be copied without checks of each element */
};

/* Whether every piece of 16 bytes that a whole tile is read by is aligned. */
HELPER bool is_aligned(const elem *first, isize ld, isize k, int k_fast)
{
    const bool aligned = ADDRESS(first) % 16 == 0 && ld % CHUNK == 0;
    if (!k_fast)
        return HOW_COPIED(0) == SCALARS || aligned;
    /* Tiles begin behind the remainder of k. */
    return HOW_COPIED(1) == ELEMENTS || HOW_COPIED(1) == SINGLES || (aligned && k % CHUNK == 0);
}

/* Whether each piece of a whole tile lies inside the matrix, or outside and is left to guards. */
HELPER bool is_whole(int side_left, int block_side, int k_fast)
{
    if (side_left == block_side)
        return true;
    return CLAMPED && (k_fast || HOW_COPIED(0) != CHUNKS || side_left % CHUNK == 0);
}

HELPER operand operand_at(const elem *first, isize ld, edge begin, isize side, isize k,
                          int block_side, int k_fast)
{
    operand x;
    x.first = first + (k_fast ? begin.at * ld : begin.at);
    x.ld = ld;
    x.side_left = side - begin.at < block_side ? (int)(side - begin.at) : block_side;
    x.wide = is_whole(x.side_left, block_side, k_fast) && is_aligned(first, ld, k, k_fast);
    return x;
}

/* The block's rows of op(A), and its columns of op(B). */
HELPER operand operand_a(const matrices *x, edge begin)
{
    return operand_at(x->a + x->offset_a, x->lda, begin, x->m, x->k, BLOCK_M, K_FAST_A);
}
HELPER operand operand_b(const matrices *x, edge begin)
{
    return operand_at(x->b + x->offset_b, x->ldb, begin, x->n, x->k, BLOCK_N, K_FAST_B);
}

/* Where tile t begins along k. */
HELPER isize tile_at(steps s, isize t)
{
    return t == 0 ? 0 : s.first_depth + (t - 1) * BLOCK_K;
}

/* The greatest common divisor. */
HELPER constexpr int common(int x, int y) { return y ? common(y, x % y) : x; }

/* Along m or n: asynchronous copies of 16 bytes.  Where a row's pieces do not divide the threads, as
 * those of 96 or 192 elements seldom do, a row is some parts, of eight pieces at least. */
template <int SIDE, int PITCH> struct layout<SIDE, PITCH, CHUNKS> {
    enum {
        ACROSS = common(SIDE / CHUNK, THREADS), /* pieces of a row of the tile at once */
        ABREAST = THREADS / ACROSS,             /* rows at once */
        ROWS = BLOCK_K / ABREAST,
        PARTS = SIDE / CHUNK / ACROSS,
        PART = ACROSS * 16, /* bytes to the next part, in device memory */
        SHARED_PART = PART, /* and in shared memory */
        PART_STEPS = 0      /* and steps along k */
    };
    /* Bytes from a thread's first row to its row r in shared memory, and the bits of an address
     * that are swizzled from one to the other: where any are, ABREAST is a power of two, so that the
     * row's number has those of both, and parts are whole lines. */
    static_assert(swizzle<0>(1) == 0 ||
                      ((ABREAST & (ABREAST - 1)) == 0 && (PARTS == 1 || PART % 128 == 0)),
                  "rows are swizzled");
    static METHOD constexpr int shared_row(int r) { return r * ABREAST * PITCH * ELEM_BYTES; }
    static METHOD constexpr int swizzled_row(int r) { return swizzle<0>(r * ABREAST); }
};

/* Threads side by side that copy single elements: as many of a warp as divide the side, so that each
 * has few rows, from one of which to the next it takes two instructions, and many parts, which take
 * none (a comparison, where they are CLAMPED).  More where so many rows at once would not divide a
 * tile. */
HELPER constexpr int side_by_side(int side, int these)
{
    return these >= side || these >= THREADS ? (side < THREADS ? side : THREADS)
           : side % these == 0 && THREADS % these == 0 && BLOCK_K % (THREADS / these) == 0
               ? these
               : side_by_side(side, 2 * these);
}

/* Along m or n, wherever columns begin: asynchronous copies of single elements. */
template <int SIDE, int PITCH> struct layout<SIDE, PITCH, SCALARS> {
    enum {
        ACROSS = side_by_side(SIDE, common(SIDE, 32)),
        ABREAST = THREADS / ACROSS,
        ROWS = BLOCK_K / ABREAST,
        PARTS = SIDE / ACROSS,
        PART = ACROSS * ELEM_BYTES,
        SHARED_PART = PART,
        PART_STEPS = 0
    };
    static_assert(swizzle<0>(1) == 0 ||
                      ((ABREAST & (ABREAST - 1)) == 0 && (PARTS == 1 || PART % 128 == 0)),
                  "rows are swizzled");
    static METHOD constexpr int shared_row(int r) { return r * ABREAST * PITCH * ELEM_BYTES; }
    static METHOD constexpr int swizzled_row(int r) { return swizzle<0>(r * ABREAST); }
};

/* One thread's copies of an operand's whole tiles.
 *
 * CLAMPED: where the block is longer than the matrix, pieces outside are not copied.  Nothing that
 * follows from what shared memory holds in their place is stored.
 */
template <int SIDE, int PITCH, int K_FAST> struct feed {
    static constexpr way HOW = HOW_COPIED(K_FAST);
    typedef layout<SIDE, PITCH, HOW> map;
    enum {
        COPIES = map::ROWS * map::PARTS,
        /* Along the block's side: a piece, and from one of a thread's pieces to the next. */
        WIDTH = HOW == CHUNKS ? CHUNK : 1,
        APART = K_FAST ? map::ABREAST : map::ACROSS * WIDTH
    };

    const char *from; /* the next row of pieces */
    isize row, tile;  /* bytes to the next row, and from a tile's last to the next's first */
    int first_step;   /* where the first piece lies along k, in its tile */
    shared_at to;     /* where the first piece goes in stage 0 */
    int left;         /* CLAMPED: how many of a thread's pieces along the side lie inside */

    METHOD void begin(operand x, isize k_at, shared_at tiles)
    {
        const int id = THREAD_ID, fast = id % map::ACROSS, slow = id / map::ACROSS;
        const int s = K_FAST ? slow : fast * WIDTH;
        const int l = !K_FAST ? slow : fast * (HOW == PLANES ? CHUNK : 1);
        first_step = l;
        left = (x.side_left - s + APART - 1) / APART;
        from = (const char *)(x.first + (K_FAST ? k_at + l + s * x.ld : (k_at + l) * x.ld + s));
        row = map::ABREAST * x.ld * ELEM_BYTES;
        tile = K_FAST ? BLOCK_K * ELEM_BYTES - (map::ROWS - 1) * row : row;
        to = tiles + place_in_tile<PITCH, K_FAST>(s, l);
        keep(&row);
        keep(&tile);
    }

    METHOD shared_at place(int i, shared_at stage) const
    {
        const int r = i / map::PARTS, part = i % map::PARTS;
        return (to ^ map::swizzled_row(r)) + stage + (map::shared_row(r) + part * map::SHARED_PART);
    }

    /* Start copy i of a tile into the stage that begins `stage` bytes on.  Copies are
     * started in order: the last moves on to the next tile. */
    METHOD void start(int i, shared_at stage)
    {
        const char *const piece = from + i % map::PARTS * map::PART;
        const bool chunks = HOW == CHUNKS || HOW == PLANES;
        if (CLAMPED && chunks)
            copy_chunk_below(place(i, stage), piece, along_side(i), left);
        else if (CLAMPED)
            copy_element_below(place(i, stage), piece, along_side(i), left);
        else if (chunks)
            copy_chunk(place(i, stage), piece);
        else
            copy_element(place(i, stage), piece);
        move_on(i);
    }

    /* Which of a thread's pieces along the side copy i is. */
    static METHOD constexpr int along_side(int i) { return K_FAST ? i / map::PARTS : i % map::PARTS; }

    /* Behind copy i: to the next row, or the next tile's first. */
    METHOD void move_on(int i)
    {
        if (i % map::PARTS == map::PARTS - 1)
            from = step(from, i / map::PARTS == map::ROWS - 1 ? tile : row);
    }

    /* Start what is due in slot l of a tile, of INTERLEAVE slots in each of STEPS: copies start in
     * COPY_GROUPS groups, spread evenly over the slots before the barrier. */
    METHOD void serve(int l, shared_at stage)
    {
        UNROLL for (int i = 0; i < COPIES; ++i) {
            const int group = i * COPY_GROUPS / COPIES;
            if (group * (STEPS - 1) * INTERLEAVE / COPY_GROUPS == l)
                start(i, stage);
        }
    }

    METHOD void copy_tile(shared_at stage)
    {
        UNROLL for (int i = 0; i < COPIES; ++i) start(i, stage);
    }

    /* Copy a tile whose first `absent` steps along k lie before the matrix: zeros.  Of those the
     * size is 0, with which nothing is read, wherever the address points. */
    METHOD void copy_rest(int absent, shared_at stage)
    {
        static_assert(!RESTS_END || HOW != PLANES, "whole pieces are absent");
        UNROLL for (int i = 0; i < COPIES; ++i) {
            const int r = i / map::PARTS, part = i % map::PARTS;
            const int beyond = K_FAST ? part * map::PART_STEPS : r * map::ABREAST;
            const bool there = first_step + beyond >= absent && (!CLAMPED || along_side(i) < left);
            if (HOW == CHUNKS)
                copy_chunk_if(place(i, stage), from + part * map::PART, there);
            else
                copy_element_if(place(i, stage), from + part * map::PART, there);
            move_on(i);
        }
    }
};

/* Copy a tile element by element, zeros for what lies outside the matrix or beyond
 * `depth` of the tile's BLOCK_K.  Consecutive threads lie along the contiguous index. */
template <int SIDE, int PITCH, int K_FAST>
HELPER void copy_checked(operand x, isize k_at, int depth, shared_at to)
{
    const int fast = K_FAST ? BLOCK_K : SIDE;
    for (int e = THREAD_ID; e < SIDE * BLOCK_K; e += THREADS) {
        const int s = K_FAST ? e / fast : e % fast, l = K_FAST ? e % fast : e / fast;
        const int inside = s < x.side_left && l < depth;
        const elem *from = x.first + (K_FAST ? k_at + l + s * x.ld : s + (k_at + l) * x.ld);
        copy_element_if(to + place_in_tile<PITCH, K_FAST>(s, l), inside ? from : x.first, inside);
    }
}

HELPER void copy_checked_tile(operand a, operand b, steps s, isize t, shared_at stage)
{
    const isize k_at = tile_at(s, t);
    const int depth = t == 0 ? s.first_depth : BLOCK_K;
    copy_checked<BLOCK_M, PITCH_A, K_FAST_A>(a, k_at, depth, stage);
    copy_checked<BLOCK_N, PITCH_B, K_FAST_B>(b, k_at, depth, stage + BYTES_A);
}
