/* Dialect: CUDA C++, for nvcc and for NVRTC without any header.
 *
 * The same words as dialect_opencl.h; see there what each one means.
 */

#define KERNEL extern "C" __global__
#define HELPER static __device__ __forceinline__

#define GLOBAL
#define SHARED
#define SHARED_ARRAY __shared__
#define PRIVATE
#define RESTRICT __restrict__

#define THREADS_PER_BLOCK(n) __launch_bounds__(n)
#define ALIGNED(n) __align__(n)

#define THREAD_ID ((int)threadIdx.x)
#define BLOCK_ID (blockIdx.x)
#define BARRIER() __syncthreads()

#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")

/* `long` has 32 bits on some hosts, and nvcc follows the host. */
typedef long long isize;

#define ADDRESS(pointer) ((unsigned long long)(pointer))
