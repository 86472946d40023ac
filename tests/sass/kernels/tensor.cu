typedef unsigned u;
typedef unsigned long long ull;
__device__ __forceinline__ u sa(const void *p) { return (u)__cvta_generic_to_shared(p); }
// cp.async, ldmatrix, mma.sync f16/tf32/f64/s8, several in one loop
extern "C" __global__ void __launch_bounds__(128)
    hmma(const unsigned short *__restrict__ A, const unsigned short *__restrict__ B, float *C,
         int k) {
  __shared__ __align__(128) unsigned short As[2][128 * 32], Bs[2][128 * 32];
  int t = threadIdx.x, w = t / 32, l = t % 32;
  float c[4][8][4] = {};
  for (int i = 0; i < 4; i++) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(sa(&As[0][(t + 128 * i) * 8])),
                 "l"(A + (t + 128 * i) * 8));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(sa(&Bs[0][(t + 128 * i) * 8])),
                 "l"(B + (t + 128 * i) * 8));
  }
  asm volatile("cp.async.commit_group;");
  for (int kk = 0; kk < k; kk += 32) {
    int b = (kk / 32) & 1;
    A += 4096;
    B += 4096;
    for (int i = 0; i < 4; i++) {
      asm volatile(
          "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(sa(&As[b ^ 1][(t + 128 * i) * 8])),
          "l"(A + (t + 128 * i) * 8));
      asm volatile(
          "cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(sa(&Bs[b ^ 1][(t + 128 * i) * 8])),
          "l"(B + (t + 128 * i) * 8));
    }
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 1;");
    __syncthreads();
#pragma unroll
    for (int q = 0; q < 2; q++) {
      u a[4][4], bb[8][2];
      for (int i = 0; i < 4; i++)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(a[i][0]), "=r"(a[i][1]), "=r"(a[i][2]), "=r"(a[i][3])
                     : "r"(sa(&As[b][(i * 16 + l % 16) * 32 + q * 16 + l / 16 * 8])));
      for (int j = 0; j < 8; j++)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                     : "=r"(bb[j][0]), "=r"(bb[j][1])
                     : "r"(sa(&Bs[b][(j * 8 + l % 8) * 32 + q * 16 + (l / 8 % 2) * 8])));
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 8; j++)
          asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                       "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                       : "+f"(c[i][j][0]), "+f"(c[i][j][1]), "+f"(c[i][j][2]), "+f"(c[i][j][3])
                       : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(bb[j][0]),
                         "r"(bb[j][1]));
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 8; j++)
      for (int e = 0; e < 4; e++)
        C[((i * 8 + j) * 4 + e) * 128 + t] = c[i][j][e];
}
extern "C" __global__ void tf32(const float *A, const float *B, float *C, int k) {
  int t = threadIdx.x;
  float c[4][4] = {};
  for (int kk = 0; kk < k; kk++) {
    u a[4], b[4][2];
    for (int i = 0; i < 4; i++)
      asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(a[i]) : "f"(A[kk * 512 + i * 128 + t]));
    for (int j = 0; j < 8; j++)
      b[j / 2][j % 2] = __float_as_uint(B[kk * 1024 + j * 128 + t]);
    for (int j = 0; j < 4; j++)
      asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                   "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                   : "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[j][0]), "r"(b[j][1]));
  }
  for (int j = 0; j < 4; j++)
    for (int e = 0; e < 4; e++)
      C[(j * 4 + e) * 128 + t] = c[j][e];
}
extern "C" __global__ void dmma(const double *A, const double *B, double *C, int k) {
  __shared__ __align__(16) double As[2][512], Bs[2][512];
  int t = threadIdx.x;
  double c[4][4][2] = {};
  for (int kk = 0; kk < k; kk += 8) {
    for (int i = 0; i < 4; i++) {
      As[0][t + 128 * i] = A[kk * 64 + t + 128 * i];
      Bs[0][t + 128 * i] = B[kk * 64 + t + 128 * i];
    }
    __syncthreads();
#pragma unroll
    for (int p = 0; p < 2; p++) {
      double a[4], b[4];
      for (int i = 0; i < 4; i++) {
        a[i] = As[0][p * 256 + i * 32 + t % 32];
        b[i] = Bs[0][p * 256 + i * 32 + t % 32];
      }
      for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
          asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1},{%2},{%3},{%0,%1};"
                       : "+d"(c[i][j][0]), "+d"(c[i][j][1])
                       : "d"(a[i]), "d"(b[j]));
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++)
      for (int e = 0; e < 2; e++)
        C[((i * 4 + j) * 2 + e) * 128 + t] = c[i][j][e];
}
extern "C" __global__ void imma(const int *A, const int *B, int *C, int k) {
  int t = threadIdx.x;
  int c[4][4] = {};
  for (int kk = 0; kk < k; kk++) {
    int a[4], b[4][2];
    for (int i = 0; i < 4; i++)
      a[i] = A[kk * 512 + i * 128 + t];
    for (int j = 0; j < 8; j++)
      b[j / 2][j % 2] = B[kk * 1024 + j * 128 + t];
    for (int j = 0; j < 4; j++)
      asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                   "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                   : "+r"(c[j][0]), "+r"(c[j][1]), "+r"(c[j][2]), "+r"(c[j][3])
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[j][0]), "r"(b[j][1]));
  }
  for (int j = 0; j < 4; j++)
    for (int e = 0; e < 4; e++)
      C[(j * 4 + e) * 128 + t] = c[j][e];
}
