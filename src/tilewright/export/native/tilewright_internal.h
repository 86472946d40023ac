/* What the library's own files share.
 *
 *     tilewright_gemm.c     arguments checked, kernel chosen, launched
 *     tilewright_overlap.c  whether two matrices share an element
 *     tilewright_driver.c   the driver, and kernels loaded into contexts
 *     kernels.c             written by the exporter: the tables below
 *     image_*.c             written by the exporter: the kernels' machine code
 */
#ifndef TILEWRIGHT_INTERNAL_H
#define TILEWRIGHT_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "tilewright_gemm.h"

/* One kernel with what its launch takes.  The grid covers C with blocks:
 *
 *     folded   (blocks along m) * (blocks along n) * factor   in x, 1 in y
 *     else     (blocks along m) * factor in x, blocks along n in y
 */
typedef struct {
    const char *name;
    const unsigned char *image; /* a cubin */
    int64_t block_m, block_n;
    unsigned factor, folded;
    unsigned threads_x, threads_y;
    unsigned dynamic_shared_bytes;
} tilewright_kernel;

/* A problem's sizes, column-major, and the kernel that is best at them. */
typedef struct {
    int64_t m, n, k;
    int kernel;
} tilewright_tuned;

typedef struct {
    const tilewright_tuned *rows;
    int count;
} tilewright_choices;

enum { TILEWRIGHT_PRECISIONS = 4, TILEWRIGHT_TRANSPOSES = 3 };

extern const tilewright_kernel tilewright_kernels[];
extern const int tilewright_kernel_count;

/* By precision (s d c z) and the operations on A and B (N T C). */
extern const tilewright_choices
    tilewright_table[TILEWRIGHT_PRECISIONS][TILEWRIGHT_TRANSPOSES][TILEWRIGHT_TRANSPOSES];

/* A matrix in device memory, column-major. */
typedef struct {
    uintptr_t first;
    int64_t rows, columns, ld;
} tilewright_matrix;

/* Whether the matrix ends within the address space. */
int tilewright_fits(const tilewright_matrix *x, int64_t element_bytes);

/* Whether two matrices that fit, of one kind of elements and aligned to it, share an element. */
int tilewright_overlap(const tilewright_matrix *x, const tilewright_matrix *y,
                       int64_t element_bytes);

/* Launch a kernel in the current context, loading it there if need be. */
tw_status tilewright_launch(int kernel, const unsigned grid[2], void **arguments,
                            tw_stream stream);

/* The driver's sentence for a CUresult; null where it has none. */
const char *tilewright_driver_says(int result);

#endif
