/* Dialect: OpenCL C 1.2 and later.
 *
 * A kernel source written in these words compiles as OpenCL C with this file
 * before it and as CUDA C++ with dialect_cuda.h before it.  OpenCL C has no
 * templates and wants an address space on every pointer a helper takes; CUDA
 * has none of those words, so there they vanish.
 */

#define KERNEL __kernel

/* Always inlined: arrays passed to helpers are to be registers, and PoCL up to 3.1
 * gives wrong thread numbers in a helper that it leaves a function. */
#define HELPER static inline __attribute__((always_inline))

#define GLOBAL __global       /* device memory */
#define SHARED __local        /* shared by a thread block: arrays and pointers to them */
#define SHARED_ARRAY __local  /* declares such an array; only in a kernel's outermost scope */
#define PRIVATE __private     /* one thread's own: registers, if indices are constants */
#define RESTRICT restrict

#define THREADS_PER_BLOCK(n) __attribute__((reqd_work_group_size(n, 1, 1)))

/* The same, where so many blocks shall fit a multiprocessor together: CUDA's compiler spares
 * registers for it. */
#define THREADS_AND_BLOCKS(n, together) THREADS_PER_BLOCK(n)
#define ALIGNED(n) __attribute__((aligned(n)))

#define THREAD_ID ((int)get_local_id(0))
#define BLOCK_ID ((unsigned int)get_group_id(0))
#define BLOCK_COUNT ((unsigned int)get_num_groups(0))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)

/* The same, and afterwards the block's threads see one another's writes to device memory. */
#define BARRIER_OF_ALL_MEMORY() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

/* What this thread has seen or written before comes, for other blocks too, before what it
 * reads or writes afterwards. */
#define FENCE() mem_fence(CLK_GLOBAL_MEM_FENCE)

/* On an int in device memory; they give what was there before. */
#define ATOMIC_ADD(at, number) atomic_add(at, number)
#define ATOMIC_MAX(at, number) atomic_max(at, number)

/* For launches that may begin early (Launch): the one after this may, once all blocks of this
 * have said so or ended; and until all of the one before this has ended. */
#define LET_NEXT_BEGIN()
#define WAIT_FOR_PREVIOUS()

/* Before a loop: unroll it whole, or leave it a loop. */
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")

/* A 64-bit signed size, offset or leading dimension: `long` in OpenCL C. */
typedef long isize;
typedef unsigned long usize;

/* Write four ints at once, to device memory at a multiple of 16 bytes. */
HELPER void store_words4(GLOBAL unsigned int *at, unsigned int x, unsigned int y, unsigned int z,
                         unsigned int w)
{
    *(GLOBAL uint4 *)at = (uint4)(x, y, z, w);
}

/* A pointer as an integer, to ask how it is aligned. */
#define ADDRESS(pointer) ((uintptr_t)(pointer))

/* Double precision is an extension that OpenCL C 1.1 compilers want named. */
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
