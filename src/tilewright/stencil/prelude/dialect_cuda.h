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
#define THREADS_AND_BLOCKS(n, together) __launch_bounds__(n, together)
#define ALIGNED(n) __align__(n)

#define THREAD_ID ((int)threadIdx.x)
#define BLOCK_ID (blockIdx.x)
#define BLOCK_COUNT (gridDim.x)
#define BARRIER() __syncthreads()
#define BARRIER_OF_ALL_MEMORY() __syncthreads()
#define FENCE() __threadfence()

#define ATOMIC_ADD(at, number) atomicAdd(at, number)
#define ATOMIC_MAX(at, number) atomicMax(at, number)

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
#define LET_NEXT_BEGIN() asm volatile("griddepcontrol.launch_dependents;")
#define WAIT_FOR_PREVIOUS() asm volatile("griddepcontrol.wait;" ::: "memory")
#else
#define LET_NEXT_BEGIN()
#define WAIT_FOR_PREVIOUS()
#endif

#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")

/* `long` has 32 bits on some hosts, and nvcc follows the host. */
typedef long long isize;
typedef unsigned long long usize;

/* In PTX: the compiler makes four stores of one of 16 bytes.  Few kernels need it. */
__attribute__((unused)) HELPER void store_words4(unsigned int *at, unsigned int x, unsigned int y,
                                                 unsigned int z, unsigned int w)
{
#ifdef __CUDACC__
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(x), "r"(y), "r"(z),
                 "r"(w) : "memory");
#else
    at[0] = x, at[1] = y, at[2] = z, at[3] = w;
#endif
}

#define ADDRESS(pointer) ((unsigned long long)(pointer))
