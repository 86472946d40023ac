/* The functions of simt_async/ptx.cuh and mma_f64/ptx.cuh, for a CPU. */
#include "flag_words.h"

#define CLUSTER

inline shared_at shared_memory() { return 0; }
inline void keep(isize *) {}
inline const char *step(const char *from, isize bytes) { return from + bytes; }

inline void copy_chunk(shared_at to, const void *from) { emulated::start({to, from, 16, 16}); }

inline void copy_element(shared_at to, const void *from)
{
    emulated::start({to, from, ELEM_BYTES, ELEM_BYTES});
}

inline void copy_element_if(shared_at to, const void *from, int inside)
{
    emulated::start({to, from, inside ? ELEM_BYTES : 0, ELEM_BYTES});
}

inline void copy_chunk_if(shared_at to, const void *from, int inside)
{
    emulated::start({to, from, inside ? 16 : 0, 16});
}

inline void copy_element_below(shared_at to, const void *from, int number, int limit)
{
    if (number < limit)
        copy_element(to, from);
}

inline void copy_chunk_below(shared_at to, const void *from, int number, int limit)
{
    if (number < limit)
        copy_chunk(to, from);
}

inline chunk load_chunk(const void *from)
{
    chunk v;
    emulated::check_readable(from, 16, 16);
    if (emulated::now.fault.empty())
        std::memcpy(&v, from, 16);
    return v;
}

inline void store_global(void *to, chunk v)
{
    if (emulated::check_readable(to, 16, 16))
        std::memcpy(to, &v, 16);
}

inline elem read_element(shared_at at)
{
    elem v;
    std::memcpy(&v, emulated::shared_bytes(emulated::now.current->rank, at, ELEM_BYTES,
                                           "a thread reads"),
                ELEM_BYTES);
    return v;
}

inline void warp_barrier() { emulated::leave(emulated::AT_WARP_BARRIER); }

inline void end_group() { emulated::now.current->groups.emplace_back(); }

template <int LATEST> void wait_for_groups() { emulated::wait_for_all_but(LATEST); }

inline unsigned cluster_rank() { return emulated::now.current->rank; }

inline void cluster_barrier() { emulated::leave(emulated::AT_CLUSTER_BARRIER); }

inline chunk read_chunk_of(unsigned rank, shared_at at)
{
    chunk v;
    std::memcpy(&v, emulated::shared_bytes(rank, at, 16, "a thread reads"), 16);
    return v;
}

inline chunk read_chunk(shared_at at) { return read_chunk_of(cluster_rank(), at); }

inline void write_chunk(shared_at at, chunk v)
{
    std::memcpy(emulated::shared_bytes(cluster_rank(), at, 16, "a thread writes"), &v, 16);
}

inline int thread_id() { return emulated::now.current->id.x; }

inline void write_part(void *at, REAL v) { emulated::write_for_others(at, &v, sizeof v); }

inline REAL read_part(const void *at)
{
    REAL v{};
    if (emulated::check_readable(at, sizeof v, sizeof v))
        std::memcpy(&v, at, sizeof v);
    return v;
}

#if TMA
#include "barrier_words.h"

inline int warp_number() { return emulated::now.current->id.x / 32; }
inline bool is_elected() { return emulated::now.current->id.x % 32 == 0; }
inline void arrive(shared_at at) { emulated::arrive(emulated::rank_now(), at); }
inline void leave_to_engine() {} /* here threads and boxes see one memory */

inline void copy_lines(const tensor_map *map, shared_at to, shared_at full, int x, int y, int z)
{
    emulated::box_copy c = {{}, to, full, 0, {x, y, z}};
    std::memcpy(&c.from, map, sizeof(c.from));
    emulated::start_box(c);
}

inline void copy_box(const tensor_map *map, shared_at to, shared_at full, int x, int y)
{
    copy_lines(map, to, full, x, y, 0);
}
#endif

#ifdef MMA_M
inline REAL read_real(shared_at at)
{
    REAL v;
    std::memcpy(&v, emulated::shared_bytes(cluster_rank(), at, REAL_BYTES, "a thread reads"),
                REAL_BYTES);
    return v;
}

inline void mma(REAL *const *c, const REAL *a, const REAL *b)
{
    emulated::warp_product({MMA_M, MMA_K, c, a, b});
}

inline REAL negative(REAL x) { return -x; }
#endif
