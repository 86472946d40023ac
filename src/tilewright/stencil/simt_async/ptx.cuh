/* What C++ has no words for, one instruction of PTX a function.  A part of kernel.cuh.
 *
 * Whoever runs this source elsewhere defines EMULATED as a file that has these functions.
 */

/* An address in shared memory, in bytes: 32 bits where a pointer has 64. */
typedef unsigned int shared_at;

/* 16 bytes as the reals in them, or as the two words of one. */
struct ALIGNED(16) chunk {
#if REAL_BYTES == 16
    double r[2];
#else
    REAL r[16 / REAL_BYTES];
#endif
};

#if TMA
#include "asynchronous/tensor_map.cuh"
#endif

#ifdef EMULATED
#include EMULATED
#else

#if CLUSTER_K > 1
#define CLUSTER __attribute__((cluster_dims(CLUSTER_K, 1, 1)))
#else
#define CLUSTER
#endif

/* Where the shared memory that the launch asks for begins: at a line of it, whose units mma_f64
 * swizzles, and in which boxes begin; or where what multiplies wants stages to begin. */
HELPER shared_at shared_memory(void)
{
    DYNAMIC_SHARED_ARRAY ALIGNED(STAGE_ALIGNED) unsigned char arena[];
    unsigned long long at;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(at) : "l"(arena));
    return (shared_at)at;
}

/* Keep a number in registers: the compiler forgets how to compute it anew. */
HELPER void keep(isize *x) { asm volatile("" : "+l"(*x)); }

/* This thread's number in its block, read just here. */
HELPER int thread_id(void)
{
    int id;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(id));
    return id;
}

/* from + bytes, added just here. */
HELPER const char *step(const char *from, isize bytes)
{
    asm volatile("add.s64 %0, %0, %1;" : "+l"(from) : "l"(bytes));
    return from;
}

/* Start copying 16 bytes, past the first-level cache. */
HELPER void copy_chunk(shared_at to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from));
}

HELPER void copy_element(shared_at to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(ELEM_BYTES));
}

/* The same two where a number is below a limit. */
HELPER void copy_chunk_below(shared_at to, const void *from, int number, int limit)
{
    asm volatile("{\n\t.reg .pred below;\n\tsetp.lt.s32 below, %2, %3;\n\t"
                 "@below cp.async.cg.shared.global [%0], [%1], 16;\n\t}" ::"r"(to),
                 "l"(from), "r"(number), "r"(limit));
}
HELPER void copy_element_below(shared_at to, const void *from, int number, int limit)
{
    asm volatile("{\n\t.reg .pred below;\n\tsetp.lt.s32 below, %2, %3;\n\t"
                 "@below cp.async.ca.shared.global [%0], [%1], %4;\n\t}" ::"r"(to),
                 "l"(from), "r"(number), "r"(limit), "n"(ELEM_BYTES));
}

/* Start copying an element, or writing zero in its place without reading anything. */
HELPER void copy_element_if(shared_at to, const void *from, int inside)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from),
                 "n"(ELEM_BYTES), "r"(inside ? ELEM_BYTES : 0));
}

/* 16 bytes, or as many zeros. */
HELPER void copy_chunk_if(shared_at to, const void *from, int inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(inside ? 16 : 0));
}

/* Read 16 bytes of device memory, here and now: not moved towards their use. */
HELPER chunk load_chunk(const void *from)
{
    chunk v;
#if REAL_BYTES == 4
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.r[0]), "=f"(v.r[1]), "=f"(v.r[2]), "=f"(v.r[3])
                 : "l"(from));
#else
    asm volatile("ld.global.v2.f64 {%0, %1}, [%2];" : "=d"(v.r[0]), "=d"(v.r[1]) : "l"(from));
#endif
    return v;
}

/* Write 16 bytes to device memory at once: a compiler parts some such copies into words. */
HELPER void store_global(void *to, chunk v)
{
#if REAL_BYTES == 4
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(to), "f"(v.r[0]), "f"(v.r[1]), "f"(v.r[2]), "f"(v.r[3])
                 : "memory");
#else
    asm volatile("st.global.v2.f64 [%0], {%1, %2};" : : "l"(to), "d"(v.r[0]), "d"(v.r[1]) : "memory");
#endif
}

/* Volatile as read_chunk is. */
HELPER elem read_element(shared_at at)
{
    elem v;
#if ELEM_BYTES == 4
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at));
#elif ELEM_BYTES == 8 && REAL_BYTES == 8
    asm volatile("ld.shared.f64 %0, [%1];" : "=d"(v) : "r"(at));
#elif ELEM_BYTES == 8
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at));
#else
    asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];" : "=d"(v.x), "=d"(v.y) : "r"(at));
#endif
    return v;
}

/* All lanes of the warp are here, and each sees what the others wrote. */
HELPER void warp_barrier(void) { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

/* All copies that this thread has started since the last call are one group. */
HELPER void end_group(void) { asm volatile("cp.async.commit_group;"); }

/* Wait for all of this thread's groups but the latest LATEST. */
template <int LATEST> HELPER void wait_for_groups(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LATEST) : "memory");
}

/* Volatile, so that reads stay where the source has them: ptxas does not move them far
 * from their use, nor all to one place. */
HELPER chunk read_chunk(shared_at at)
{
    chunk v;
#if REAL_BYTES == 4
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.r[0]), "=f"(v.r[1]), "=f"(v.r[2]), "=f"(v.r[3])
                 : "r"(at));
#else
    asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];" : "=d"(v.r[0]), "=d"(v.r[1]) : "r"(at));
#endif
    return v;
}

HELPER void write_chunk(shared_at at, chunk v)
{
#if REAL_BYTES == 4
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(at), "f"(v.r[0]), "f"(v.r[1]),
                 "f"(v.r[2]), "f"(v.r[3])
                 : "memory");
#else
    asm volatile("st.shared.v2.f64 [%0], {%1, %2};" ::"r"(at), "d"(v.r[0]), "d"(v.r[1])
                 : "memory");
#endif
}

#if CLUSTER_K > 1
/* This block's number in its cluster. */
HELPER unsigned int cluster_rank(void)
{
    unsigned int rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* Every thread of the cluster is here, and sees what the others wrote. */
HELPER void cluster_barrier(void)
{
    asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}

/* Read from the shared memory of another block of the cluster. */
HELPER chunk read_chunk_of(unsigned int rank, shared_at at)
{
    chunk v;
    shared_at there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
#if REAL_BYTES == 4
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.r[0]), "=f"(v.r[1]), "=f"(v.r[2]), "=f"(v.r[3])
                 : "r"(there));
#else
    asm volatile("ld.shared::cluster.v2.f64 {%0, %1}, [%2];"
                 : "=d"(v.r[0]), "=d"(v.r[1])
                 : "r"(there));
#endif
    return v;
}
#else
/* No clusters: these are never called, but stand in the source. */
HELPER unsigned int cluster_rank(void) { return 0; }
HELPER void cluster_barrier(void) {}
HELPER chunk read_chunk_of(unsigned int rank, shared_at at) { return read_chunk(at); }
#endif

#if TMA
#include "simt_async/tma_ptx.cuh"
#endif

#include "asynchronous/words.cuh"

/* A number from one block to another through device memory: past the first-level cache. */
HELPER void write_part(void *at, REAL v)
{
#if REAL_BYTES == 4
    asm volatile("st.global.cg.f32 [%0], %1;" ::"l"(at), "f"(v) : "memory");
#elif REAL_BYTES == 16
    asm volatile("st.global.cg.v2.f64 [%0], {%1, %2};" ::"l"(at), "d"(v.x), "d"(v.y) : "memory");
#else
    asm volatile("st.global.cg.f64 [%0], %1;" ::"l"(at), "d"(v) : "memory");
#endif
}

HELPER REAL read_part(const void *at)
{
    REAL v;
#if REAL_BYTES == 4
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(at) : "memory");
#elif REAL_BYTES == 16
    asm volatile("ld.global.cg.v2.f64 {%0, %1}, [%2];" : "=d"(v.x), "=d"(v.y) : "l"(at) : "memory");
#else
    asm volatile("ld.global.cg.f64 %0, [%1];" : "=d"(v) : "l"(at) : "memory");
#endif
    return v;
}

#endif /* EMULATED */

/* Element i of a chunk. */
HELPER elem element_of(chunk v, int i)
{
#if REAL_BYTES == 16
    return pair_of(v.r[0], v.r[1]);
#elif ELEM_BYTES == REAL_BYTES
    return elem_scalar(v.r[i], (REAL)0);
#else
    return elem_scalar(v.r[2 * i], v.r[2 * i + 1]);
#endif
}

/* Part r of an element: 0: real, 1: imaginary. */
HELPER REAL real_of(elem v, int r)
{
#if ELEM_BYTES == REAL_BYTES
    return v;
#else
    return r ? v.y : v.x;
#endif
}

HELPER chunk chunk_of(const elem *e)
{
    chunk v;
    UNROLL for (int i = 0; i < CHUNK; ++i) {
#if REAL_BYTES == 16
        v.r[0] = e[i].x;
        v.r[1] = e[i].y;
#elif ELEM_BYTES == REAL_BYTES
        v.r[i] = e[i];
#else
        v.r[2 * i] = e[i].x;
        v.r[2 * i + 1] = e[i].y;
#endif
    }
    return v;
}

#if PERSISTENT
/* Not remembered from one tile to the next. */
#undef THREAD_ID
#define THREAD_ID thread_id()
#endif
