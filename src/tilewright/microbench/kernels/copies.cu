// Asynchronous copies from device memory to shared memory, for counting the bytes a cycle.
//
//     BYTES   of a lane's piece: 4, 8 or 16
//     RUN     bytes side by side in device memory; 32 lanes read some runs, a row each
//     STRIDE  bytes from row to row: of all of them, WARP_ROWS for each warp
//     NEXT    bytes from a copy's pieces to those of the next of a trip's COPIES; TRIP to those of
//             the next trip, along the rows and round
//     PLACES  where blocks, which read the same rows, begin in them
//     PART    of a run, bytes that lie side by side in shared memory; PLANE bytes to the next part,
//             rows (one of each run) PART bytes apart
//     PITCH   if not 0, runs are transposed instead: their pieces lie PITCH bytes apart, rows BYTES;
//             TURNED: and 8 pieces after 8 change places with those of another row
//     STEP    bytes in shared memory from a copy's pieces to those of the next
//     WARP_BYTES of shared memory are a warp's, of THREADS / 32
//
// Each warp writes  when[3 * warp] = clock before, clock after, multiprocessor.

#define LANES (RUN / BYTES)

#include "kernels/clock.cuh"

__device__ __forceinline__ int place_of(int row, int piece)
{
    if (PITCH)
        return piece * PITCH + (row ^ (TURNED ? piece / 8 : 0)) * BYTES;
    return piece * BYTES / PART * PLANE + row * PART + piece * BYTES % PART;
}

__device__ __forceinline__ void copy(unsigned to, const char *from)
{
#if BYTES == 16
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(BYTES)
                 : "memory");
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    loop(const float *data, int trips, int, long long *when)
{
    extern __shared__ __align__(128) unsigned char arena[];
    unsigned long long base;
    asm("cvta.to.shared.u64 %0, %1;" : "=l"(base) : "l"(arena));
    const int row = threadIdx.x % 32 / LANES, piece = threadIdx.x % 32 % LANES;
    const int warp = threadIdx.x / 32;
    const unsigned to = (unsigned)base + warp * WARP_BYTES + place_of(row, piece);
    const char *const mine =
        (const char *)data + (warp * WARP_ROWS + row) * STRIDE + piece * BYTES;
    unsigned at = blockIdx.x % PLACES * (STRIDE / PLACES);
    __syncthreads();
    const long long t0 = clock_now();
#pragma unroll 1
    for (int t = 0; t < trips; ++t) {
        const char *const from = mine + at;
#pragma unroll
        for (int j = 0; j < COPIES; ++j) copy(to + j * STEP, from + j * NEXT);
        asm volatile("cp.async.commit_group;");
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        at = (at + TRIP) % STRIDE;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    write_clock(when, t0, clock_now());
}
