/* Results on their way to C through shared memory, where a block has room for it.  A part of
 * store.cuh.
 *
 * A thread has pairs of every 8 rows: stored from registers, 32 bytes of eight columns each leave a
 * warp at once.  Through shared memory whole lines leave it, in a quarter of the accesses.  A warp
 * passes LINE_BYTES of 16 columns at a time, its own:
 *
 *     shared memory    | column 0: 8 pieces of 16 bytes | column 1 | ... | column 15 |   a warp
 *
 *     written   lane 4 c + t: pair t of 8 rows of column c, then c + 8
 *     read      lane 8 q + p: piece p of column q, then q + 4, ...
 *
 * Pieces of a column change places, so that lanes that write at once use all banks: 16 lanes write
 * pairs of 4-byte results to two pieces of four columns, 32 those of 2-byte results to one of eight.
 * Piece p of column c lies at p ^ x:
 *
 *     c    0   1   2   3   4   5   6   7
 *     x    0   2   4   6   1   3   5   7
 */

#define LINE_BYTES 128
#define PIECE_BYTES 16
#define LINE_COLUMNS 16

/* Where all warps' lines lie, behind the barriers. */
#define BARRIERS_END (BARRIERS_AT + (2 * STAGES + CONSUMERS) * 8)
#define STAGED_AT ((BARRIERS_END + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES)

/* All lanes read pieces in every round. */
static_assert(BLOCK_M * OUTPUT_BYTES % (2 * PIECE_BYTES) == 0, "lines are whole pairs of pieces");

HELPER shared_at piece_at(shared_at lines, int column, int piece)
{
    const int exchanged = piece ^ (column * 2 & 7 | column >> 2 & 1);
    return lines + column * LINE_BYTES + exchanged * PIECE_BYTES;
}

/* Put a lane's pairs of `rows` rows of two columns. */
HELPER void put_lines(shared_at lines, result to, const scalar *sum, int part, int row, int rows)
{
    const int lane = THREAD_ID % 32;
    UNROLL for (int h = 0; h < 2; ++h)
        UNROLL for (int eight = 0; eight < rows; eight += 8) {
            const scalar *const from = pair_of(sum, 2 * part + h, row + eight);
            const scalar v[2] = {to.alpha * from[0], to.alpha * from[1]};
            const int byte = (eight + lane % 4 * 2) * OUTPUT_BYTES;
            put_pair(piece_at(lines, lane / 4 + 8 * h, byte / PIECE_BYTES) + byte % PIECE_BYTES, v);
        }
}

/* Write a tile that is inside C, whose columns are aligned to 16 bytes, and which is not read. */
HELPER void store_staged(result to, tile at, const scalar *sum)
{
    const int lane = THREAD_ID % 32;
    const shared_at lines =
        shared_memory() + STAGED_AT + THREAD_ID / 32 * (LINE_COLUMNS * LINE_BYTES);
    UNROLL for (int part = 0; part < ROWS; ++part)
        UNROLL for (int row = 0; row < BLOCK_M; row += LINE_BYTES / OUTPUT_BYTES) {
            const int left = BLOCK_M - row, most = LINE_BYTES / OUTPUT_BYTES;
            const int rows = left < most ? left : most, pieces = rows * OUTPUT_BYTES / PIECE_BYTES;
            put_lines(lines, to, sum, part, row, rows);
            warp_barrier();
            output *const c = to.c + at.i0 + row + (at.j0 + column_of(2 * part) - lane / 4) * to.ld;
            UNROLL for (int first = 0; first < LINE_COLUMNS * pieces; first += 32) {
                const int column = (first + lane) / pieces, piece = (first + lane) % pieces;
                output *const into = c + piece * (PIECE_BYTES / OUTPUT_BYTES) + column * to.ld;
                *(line_piece *)into = read_line_piece(piece_at(lines, column, piece));
            }
            warp_barrier();
        }
}
