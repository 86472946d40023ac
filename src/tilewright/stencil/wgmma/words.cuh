/* Words of all kernels here.  Macros given with the source come before. */

#include "prelude/formats.h"

/* Whether a launch is one that is wanted, by the word of its arguments; all blocks see the same. */
#if OUTPUT == OUTPUT_RESIDUES
#define IS_WANTED(run, run_value) ((int)blockIdx.z < (run))
#else
#define IS_WANTED(run, run_value) ((run) == (run_value))
#endif

/* A config need not name them. */
#ifndef PARALLEL_SPLIT_K
#define PARALLEL_SPLIT_K 0
#endif
#ifndef CLUSTER_K
#define CLUSTER_K 1
#endif
#ifndef TMA
#define TMA 1
#endif

/* A launch may begin when the blocks of the one before it on the stream have ended, and waits for what
 * these wrote before it touches memory: barriers begin and maps come meanwhile.  To let it begin
 * sooner, as soon as all blocks run, took longer (H100, squares and layers of 16 bits). */

/* Whether more follows the product than alpha and beta (epilogue.cuh). */
#ifndef EPILOGUE
#define EPILOGUE 0
#endif

/* With TRIANGLE a launch computes one triangle of a square C, and writes nothing of the other. */
#ifndef TRIANGLE
#define TRIANGLE 0
#endif
#if TRIANGLE
#define TRIANGLE_ARGUMENT , int lower
#define IS_LOWER (lower != 0)
#else
#define TRIANGLE_ARGUMENT
#define IS_LOWER true
#endif

/* With BATCHED a launch computes many products: a map has all matrices of an operand in the place of
 * parts, of which there is one, or one matrix that all products have.  Without maps a matrix is told
 * by the elements before it.  Blocks in z have a product each; where BATCHED is 2 they go through the
 * tiles of all, one product's behind another's. */
#ifndef BATCHED
#define BATCHED 0
#endif
#if TMA
typedef int matrix_place;
#else
typedef isize matrix_place;
#endif
#if BATCHED == 2
#define BATCH_ARGUMENTS , matrix_place next_a, matrix_place next_b, isize step_c, int batch
#define PRODUCTS_OF_BLOCK ((unsigned int)batch)
#define MATRIX_A(product) ((matrix_place)(product) * next_a)
#define MATRIX_B(product) ((matrix_place)(product) * next_b)
#define FIRST_C(c) (c)
#define C_OF(to, product) moved(to, (isize)(product) * step_c)
#elif BATCHED == 1
#define BATCH_ARGUMENTS , matrix_place next_a, matrix_place next_b, isize step_c
#define PRODUCTS_OF_BLOCK 1
#define MATRIX_A(product) ((matrix_place)blockIdx.z * next_a)
#if TRIANGLE /* 2: of A's conjugate, whose residues u and v of each modulus change places */
#define MATRIX_B(product) ((int)blockIdx.z ^ (next_b == 2))
#else
#define MATRIX_B(product) ((matrix_place)blockIdx.z * next_b)
#endif
#define FIRST_C(c) ((c) + (isize)blockIdx.z * step_c)
#define C_OF(to, product) (to)
#else
#define BATCH_ARGUMENTS
#define PRODUCTS_OF_BLOCK 1
#define MATRIX_A(product) 0
#define MATRIX_B(product) 0
#define FIRST_C(c) (c)
#define C_OF(to, product) (to)
#endif

/* Blocks that bring each other's operands, and all of a cluster: those that share k share nothing
 * else. */
#define SHARING_BLOCKS (CLUSTER_M * CLUSTER_N)
#define CLUSTER_BLOCKS (SHARING_BLOCKS * CLUSTER_K)
/* Consumers that share a tile of C: all, or one where they ping-pong. */
#define SHARERS (PINGPONG ? 1 : CONSUMERS)
/* Threads of a warpgroup, the unit that the tensor cores are used by. */
#define GROUP 128
#define THREADS (GROUP * (CONSUMERS + 1))
