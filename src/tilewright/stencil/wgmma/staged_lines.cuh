/* Columns of C through shared memory: 64 rows of 8 at a time, or of 16 of 2-byte results, by each warp
 * its own.  A part of staged.cuh.
 *
 *     shared memory    | column 0: pieces of 16 bytes | column 1 | ...    a warp
 *
 *     written   lane 4 c + t: pair t of 8 rows of column c, then c + 8
 *     read      lanes side by side: pieces of a column, then the next; or its elements
 *
 * Pieces of a column change places, so that lanes that write at once use all banks: 16 lanes write
 * pairs of 4-byte results to two pieces of four columns, 32 those of 2-byte results to one of eight.
 * Piece p of column c lies at p ^ x:
 *
 *     c    0   1   2   3   4   5   6   7
 *     x    0   2   4   6   1   3   5   7
 */
#define LINE_ROWS 64
#define LINE_BYTES (LINE_ROWS * OUTPUT_BYTES)
#define LINE_COLUMNS (LINES_OF_WARP / LINE_BYTES)

/* All lanes write pieces in every round. */
static_assert(BLOCK_M % 16 == 0, "a warp's lines are whole rounds of pieces");

HELPER shared_at piece_at(shared_at lines, int column, int piece)
{
    const int exchanged = piece ^ (column * 2 & 7 | column >> 2 & 1);
    return lines + column * LINE_BYTES + exchanged * PIECE_BYTES;
}

/* Put a lane's pairs of `rows` rows from `row` on, of a line and what others go with it. */
HELPER void put_lines(shared_at lines, result to, tile at, const scalar *sum, int line, int row,
                      int rows)
{
    const int lane = THREAD_ID % 32;
    const isize i = at.i0 + row + lane % 4 * 2, j = at.j0 + column_of(line);
    UNROLL for (int h = 0; h < LINE_COLUMNS / 8; ++h) {
        const int exponent_b = SCALED && j + 8 * h < to.n ? to.exponents_b[j + 8 * h] : 0;
        UNROLL for (int eight = 0; eight < rows; eight += 8) {
            const scalar *const from = pair_of(sum, line + h, row + eight);
            scalar v[2];
            UNROLL for (int e = 0; e < 2; ++e) {
                const isize at_a = i + eight + e;
                const int exponent_a = SCALED && at_a < to.m ? to.exponents_a[at_a] : 0;
                v[e] = to.alpha * scaled_by_power(from[e], exponent_a + exponent_b);
            }
            const int byte = (eight + lane % 4 * 2) * OUTPUT_BYTES;
            put_pair(piece_at(lines, lane / 4 + 8 * h, byte / PIECE_BYTES) + byte % PIECE_BYTES, v);
        }
    }
}

/* Write pieces of columns that are inside C, which is not read, and aligned to them. */
HELPER void write_pieces(result to, output *c, shared_at lines, int rows)
{
    const int lane = THREAD_ID % 32, pieces = rows * OUTPUT_BYTES / PIECE_BYTES;
    UNROLL for (int first = 0; first < LINE_COLUMNS * pieces; first += 32) {
        const int column = (first + lane) / pieces, piece = (first + lane) % pieces;
        *(line_piece *)(c + piece * (PIECE_BYTES / OUTPUT_BYTES) + column * to.ld) =
            read_line_piece(piece_at(lines, column, piece));
    }
}

#if OUTPUT_BYTES == 4
/* Write what of `rows` rows from i on and `columns` columns from j on lies inside C, wherever these
 * begin, and in the triangle that is written. */
HELPER void write_columns(result to, isize i, isize j, shared_at lines, int rows, int columns)
{
    output *const c = to.c + i + j * to.ld;
    UNROLL for (int column = 0; column < LINE_COLUMNS; ++column)
        UNROLL for (int half = 0; half < LINE_ROWS; half += 32) {
            const int row = half + THREAD_ID % 32;
            if (row < rows && column < columns && in_triangle(to.lower, i + row, j + column))
                write_result(to, c + row + column * to.ld,
                             piece_at(lines, column, row / 4) + row % 4 * OUTPUT_BYTES);
        }
}
#endif

/* Write a tile.  PLAIN: it is inside C, which is not read, and whose columns are aligned to 16 bytes. */
template <bool PLAIN> HELPER void store_lines(result to, tile at, const scalar *sum)
{
    const int lane = THREAD_ID % 32;
    const shared_at lines = shared_memory() + STAGED_AT + THREAD_ID / 32 * LINES_OF_WARP;
    UNROLL for (int line = 0; line < LINES; line += LINE_COLUMNS / 8)
        UNROLL for (int row = 0; row < BLOCK_M; row += LINE_ROWS) {
            const int rows = least(BLOCK_M - row, LINE_ROWS);
            put_lines(lines, to, at, sum, line, row, rows);
            warp_barrier();
            const isize i = at.i0 + row, j = at.j0 + column_of(line) - lane / 4;
#if OUTPUT_BYTES == 4
            if (!PLAIN)
                write_columns(to, i, j, lines, least(to.m - i, rows), least(to.n - j, LINE_COLUMNS));
            else
#endif
                write_pieces(to, to.c + i + j * to.ld, lines, rows);
            warp_barrier();
        }
}

#if OUTPUT_BYTES == 4
HELPER void store_staged(result to, tile at, const scalar *sum)
{
    if (columns_begin_at(to, 16) && is_only_written(to, at))
        store_lines<true>(to, at, sum);
    else
        store_lines<false>(to, at, sum);
}
#endif
