// Packed single-precision arithmetic of sm_100 and later.
typedef unsigned long long ull;
extern "C" __global__ void x2(const ull *A, const ull *B, ull *C, int k) {
  __shared__ __align__(16) ull As[512], Bs[512];
  int t = threadIdx.x;
  ull c[4][4] = {};
  for (int kk = 0; kk < k; kk++) {
    As[t] = A[kk * 512 + t];
    Bs[t] = B[kk * 512 + t];
    __syncthreads();
#pragma unroll
    for (int p = 0; p < 8; p++) {
      ull a[4], b[4];
      for (int i = 0; i < 4; i++) {
        a[i] = As[p * 64 + i * 16 + t % 16];
        b[i] = Bs[p * 64 + i * 16 + t / 16];
      }
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
          asm("fma.rn.f32x2 %0,%1,%2,%0;" : "+l"(c[i][j]) : "l"(a[i]), "l"(b[j]));
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++) {
      ull v;
      asm("add.rn.f32x2 %0,%1,%2;" : "=l"(v) : "l"(c[i][j]), "l"(A[i * 4 + j]));
      asm("mul.rn.f32x2 %0,%0,%1;" : "+l"(v) : "l"(B[i]));
      C[(i * 4 + j) * 256 + t] = v;
    }
}
