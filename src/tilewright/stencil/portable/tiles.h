/* Tiles on their way: device memory to registers, registers to shared memory.  A part of
 * kernel.cl, which explains what they are.
 */

HELPER int least(isize left, int most) { return left < most ? (int)left : most; }

/* Where (side s, k l) lies, counted from the tile's first element. */
HELPER isize place(int s, int l, isize ld, int k_fast)
{
    return k_fast ? l + s * ld : s + l * ld;
}

HELPER elem read_element(const GLOBAL elem *at, int conj)
{
    return conj ? elem_conj(*at) : *at;
}

/* Read READ_VECTOR elements that lie side by side in memory; the first is (s, l) of the tile. */
HELPER void read_side_by_side(PRIVATE elem *held, const GLOBAL elem *at, int s, int l,
                              int side_left, int k_left, int k_fast, int conj, int mode)
{
    if (mode == WIDE) {
        const read_vector v = *(const GLOBAL read_vector *)at;
        UNROLL for (int r = 0; r < READ_VECTOR; ++r)
            held[r] = conj ? elem_conj(v.e[r]) : v.e[r];
    } else {
        UNROLL for (int r = 0; r < READ_VECTOR; ++r) {
            held[r] = elem_zero();
            if (s + (k_fast ? 0 : r) < side_left && l + (k_fast ? r : 0) < k_left)
                held[r] = read_element(at + r, conj);
        }
    }
}

/* This thread's first element of a tile, and its steps to the next ones.
 * Consecutive threads, and each vector, lie along the contiguous index. */
typedef struct {
    int s, l, step_s, step_l;
} share;

HELPER share share_of(int k_fast, int threads_side)
{
    const int threads_k = THREADS / threads_side;
    const int id = THREAD_ID;
    share mine;
    mine.step_s = threads_side * (k_fast ? 1 : READ_VECTOR);
    mine.step_l = threads_k * (k_fast ? READ_VECTOR : 1);
    mine.s = (k_fast ? id / threads_k : id % threads_side) * (mine.step_s / threads_side);
    mine.l = (k_fast ? id % threads_k : id / threads_side) * (mine.step_l / threads_k);
    return mine;
}

HELPER void fetch_as(PRIVATE elem *held, operand x, int k_left, int k_fast, int conj,
                     int block_side, int threads_side, int mode)
{
    const share mine = share_of(k_fast, threads_side);
    const int count_s = block_side / mine.step_s;
    UNROLL for (int l = 0; l < BLOCK_K / mine.step_l; ++l)
        UNROLL for (int s = 0; s < count_s; ++s)
            read_side_by_side(held + (l * count_s + s) * READ_VECTOR,
                              x.at + place(s * mine.step_s, l * mine.step_l, x.ld, k_fast),
                              mine.s + s * mine.step_s, mine.l + l * mine.step_l, x.side_left,
                              k_left, k_fast, conj, mode);
}

/* Read this thread's share of a tile from device memory into registers.  All
 * threads of a block take the same way through the condition. */
HELPER void fetch(PRIVATE elem *held, operand x, isize k_left, int k_fast, int conj,
                  int block_side, int threads_side)
{
    if (k_left < BLOCK_K || x.mode == CHECKED)
        fetch_as(held, x, least(k_left, BLOCK_K), k_fast, conj, block_side, threads_side, CHECKED);
    else
        fetch_as(held, x, BLOCK_K, k_fast, conj, block_side, threads_side, WIDE);
}

/* Write this thread's share from registers into shared memory, its first element at `to`.
 * A vector can go in at once if it lies along the tile's rows and the pitch keeps rows
 * aligned. */
HELPER void put(SHARED elem *to, const PRIVATE elem *held, int pitch, int k_fast,
                int block_side, int threads_side)
{
    const share mine = share_of(k_fast, threads_side);
    const int count_s = block_side / mine.step_s;
    UNROLL for (int l = 0; l < BLOCK_K / mine.step_l; ++l)
        UNROLL for (int s = 0; s < count_s; ++s) {
            const PRIVATE elem *from = held + (l * count_s + s) * READ_VECTOR;
            SHARED elem *here = to + l * mine.step_l * pitch + s * mine.step_s;
            if (!k_fast && pitch % READ_VECTOR == 0) {
                read_vector v;
                UNROLL for (int r = 0; r < READ_VECTOR; ++r) v.e[r] = from[r];
                *(SHARED read_vector *)here = v;
            } else {
                UNROLL for (int r = 0; r < READ_VECTOR; ++r)
                    here[k_fast ? r * pitch : r] = from[r];
            }
        }
}
