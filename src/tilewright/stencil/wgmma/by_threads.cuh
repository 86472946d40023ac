/* Operands brought by the producer's threads, wherever their columns begin: what the copy engine does
 * not take.  A part of kernel.cuh, of 16-bit elements.
 *
 * A tile is lines of 128 bytes that are side by side in memory, and lies in shared memory as the copy
 * engine would leave it:
 *
 *     memory along k:              a line for each row of m (or n), BLOCK_K elements of k
 *     memory along m (or n):       a line of m for each step of k; square after square
 *
 * Eight threads bring a line, a chunk of 16 bytes each, and all of them 16 lines at a time.  A chunk
 * that begins anywhere lies in two aligned pieces of memory:
 *
 *     memory    | - - - x x x x x | x x x - - - - - |      8 elements, `shift` bytes behind
 *
 * 16 lines are a multiple of 32 bytes of memory, so that all chunks of a thread have one shift.  Of a
 * piece of which no element is wanted nothing is read; others lie on a page that the matrix has, too.
 */

/* Lines that all threads bring at a time, and elements of a chunk. */
#define LINES_AT_ONCE (GROUP / 8)
#define CHUNK_OF_LINE 8

/* Chunks of a thread, of a tile with a side of m or n. */
#define CHUNKS_OF(SIDE) ((SIDE) * BLOCK_K / LINE_ELEMENTS / LINES_AT_ONCE)

typedef unsigned short operand_bits;

struct operand {
    const operand_bits *first;
    isize ld, side, k;
};

/* More than any tile has. */
#define MANY 4096

/* Two aligned pieces. */
struct pieces {
    unsigned int word[8];
};

/* A thread's chunks of a tile: where the first one is, and how many elements of each are inside. */
struct chunks {
    const operand_bits *at;
    isize apart;   /* elements between 16 lines */
    int outer;     /* lines inside, from the first one on; of many so many */
    int inner;     /* elements inside a line of the first square likewise */
};

template <int K_FAST>
HELPER chunks chunks_of(const operand *x, matrix_place matrix, isize side_at, isize k_at)
{
    const int line = THREAD_ID % GROUP / 8, place = THREAD_ID % 8 * CHUNK_OF_LINE;
    const isize outer = (K_FAST ? side_at : k_at) + line, inner = (K_FAST ? k_at : side_at) + place;
    const isize lines = (K_FAST ? x->side : x->k) - outer;
    const isize elements = (K_FAST ? x->k : x->side) - inner;
    return {x->first + matrix + outer * x->ld + inner, LINES_AT_ONCE * x->ld,
            lines < MANY ? (int)lines : MANY, elements < MANY ? (int)elements : MANY};
}

/* Elements of chunk i that are inside: of 8, or none, or more. */
template <int K_FAST> HELPER int left_of(chunks of, int i)
{
    const int down = i * LINES_AT_ONCE, square = K_FAST ? 0 : down / BLOCK_K;
    return (K_FAST ? down : down % BLOCK_K) < of.outer ? of.inner - square * LINE_ELEMENTS : 0;
}

HELPER int shift_of(chunks of) { return (int)(ADDRESS(of.at) % 16); }

/* Start reading a tile. */
template <int SIDE, int K_FAST> HELPER void read_tile(pieces *to, chunks of)
{
    const int shift = shift_of(of);
    UNROLL for (int i = 0; i < CHUNKS_OF(SIDE); ++i) {
        const int square = K_FAST ? 0 : i * LINES_AT_ONCE / BLOCK_K;
        const int down = K_FAST ? i : i % (BLOCK_K / LINES_AT_ONCE);
        const operand_bits *const at = of.at + square * LINE_ELEMENTS + down * of.apart;
        const unsigned long long piece = ADDRESS(at) - shift;
        const int left = left_of<K_FAST>(of, i);
        read_piece(to[i].word, piece, left > 0);
        read_piece(to[i].word + 4, piece + 16, shift && 2 * left > 16 - shift);
    }
}

/* Put what was read where the tensor cores look for it; zeros for what is outside. */
template <int SIDE, int K_FAST> HELPER void put_tile(shared_at tile, const pieces *from, chunks of)
{
    const int line = THREAD_ID % GROUP / 8, place = THREAD_ID % 8, shift = shift_of(of);
    const unsigned int halves = shift & 2 ? HALVES_OF_BOTH : FIRST_WORD;
    const shared_at to = tile + line * 128 + (place ^ line % 8) * 16;
    UNROLL for (int i = 0; i < CHUNKS_OF(SIDE); ++i) {
        const unsigned int *const word = from[i].word;
        unsigned int two[6], one[5], made[4];
        UNROLL for (int w = 0; w < 6; ++w) two[w] = shift & 8 ? word[w + 2] : word[w];
        UNROLL for (int w = 0; w < 5; ++w) one[w] = shift & 4 ? two[w + 1] : two[w];
        UNROLL for (int w = 0; w < 4; ++w) made[w] = of_bytes(one[w], one[w + 1], halves);
        const int left = left_of<K_FAST>(of, i);
        if (left < CHUNK_OF_LINE)
            UNROLL for (int w = 0; w < 4; ++w)
                made[w] = left > 2 * w + 1 ? made[w] : left > 2 * w ? made[w] & 0xffff : 0;
        put_chunk(to + i * LINES_AT_ONCE * 128, made);
    }
}

/* Bring all tiles of operands that a block's tile of C needs for some steps of k, as stages become
 * free.  Memory is read before they are. */
HELPER void bring_tile(const operand *a, const operand *b, matrix_place matrix_a,
                       matrix_place matrix_b, shared_at arena, ring *at, tile c,
                       unsigned int first, unsigned int steps, int)
{
    pieces of_a[CHUNKS_OF(BLOCK_M)], of_b[CHUNKS_OF(BLOCK_N)];
    ROLLED for (unsigned int t = 0; t < steps; ++t) {
        const isize k_at = (isize)(first + t) * BLOCK_K;
        const chunks mine_a = chunks_of<K_FAST_A>(a, matrix_a, c.i0, k_at);
        const chunks mine_b = chunks_of<K_FAST_B>(b, matrix_b, c.j0, k_at);
        read_tile<BLOCK_M, K_FAST_A>(of_a, mine_a);
        read_tile<BLOCK_N, K_FAST_B>(of_b, mine_b);
        const shared_at stage = stage_at(arena, at->stage);
        wait_for(empty_of(arena, at->stage), at->round ^ 1);
        put_tile<BLOCK_M, K_FAST_A>(stage, of_a, mine_a);
        put_tile<BLOCK_N, K_FAST_B>(stage + PART_BYTES_A, of_b, mine_b);
        publish_chunks();
        if (THREAD_ID % 32 == 0)
            arrive(full_of(arena, at->stage), 0);
        advance(at);
    }
}
