// DGEMM: double tile with local-memory-free 4x4 micro tile, guarded edges, alpha/beta.
extern "C" __global__ void __launch_bounds__(256)
    dgemm(const double *__restrict__ A, const double *__restrict__ B, double *__restrict__ C, int m,
          int n, int k, double alpha, double beta) {
  __shared__ __align__(16) double As[16][64], Bs[16][64];
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  double c[4][4] = {};
  for (int kk = 0; kk < k; kk += 16) {
    for (int i = 0; i < 4; i++) {
      int e = threadIdx.x + 256 * i;
      int r = e % 64, p = e / 64;
      As[p][r] = (blockIdx.x * 64 + r < m && kk + p < k)
                     ? A[(size_t)(kk + p) * m + blockIdx.x * 64 + r]
                     : 0.;
      Bs[p][r] = (blockIdx.y * 64 + r < n && kk + p < k)
                     ? B[(size_t)(kk + p) * n + blockIdx.y * 64 + r]
                     : 0.;
    }
    __syncthreads();
#pragma unroll
    for (int p = 0; p < 16; p++) {
      double a[4], b[4];
      for (int i = 0; i < 4; i += 2) {
        *(double2 *)&a[i] = *(double2 *)&As[p][(i / 2 * 16 + tx) * 2];
        *(double2 *)&b[i] = *(double2 *)&Bs[p][(i / 2 * 16 + ty) * 2];
      }
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
          c[i][j] = fma(a[i], b[j], c[i][j]);
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      int r = blockIdx.x * 64 + (i / 2 * 16 + tx) * 2 + i % 2,
          s = blockIdx.y * 64 + (j / 2 * 16 + ty) * 2 + j % 2;
      if (r < m && s < n) {
        double v = alpha * c[i][j];
        if (beta != 0)
          v += beta * C[(size_t)s * m + r];
        C[(size_t)s * m + r] = v;
      }
    }
}
