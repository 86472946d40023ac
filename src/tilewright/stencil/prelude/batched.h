/* Batches: blocks in z compute products of their own, whose matrices lie equal steps apart; where
 * BATCHED is 2 there are none in z, and blocks go through the tiles of all products (`batch`).  It
 * stands in the place of run_if.h, whose names these are: the arguments that a kernel has besides,
 * and what it does first. */
#ifdef __OPENCL_VERSION__
#define BATCH_ID ((isize)get_group_id(2))
#else
#define BATCH_ID ((isize)blockIdx.z)
#endif
#if BATCHED == 2
#define RUN_IF_ARGUMENT , isize step_a, isize step_b, isize step_c, int batch
#define RETURN_UNLESS_WANTED
#else
#define RUN_IF_ARGUMENT , isize step_a, isize step_b, isize step_c
#define RETURN_UNLESS_WANTED                                                              \
    offset_a += BATCH_ID * step_a;                                                        \
    offset_b += BATCH_ID * step_b;                                                        \
    offset_c += BATCH_ID * step_c;
#endif
