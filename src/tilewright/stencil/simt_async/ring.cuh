/* The ring of stages in shared memory.  A part of kernel.cuh.
 *
 *     stage 0                                      stage 1
 *     | tile of A | tile of B | barriers, with TMA | tile of A ...
 */

#define BARRIER_AT (BYTES_A + BYTES_B)

/* The copy engine writes at multiples of 128 bytes, so barriers take as many. */
#define STAGE_BYTES (BARRIER_AT + (TMA ? 128 : 0))
