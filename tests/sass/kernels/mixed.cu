typedef unsigned u;
// packed half arithmetic through PTX (no headers), spills, shuffles, atomics, divergence,
// double-double
extern "C" __global__ void half2k(const u *A, const u *B, u *C, int k) {
  __shared__ u As[1024], Bs[1024];
  int t = threadIdx.x;
  u c[8][8] = {};
  for (int kk = 0; kk < k; kk++) {
    for (int i = 0; i < 4; i++) {
      As[t + i * 256] = A[kk * 1024 + t + i * 256];
      Bs[t + i * 256] = B[kk * 1024 + t + i * 256];
    }
    __syncthreads();
#pragma unroll 4
    for (int p = 0; p < 8; p++) {
      u a[8], b[8];
      for (int i = 0; i < 8; i++) {
        a[i] = As[p * 128 + i * 16 + t % 16];
        b[i] = Bs[p * 128 + i * 16 + t / 16];
      }
      for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++)
          asm("fma.rn.f16x2 %0,%1,%2,%0;" : "+r"(c[i][j]) : "r"(a[i]), "r"(b[j]));
    }
    __syncthreads();
  }
  for (int i = 0; i < 8; i++)
    for (int j = 0; j < 8; j++) {
      u v;
      asm("add.f16x2 %0,%1,%2;" : "=r"(v) : "r"(c[i][j]), "r"(C[(i * 8 + j) * 256 + t]));
      asm("mul.f16x2 %0,%0,%1;" : "+r"(v) : "r"(0x3c003c00u));
      C[(i * 8 + j) * 256 + t] = v;
    }
}
extern "C" __global__ void __launch_bounds__(1024)
    spill(const float *A, const float *B, float *C, int k) {
  int t = threadIdx.x;
  float c[12][12] = {};
  for (int kk = 0; kk < k; kk++) {
    float a[12], b[12];
    for (int i = 0; i < 12; i++) {
      a[i] = A[kk * 12288 + i * 1024 + t];
      b[i] = B[kk * 12288 + i * 1024 + t];
    }
    for (int i = 0; i < 12; i++)
      for (int j = 0; j < 12; j++)
        c[i][j] = fmaf(a[i], b[j], c[i][j]);
  }
  for (int i = 0; i < 12; i++)
    for (int j = 0; j < 12; j++)
      C[(i * 12 + j) * 1024 + t] = c[i][j];
}
__device__ __forceinline__ void twosum(double a, double b, double &s, double &e) {
  s = a + b;
  double v = s - a;
  e = (a - (s - v)) + (b - v);
}
extern "C" __global__ void ddot(const double2 *A, const double2 *B, double2 *C, int k) {
  int t = threadIdx.x;
  double h = 0, l = 0;
  for (int i = 0; i < k; i++) {
    double2 a = A[i * 256 + t], b = B[i * 256 + t];
    double p = a.x * b.x, e = fma(a.x, b.x, -p);
    e += a.x * b.y + a.y * b.x;
    double s, f;
    twosum(h, p, s, f);
    f += l + e;
    h = s + f;
    l = f - (h - s);
  }
  C[t] = make_double2(h, l);
}
extern "C" __global__ void misc(const float *A, float *C, int *D, int n, long long q) {
  extern __shared__ float s[];
  int t = threadIdx.x;
  float v = A[t];
  if (t & 1) {
    for (int i = 0; i < D[t]; i++)
      v = v * 1.5f + (float)i;
  } else
    v = -v;
  v += __shfl_xor_sync(~0u, v, 1);
  v = fmaxf(v, 0.25f);
  v = fminf(v, A[t + 1]);
  s[t] = v;
  __syncthreads();
  v = s[t ^ 1] + __expf(v) + sqrtf(v) + v / 3.7f;
  u m = __ballot_sync(~0u, v > 0.5f);
  int pc = __popc(m), cl = __clz(m);
  atomicAdd(D + t, pc + cl);
  atomicAdd(C + t, v);
  if (n > 3 && v < 1.f)
    C[q * n + t] = v;
  long long z = q * t + n;
  D[z % n] = (int)(z >> 5);
  short *S = (short *)D;
  S[t] = S[t + 7];
  unsigned char *b = (unsigned char *)D;
  b[t + 100000] = b[t * 3] + 1;
  double d = v;
  d = d * 3.0 + n;
  ((double *)C)[t + 999] = d > 2.0 ? d : -d;
  C[t + 5000] = (float)d;
  D[t + 5000] = (int)d;
  D[t + 77] = __byte_perm(n, pc, 0x3201) ^ (n < t ? pc : cl);
  D[t + 79] = __funnelshift_r(n, pc, t);
  D[t + 80] = t / 7 + t % n;
  D[t + 81] = max(t, n) + min(pc, abs(cl));
  C[t + 82] = __int_as_float(D[t + 9] & 0xff00 | n);
  __threadfence();
}
