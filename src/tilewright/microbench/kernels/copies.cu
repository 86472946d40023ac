// Asynchronous copies from device memory to shared memory, for counting the bytes a cycle.
//
//     BYTES   of a lane's piece: 4, 8 or 16
//     RUN     bytes side by side in device memory; 32 lanes read some runs, STRIDE bytes apart
//     NEXT    bytes from a copy's pieces to those of the next copy of a trip
//     PART    of a run, bytes that lie side by side in shared memory; PLANE bytes to the next part,
//             rows (one of each run) PART bytes apart
//     PITCH   if not 0, runs are transposed instead: its pieces lie PITCH bytes apart, rows BYTES;
//             TURNED: and every 8 of them are moved by a piece more
//     STEP    bytes in shared memory from a copy's to those of the next one
//     COPIES  of a trip
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
    // Warps are far apart, blocks a little: as where blocks of one row or column share operands.
    const unsigned mine = row * STRIDE + piece * BYTES;
    unsigned at = warp * WARP_APART + blockIdx.x * BLOCK_APART;
    __syncthreads();
    const long long t0 = clock_now();
#pragma unroll 1
    for (int t = 0; t < trips; ++t) {
        const char *const from = (const char *)data + (at & (DATA_BYTES - 1)) + mine;
#pragma unroll
        for (int j = 0; j < COPIES; ++j) copy(to + j * STEP, from + (long long)j * NEXT);
        asm volatile("cp.async.commit_group;");
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        at += COPIES * RUN;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    write_clock(when, t0, clock_now());
}
