/* The functions of the tensor ladder's hopper.h, for a CPU. */
#include "hopper_words.h"

#define GRID_CONSTANT
#define CLUSTER_OF(blocks)

inline shared_at shared_memory() { return 0; }
inline unsigned int cluster_rank() { return emulated::rank_now(); }
inline void cluster_barrier() { emulated::leave(emulated::AT_CLUSTER_BARRIER); }
template <int COUNT> inline void shrink_to() {}
template <int COUNT> inline void grow_to() {}

inline void begin_barrier(shared_at at, int arrivals) { emulated::begin_barrier(at, arrivals); }
inline void publish_barriers() {}
inline void expect_bytes(shared_at at, int bytes)
{
    emulated::arrive(emulated::rank_now(), at, bytes);
}
inline void arrive(shared_at at) { emulated::arrive(emulated::rank_now(), at); }
inline void arrive_at(shared_at at, unsigned int rank) { emulated::arrive(rank, at); }
inline void wait_for(shared_at at, unsigned int parity) { emulated::wait_for_parity(at, parity); }

inline void copy_box_to_all(const tensor_map *map, shared_at to, shared_at full, int row,
                            int column, unsigned short mask)
{
    emulated::box_copy c = {{}, to, full, mask, {column, row, 0}};
    std::memcpy(&c.from, map, sizeof(c.from));
    emulated::start_box(c);
}
inline void copy_box(const tensor_map *map, shared_at to, shared_at full, int row, int column)
{
    copy_box_to_all(map, to, full, row, column, 0);
}

inline void begin_multiplies() { emulated::now.current->fenced = true; }
inline void end_multiplies() { emulated::end_multiplies(); }
template <int LATEST> inline void wait_for_multiplies() { emulated::wait_for_multiplies(LATEST); }
inline void start_multiply(float *sum, operand_at a, operand_at b)
{
    emulated::start_multiply({emulated::BF16, 256, a, b, true, true, true, sum, {}});
}
inline void settle(float *) {}
