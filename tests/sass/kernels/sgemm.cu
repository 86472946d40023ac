// One-level register blocking of BR x BR a thread, shared loads of LW floats: the kernel of the
// paper's Figure 1.  Only its main loop matters; edges are not handled.
#ifndef BR
#define BR 8
#endif
#ifndef LW
#define LW 4
#endif
#ifndef BK
#define BK 8
#endif
#define T 16
#define BM (BR * T)
#if LW == 4
typedef float4 V;
#elif LW == 2
typedef float2 V;
#else
typedef float V;
#endif
extern "C" __global__ void __launch_bounds__(256)
    sgemm(const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C, int n,
          int k, float alpha) {
  __shared__ __align__(16) float As[2][BK][BM], Bs[2][BK][BM];
  const int tx = threadIdx.x % T, ty = threadIdx.x / T, t = threadIdx.x;
  float c[BR][BR];
#pragma unroll
  for (int i = 0; i < BR; i++)
#pragma unroll
    for (int j = 0; j < BR; j++)
      c[i][j] = 0.f;
  const int per = BM * BK / 256 > 0 ? BM * BK / 256 : 1;
  float pa[per], pb[per];
  A += blockIdx.x * BM;
  B += blockIdx.y * BM;
  int buf = 0;
#pragma unroll
  for (int i = 0; i < per; i++) {
    int e = t + 256 * i;
    As[0][e / BM][e % BM] = A[(e / BM) * n + e % BM];
    Bs[0][e / BM][e % BM] = B[(e / BM) * n + e % BM];
  }
  __syncthreads();
#pragma unroll 1
  for (int kk = 0; kk < k; kk += BK) {
    A += BK * n;
    B += BK * n;
#pragma unroll
    for (int i = 0; i < per; i++) {
      int e = t + 256 * i;
      pa[i] = A[(e / BM) * n + e % BM];
      pb[i] = B[(e / BM) * n + e % BM];
    }
#pragma unroll
    for (int p = 0; p < BK; p++) {
      float a[BR], b[BR];
#pragma unroll
      for (int i = 0; i < BR; i += LW) {
        *(V *)&a[i] = *(V *)&As[buf][p][(i / LW * T + tx) * LW];
        *(V *)&b[i] = *(V *)&Bs[buf][p][(i / LW * T + ty) * LW];
      }
#pragma unroll
      for (int i = 0; i < BR; i++)
#pragma unroll
        for (int j = 0; j < BR; j++)
          c[i][j] = fmaf(a[i], b[j], c[i][j]);
    }
    buf ^= 1;
#pragma unroll
    for (int i = 0; i < per; i++) {
      int e = t + 256 * i;
      As[buf][e / BM][e % BM] = pa[i];
      Bs[buf][e / BM][e % BM] = pb[i];
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < BR; i++)
#pragma unroll
    for (int j = 0; j < BR; j++)
      C[(size_t)(blockIdx.y * BM + (j / LW * T + ty) * LW + j % LW) * n + blockIdx.x * BM +
        (i / LW * T + tx) * LW + i % LW] = alpha * c[i][j];
}
