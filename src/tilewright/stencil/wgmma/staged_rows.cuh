/* Rows of A through shared memory, where they are side by side as in C.  A part of staged.cuh.
 *
 * A group of four warps has 64 of them, and passes 32 columns at a time:
 *
 *     shared memory    | column 0: 16 pieces of 16 bytes | column 1 | ... | column 31 |   a group
 *
 *     written   lane 4 r + q of warp w: rows 16 w + r and 8 more of columns 2 q and 2 q + 1
 *     read      a warp: a column, or two of them by pieces
 *
 * Piece p of column c lies at p ^ (c / 2 % 4 * 2): lanes that write at once use all banks.
 */
#define GROUP_ROWS 64
#define GROUP_COLUMNS (GROUP / 32 * LINES_OF_WARP / (GROUP_ROWS * OUTPUT_BYTES))

HELPER shared_at piece_of_rows(shared_at lines, int column, int piece)
{
    const int exchanged = piece ^ column / 2 % 4 * 2;
    return lines + column * (GROUP_ROWS * OUTPUT_BYTES) + exchanged * PIECE_BYTES;
}

/* Put a lane's results of some columns from `column` on. */
HELPER void put_rows(shared_at lines, result to, const scalar *sum, int part, int column, int columns)
{
    const int lane = THREAD_ID % 32, first = THREAD_ID / 32 % 4 * 16 + lane / 4;
    UNROLL for (int h = 0; h < 2; ++h)
        UNROLL for (int eight = 0; eight < columns; eight += 8)
            UNROLL for (int e = 0; e < 2; ++e) {
                const scalar *const from = pair_of(sum, 2 * part + h, column + eight);
                const int row = first + 8 * h, there = eight + lane % 4 * 2 + e;
                put_result(piece_of_rows(lines, there, row / 4) + row % 4 * OUTPUT_BYTES,
                           to.alpha * from[e]);
            }
}

/* Write what of a warp's columns lies inside C: `rows` of each, wherever it begins. */
HELPER void write_rows(result to, output *c, shared_at lines, int rows, int columns)
{
    const int lane = THREAD_ID % 32;
    UNROLL for (int at = 0; at < GROUP_COLUMNS; at += 4)
        UNROLL for (int half = 0; half < GROUP_ROWS; half += 32) {
            const int column = at + THREAD_ID / 32 % 4, row = half + lane;
            if (column < columns && row < rows)
                write_result(to, c + row + column * to.ld,
                             piece_of_rows(lines, column, row / 4) + row % 4 * OUTPUT_BYTES);
        }
}

/* The same of rows that are all inside a C that is not read, and aligned to pieces. */
HELPER void write_pieces_of_rows(result to, output *c, shared_at lines, int columns)
{
    const int lane = THREAD_ID % 32, piece = lane % 16;
    UNROLL for (int at = 0; at < GROUP_COLUMNS; at += 8) {
        const int column = at + THREAD_ID / 32 % 4 * 2 + lane / 16;
        if (column < columns)
            *(line_piece *)(c + piece * (PIECE_BYTES / OUTPUT_BYTES) + column * to.ld) =
                read_line_piece(piece_of_rows(lines, column, piece));
    }
}

/* Write a tile. */
HELPER void store_staged(result to, tile at, const scalar *sum)
{
    const int group = THREAD_ID / GROUP;
    const shared_at lines = shared_memory() + STAGED_AT + group * (GROUP / 32 * LINES_OF_WARP);
    const bool by_pieces = columns_begin_at(to, 16) && to.beta == 0;
    UNROLL for (int part = 0; part < ROWS; ++part) {
        const isize i = at.i0 + (PINGPONG ? 0 : group * (ROWS * 64)) + part * 64;
        const bool whole = by_pieces && i + GROUP_ROWS <= to.m;
        UNROLL for (int column = 0; column < BLOCK_N; column += GROUP_COLUMNS) {
            const int columns = least(BLOCK_N - column, GROUP_COLUMNS);
            const isize j = at.j0 + column;
            const int inside = least(to.n - j, columns);
            output *const c = to.c + i + j * to.ld;
            put_rows(lines, to, sum, part, column, columns);
            group_barrier();
            if (whole)
                write_pieces_of_rows(to, c, lines, inside);
            else
                write_rows(to, c, lines, least(to.m - i, GROUP_ROWS), inside);
            group_barrier();
        }
    }
}
