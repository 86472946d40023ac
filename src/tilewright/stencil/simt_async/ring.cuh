/* The ring of stages in shared memory.  A part of kernel.cuh.
 *
 *     stage 0                                      stage 1
 *     | tile of A | tile of B | barriers, with TMA | tile of A ...
 */

#define BARRIER_AT (BYTES_A + BYTES_B)

/* Barriers leave the next stage where it may begin. */
#define STAGE_BYTES (BARRIER_AT + (TMA ? STAGE_ALIGNED : 0))
