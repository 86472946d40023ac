/* Which part of a block's tile of C a warp computes, and a lane's place in it.  A part of mma.cuh.
 *
 * Neighbours of a side that a lane has: of 16 rows or columns, x = 0 and 1 are CHUNK g + x, or as
 * lines.cuh deals them.  Longer instructions want B's elements one by one where they lie along n.
 */
#define PAIR_M CHUNK
#define PAIR_N (K_FAST_B || MMA_K == 4 ? CHUNK : 1)

HELPER int lane_g(void) { return THREAD_ID % 32 / 4; }
HELPER int lane_t(void) { return THREAD_ID % 4; }
HELPER int warp_row(void) { return PLACE_IN_LAYER / 32 % WARPS_M * WARP_M; }
HELPER int warp_column(void) { return PLACE_IN_LAYER / 32 / WARPS_M * WARP_N; }
