// Bulk copies into a ring of barriers, with or without warpgroup multiply (WG); never run.
typedef unsigned u;
typedef unsigned long long ull;
__device__ __forceinline__ u sa(const void *p) { return (u)__cvta_generic_to_shared(p); }
struct __align__(64) Map {
  char b[128];
};
extern "C" __global__ void __launch_bounds__(256)
    hop(const __grid_constant__ Map ta, const __grid_constant__ Map tb, float *C, int k,
        const char *raw) {
  extern __shared__ __align__(1024) char sm[];
  __shared__ __align__(8) ull full[4], empty[4];
  int t = threadIdx.x;
  float c[64];
  for (int i = 0; i < 64; i++)
    c[i] = 0;
  if (t == 0)
    for (int i = 0; i < 4; i++) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(sa(full + i)));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 128;" ::"r"(sa(empty + i)));
    }
  asm volatile("fence.proxy.async;");
  __syncthreads();
  if (t >= 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (t == 128) {
      for (int i = 0; i < k; i++) {
        int s = i & 3;
        asm volatile("{.reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p,[%0],%1; @p bra "
                     "D; bra W; D:}" ::"r"(sa(empty + s)),
                     "r"((i >> 2 & 1) ^ 1));
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" ::"r"(sa(full + s)),
                     "r"(32768));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0],[%1,{%2,%3}],[%4];" ::"r"(sa(sm + s * 32768)),
                     "l"(&ta), "r"(i * 64), "r"(blockIdx.x * 128), "r"(sa(full + s))
                     : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0],[%1],%2,[%3];" ::"r"(sa(sm + s * 32768 + 16384)),
                     "l"(raw + i * 16384), "r"(16384), "r"(sa(full + s))
                     : "memory");
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    for (int i = 0; i < k; i++) {
      int s = i & 3;
      asm volatile("{.reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p,[%0],%1; @p bra "
                   "D; bra W; D:}" ::"r"(sa(full + s)),
                   "r"(i >> 2 & 1));
#ifdef WG
      ull da = ((ull)(sa(sm + s * 32768) >> 4) & 0x3fff) | (1ull << 62) | (64ull << 32) |
               (1ull << 16),
          db = ((ull)(sa(sm + s * 32768 + 16384) >> 4) & 0x3fff) | (1ull << 62) | (64ull << 32) |
               (1ull << 16);
      asm volatile("wgmma.fence.sync.aligned;");
      for (int q = 0; q < 4; q++)
        asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
                     "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%"
                     "21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},%32,%33,1,1,1,0,0;"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]),
                       "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]),
                       "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]),
                       "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]),
                       "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]),
                       "+f"(c[30]), "+f"(c[31])
                     : "l"(da + q * 2), "l"(db + q * 2));
      asm volatile("wgmma.commit_group.sync.aligned;");
      asm volatile("wgmma.wait_group.sync.aligned 0;");
#else
      float *f = (float *)(sm + s * 32768);
      for (int q = 0; q < 8; q++)
        for (int j = 0; j < 64; j++)
          c[j] = fmaf(f[q * 64 + t], f[4096 + q * 64 + j], c[j]);
#endif
      asm volatile("{.reg .b64 x; mbarrier.arrive.shared::cta.b64 x,[%0];}" ::"r"(sa(empty + s)));
    }
    for (int i = 0; i < 64; i++)
      C[i * 128 + t] = c[i];
  }
}
