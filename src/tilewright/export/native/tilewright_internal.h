/* What the library's own files share.
 *
 *     tilewright_gemm.c       arguments checked, the call made
 *     tilewright_overlap.c    whether two matrices share an element
 *     tilewright_launch.c     arguments and tensor maps laid out, functions launched
 *     tilewright_workspace.c  device memory for parts of sums
 *     tilewright_driver.c     the driver, contexts, and machine code loaded into them
 *     choice.h                which kernel serves a problem: choose.c, model.c, geometry.c
 *     kernels.c               written by the exporter: the tables below
 *     image_*.c               written by the exporter: machine code
 */
#ifndef TILEWRIGHT_INTERNAL_H
#define TILEWRIGHT_INTERNAL_H

#include "choice.h"
#include "tilewright_gemm.h"

enum { TILEWRIGHT_PRECISIONS = 4, TILEWRIGHT_TRANSPOSES = 3 };

/* ---- Tables --------------------------------------------------------------- */

/* Machine code of one launch mode of a kernel, and what its launches need. */
typedef struct {
    const char *name;            /* as the manifest has it */
    const void *image;           /* a cubin */
    const char *symbol, *second; /* its function, and one launched behind it or null */
    unsigned shared_bytes;       /* dynamic shared memory of a block */
    unsigned part_bytes;         /* what each block needs of a workspace */
} tilewright_code;

/* A model of device that kernels were measured on, and its multiprocessors. */
typedef struct {
    const char *name;
    int64_t multiprocessors;
} tilewright_device;

extern const tilewright_code tilewright_codes[];
extern const int tilewright_code_count;
extern const tilewright_device tilewright_devices[];
extern const int tilewright_device_count; /* at least one, at most 64 */

/* By precision (s d c z) and the operations on A and B (N T C). */
extern const tilewright_rows
    tilewright_table[TILEWRIGHT_PRECISIONS][TILEWRIGHT_TRANSPOSES][TILEWRIGHT_TRANSPOSES];

/* Bytes of an element of a precision. */
int64_t tilewright_element_bytes(int precision);

/* ---- Memory ------------------------------------------------------------------ */

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

/* ---- Launching ----------------------------------------------------------------- */

typedef union {
    float as_float;
    double as_double;
} tilewright_real;

/* Choose a kernel for a problem whose arguments are right, and launch it in the current context.
 * Where `reads` is false, neither A nor B is read. */
tw_status tilewright_launch(const tilewright_rows *from, const tilewright_problem *problem,
                            tilewright_real alpha[2], uintptr_t a, uintptr_t b,
                            tilewright_real beta[2], uintptr_t c, int reads, tw_stream stream);

/* The current device; the first of tilewright_devices where no context is current. */
tilewright_place tilewright_here(void);

/* The driver's sentence for a CUresult; null where it has none. */
const char *tilewright_driver_says(int result);

#endif
