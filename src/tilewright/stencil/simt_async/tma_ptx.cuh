/* PTX for tma.cuh.  A part of ptx.cuh. */

#include "asynchronous/barriers.cuh"

/* The thread's warp in its block, which the compiler is told is the same in all its lanes. */
HELPER int warp_number(void) { return __shfl_sync(0xffffffff, THREAD_ID / 32, 0); }

/* Whether this is the one lane of a warp, here as a whole, that does something for it: the same
 * each time. */
HELPER bool is_elected(void)
{
    unsigned int chosen;
    asm volatile("{\n\t.reg .pred is;\n\telect.sync _|is, 0xffffffff;\n\t"
                 "selp.u32 %0, 1, 0, is;\n\t}"
                 : "=r"(chosen));
    return chosen;
}

/* Arrive at a barrier of the block's own. */
HELPER void arrive(shared_at barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Copy the box at coordinates x (contiguous) and y, and count its bytes at `full`. */
HELPER void copy_box(const tensor_map *map, shared_at to, shared_at full, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(map), "r"(full), "r"(x), "r"(y)
                 : "memory");
}

/* The same of a map with a third coordinate. */
HELPER void copy_lines(const tensor_map *map, shared_at to, shared_at full, int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
                 "l"(map), "r"(full), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/* What threads wrote and read in shared memory comes before what the copy engine writes there
 * behind the block's next barrier. */
HELPER void leave_to_engine(void)
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
