/* The functions of stencil/wgmma/ptx.cuh, for a CPU. */
#include "barrier_words.h"

#define CLUSTER

inline shared_at shared_memory() { return 0; }
#if PARALLEL_SPLIT_K
inline sums_of_chunk *second_shared_memory()
{
    return (sums_of_chunk *)emulated::shared_bytes(emulated::rank_now(), 0, 1, "a thread names");
}
#endif
inline unsigned int cluster_rank() { return CLUSTER_BLOCKS > 1 ? emulated::rank_now() : 0; }
inline unsigned int of_whole_warp(unsigned int v) { return v; }
inline void cluster_barrier()
{
    emulated::leave(CLUSTER_BLOCKS > 1 ? emulated::AT_CLUSTER_BARRIER : emulated::AT_BLOCK_BARRIER);
}
inline unsigned int sharing_rank() { return SHARING_BLOCKS > 1 ? cluster_rank() : 0; }
#if CLUSTER_K > 1
inline void consumers_barrier() { emulated::meet(0, CONSUMERS * GROUP); }
inline void put_sums(shared_at to, sums_of_chunk v)
{
    std::memcpy(emulated::shared_bytes(emulated::rank_now(), to, 16, "a thread puts"), &v, 16);
}
inline sums_of_chunk read_sums_of(unsigned int rank, shared_at at)
{
    sums_of_chunk v;
    std::memcpy(&v, emulated::shared_bytes(rank, at, 16, "a thread reads"), 16);
    return v;
}
#endif
inline void give_registers() {}

/* Whoever asks for more than the block started with waits for ever. */
inline void take_registers()
{
    const int started = std::min(65536 / (MIN_BLOCKS * THREADS) / 8 * 8, 255) * (CONSUMERS + 1);
    if (CONSUMERS * CONSUMER_REGISTERS + PRODUCER_REGISTERS > started)
        emulated::fault("consumers ask for more registers than there are");
}

inline void arrive(shared_at at, unsigned int rank)
{
    emulated::arrive(SHARING_BLOCKS > 1 ? rank : emulated::rank_now(), at);
}

inline void expect_map(const tensor_map *) {}
template <bool SHARED_BY_BLOCKS>
inline void copy_box(const tensor_map *map, shared_at to, shared_at full, int x, int y, int z,
                     unsigned short mask)
{
    emulated::box_copy c = {{}, to, full, SHARED_BY_BLOCKS ? mask : 0u, {x, y, z}};
    std::memcpy(&c.from, map, sizeof(c.from));
    emulated::start_box(c);
}

/* A piece is read if some byte of it may be; what lies outside of arrays is noise. */
inline void read_piece(unsigned int *to, unsigned long long from, bool wanted)
{
    if (from % 16)
        emulated::fault("a piece that is not aligned");
    unsigned char bytes[16] = {}, some = !wanted;
    for (int i = 0; wanted && i < 16; ++i) {
        const bool inside = emulated::is_readable((const char *)from + i, 1);
        bytes[i] = inside ? ((const unsigned char *)from)[i] : 0xff;
        some |= inside;
    }
    if (!some)
        emulated::fault("a piece that lies outside every array");
    std::memcpy(to, bytes, 16);
}

inline void put_chunk(shared_at to, const unsigned int *word)
{
    std::memcpy(emulated::shared_bytes(emulated::rank_now(), to, 16, "a chunk is put"), word, 16);
}

inline void copy_word_if(shared_at to, const unsigned int *from, bool inside)
{
    emulated::start({to, from, inside ? 4 : 0, 4});
}
inline void end_group() { emulated::now.current->groups.emplace_back(); }
template <int LATEST> inline void wait_for_groups() { emulated::wait_for_all_but(LATEST); }

#if STAGED
inline line_piece read_line_piece(shared_at from)
{
    line_piece v;
    std::memcpy(&v, emulated::shared_bytes(emulated::rank_now(), from, 16, "a lane reads"), 16);
    return v;
}

#if OUTPUT_BYTES == 4
inline output read_result(shared_at from)
{
    output v;
    std::memcpy(&v, emulated::shared_bytes(emulated::rank_now(), from, 4, "a lane reads"), 4);
    return v;
}
inline void put_result(shared_at to, output v)
{
    std::memcpy(emulated::shared_bytes(emulated::rank_now(), to, 4, "a lane puts"), &v, 4);
}
#endif

inline void warp_barrier() { emulated::leave(emulated::AT_WARP_BARRIER); }
inline void group_barrier() { emulated::meet(THREAD_ID / GROUP, GROUP); }
#endif

inline void publish_chunks() { emulated::leave(emulated::AT_WARP_BARRIER); }

inline unsigned int of_bytes(unsigned int first, unsigned int second, unsigned int digits)
{
    const unsigned long long both = first | (unsigned long long)second << 32;
    unsigned int found = 0;
    for (int b = 0; b < 4; ++b) found |= (both >> 8 * (digits >> 4 * b & 7) & 255) << 8 * b;
    return found;
}

inline void begin_multiplies() { emulated::now.current->fenced = true; }
inline void end_multiplies() { emulated::end_multiplies(); }
template <int LATEST> inline void wait_for_multiplies() { emulated::wait_for_multiplies(LATEST); }
inline void settle(accumulator *, int) {}

inline void start_multiply(accumulator *sum, operand_at rows, operand_at columns, int go_on)
{
    /* ELEMENT counts from 1. */
    emulated::start_multiply({(emulated::kind)(ELEMENT - 1), INSTRUCTION_M, rows, columns, !TRANS_B,
                              TRANS_A, go_on != 0, sum, {}});
}

inline unsigned int read_word(shared_at from)
{
    unsigned int v;
    std::memcpy(&v, emulated::shared_bytes(emulated::rank_now(), from, 4, "a lane reads"), 4);
    return v;
}

/* What lanes have when it starts; columns lie along k. */
inline void start_multiply_words(accumulator *sum, const unsigned int *rows, operand_at columns,
                                 int go_on)
{
    const auto all = emulated::among(32, {rows[0], rows[1], rows[2], rows[3]});
    emulated::start_multiply({(emulated::kind)(ELEMENT - 1), INSTRUCTION_M, 0, columns, true, true,
                              go_on != 0, sum, all});
}

/* Four 8 x 8 matrices, of which eight lanes each have the rows' addresses (PTX ISA, "ldmatrix"). */
template <int TURNED> inline void read_matrices(unsigned int *to, shared_at row)
{
    const auto rows = emulated::among(32, {row});
    const int lane = emulated::now.current->id.x % 32;
    for (int matrix = 0; matrix < 4; ++matrix)
        for (int e = 0; e < 2; ++e) {
            const int i = TURNED ? lane % 4 * 2 + e : lane / 4, j = TURNED ? lane / 4 : lane % 4 * 2 + e;
            std::memcpy((char *)&to[matrix] + 2 * e,
                        emulated::shared_bytes(emulated::rank_now(), rows[matrix * 8 + i][0] + 2 * j, 2,
                                               "a lane reads"), 2);
        }
}

/* PTX ISA, "Matrix fragments for mma.m16n8k16". */
inline void multiply_small(accumulator *sum, const unsigned int *rows, const unsigned int *columns)
{
    const auto all = emulated::among(32, {rows[0], rows[1], rows[2], rows[3], columns[0], columns[1]});
    const int lane = emulated::now.current->id.x % 32;
    for (int h = 0; h < 2; ++h)
        for (int e = 0; e < 2; ++e) {
            double total = sum[2 * h + e];
            for (int k = 0; k < 16; ++k) {
                const int at = k % 8 / 2, half = k % 2 * 2, far = k / 8;
                const unsigned a = all[lane / 4 * 4 + at][h + 2 * far];
                const unsigned b = all[(lane % 4 * 2 + e) * 4 + at][4 + far];
                const auto kind = (emulated::kind)(ELEMENT - 1);
                total += emulated::value_of(kind, (const char *)&a + half) *
                         emulated::value_of(kind, (const char *)&b + half);
            }
            sum[2 * h + e] = (accumulator)total;
        }
}

/* Of 8 x 8 numbers lane l has those from column 2 (l % 4) on of row l / 4; afterwards those from row
 * 2 (l % 4) on of column l / 4. */
inline void turn_pair(float *to, const float *from)
{
    std::vector<unsigned> words(2);
    std::memcpy(words.data(), from, 8);
    const auto all = emulated::among(32, words);
    const int lane = emulated::now.current->id.x % 32, column = lane / 4;
    for (int e = 0; e < 2; ++e)
        std::memcpy(to + e, &all[(lane % 4 * 2 + e) * 4 + column / 2][column % 2], 4);
}

inline float exponential(float x) { return std::exp2(x); }
inline float reciprocal(float x) { return 1 / x; }
inline float power_of_two(int exponent) { return std::ldexp(1.0f, exponent); }

#if OUTPUT == OUTPUT_F16
inline float widened(output bits) { return emulated::half_of_bits(bits); }
inline output rounded(float v) { return emulated::half_bits(v); }
#elif OUTPUT == OUTPUT_BF16
inline float widened(output bits) { return emulated::float_of_bits((unsigned)bits << 16); }
inline output rounded(float v) { return emulated::bfloat16_bits(v); }
#else
inline output rounded(scalar v) { return v; }
inline scalar widened(output v) { return v; }
#endif

#if OUTPUT_BYTES == 2
inline unsigned int rounded_pair(const scalar *v)
{
    return rounded(v[0]) | (unsigned)rounded(v[1]) << 16;
}
#endif

#if OUTPUT_BYTES < 4
inline unsigned int of_quad_lane(unsigned int v, int lane)
{
    return emulated::among(4, {v})[lane & 3][0];
}
#endif

inline void round_chunk(chunk *to, const scalar *v)
{
    for (int e = 0; e < 8 / OUTPUT_BYTES; ++e) to->e[e] = rounded(v[e]);
}

/* Lanes 2 i and 2 i + 1 have pairs 2 i and 2 i + 1 of two groups; afterwards each has both of
 * its group. */
inline void exchange_floats(float *v)
{
    const int lane = emulated::now.current->id.x % 4;
    std::vector<unsigned> words(4);
    std::memcpy(words.data(), v, 16);
    const auto all = emulated::among(4, words);
    for (int e = 0; e < 4; ++e)
        std::memcpy(v + e, &all[lane / 2 * 2 + e / 2][lane % 2 * 2 + e % 2], 4);
}

inline void exchange_pairs(scalar *v)
{
#if OUTPUT_BYTES == 2
    exchange_floats(v);
#endif
}

#if STAGED
inline void put_pair(shared_at to, const scalar *v)
{
    const output pair[2] = {rounded(v[0]), rounded(v[1])};
    std::memcpy(emulated::shared_bytes(emulated::rank_now(), to, sizeof pair, "a pair is put"), pair,
                sizeof pair);
}
#endif
