/* Dialect: CUDA C++, for nvcc and for NVRTC without any header.
 *
 * The same words as dialect_opencl.h; see there what each one means.
 */

#define KERNEL extern "C" __global__
#define HELPER static __device__ __forceinline__

#define GLOBAL
#define SHARED
#define SHARED_ARRAY __shared__

/* Shared arrays of a size that the compiler knows may have this much in all, on every
 * architecture; one without a size has what the launch asks for (Source's
 * dynamic_shared_bytes). */
#define STATIC_SHARED_BYTES (48 * 1024)
#define DYNAMIC_SHARED_ARRAY extern __shared__

#define PRIVATE
#define RESTRICT __restrict__

#define THREADS_PER_BLOCK(n) __launch_bounds__(n)
#define ALIGNED(n) __align__(n)

#define THREAD_ID ((int)threadIdx.x)
#define BLOCK_ID (blockIdx.x)
#define BARRIER() __syncthreads()

#define ATOMIC_ADD(at, number) atomicAdd(at, number)
#define ATOMIC_MAX(at, number) atomicMax(at, number)

#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")

/* `long` has 32 bits on some hosts, and nvcc follows the host. */
typedef long long isize;
typedef unsigned long long usize;

#define ADDRESS(pointer) ((unsigned long long)(pointer))
