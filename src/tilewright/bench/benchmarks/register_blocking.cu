// What the paper counts in its Figure 1 (Lai & Seznec, section 2.2): the inner loop of an SGEMM
// whose threads each hold RB x RB elements of C, and read RB of A and RB of B for every step in k.
//
//     RB   register blocking, 1 and up
//     LW   words of one shared load: 1 (LDS), 2 (LDS.64), 4 (LDS.128)
//     BK   steps in k that a trip of the loop does
//
// A thread's 2 RB words of one step, A's first, come in loads of LW words: ceil(2 RB / LW) of them,
// as the formula says.  A kernel that shares A and B between its threads in different ways keeps
// them apart and needs 2 ceil(RB / LW).  The loads of one thread lie a vector of every other group
// apart: were they side by side, ptxas would join narrow ones into wide ones.
//
// The panel in device memory is arranged like the tile.  What is counted is the loop; groups of
// threads compute the same numbers, and no matrix is multiplied.
#define THREADS 64
#define GROUPS 4
#define LOADS ((2 * RB + LW - 1) / LW)
typedef struct __align__(4 * LW) { float word[LW]; } vector;

extern "C" __global__ void __launch_bounds__(THREADS)
    multiply(const vector *__restrict__ panel, float *__restrict__ c, int k)
{
    __shared__ vector tile[BK * LOADS * GROUPS];
    const int group = threadIdx.x % GROUPS;
    float sum[RB][RB];
#pragma unroll
    for (int j = 0; j < RB; ++j)
#pragma unroll
        for (int i = 0; i < RB; ++i) sum[j][i] = 0.0f;

#pragma unroll 1
    for (int done = 0; done < k; done += BK) {
        __syncthreads(); // all have read the tile that is overwritten now
#pragma unroll
        for (int at = 0; at < BK * LOADS * GROUPS; at += THREADS)
            if (at + THREADS <= BK * LOADS * GROUPS || threadIdx.x < BK * LOADS * GROUPS - at)
                tile[at + threadIdx.x] = panel[at + threadIdx.x];
        panel += BK * LOADS * GROUPS;
        __syncthreads();
#pragma unroll
        for (int l = 0; l < BK; ++l) {
            float fragment[LOADS * LW]; // of A, then of B
#pragma unroll
            for (int w = 0; w < LOADS; ++w) {
                const vector v = tile[(l * LOADS + w) * GROUPS + group];
#pragma unroll
                for (int r = 0; r < LW; ++r) fragment[w * LW + r] = v.word[r];
            }
#pragma unroll
            for (int j = 0; j < RB; ++j)
#pragma unroll
                for (int i = 0; i < RB; ++i)
                    sum[j][i] = fmaf(fragment[i], fragment[RB + j], sum[j][i]);
        }
    }
#pragma unroll
    for (int j = 0; j < RB; ++j)
#pragma unroll
        for (int i = 0; i < RB; ++i) c[(j * RB + i) * THREADS + threadIdx.x] = sum[j][i];
}
