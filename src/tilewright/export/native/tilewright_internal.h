/* What the library's own files share.
 *
 *     tilewright_gemm.c       arguments checked, the call made
 *     tilewright_overlap.c    whether two matrices share an element
 *     tilewright_choose.c     which kernel serves a problem, in which launch mode
 *     tilewright_model.c      how long a kernel is expected to take
 *     tilewright_geometry.c   how a grid follows from a problem
 *     tilewright_launch.c     arguments and tensor maps laid out, functions launched
 *     tilewright_workspace.c  device memory for parts of sums
 *     tilewright_driver.c     the driver, contexts, and machine code loaded into them
 *     kernels.c               written by the exporter: the tables below
 *     image_*.c               written by the exporter: machine code
 *
 * Choosing and geometry take no driver: they are arithmetic on the tables.
 */
#ifndef TILEWRIGHT_INTERNAL_H
#define TILEWRIGHT_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "tilewright_gemm.h"

enum { TILEWRIGHT_PRECISIONS = 4, TILEWRIGHT_TRANSPOSES = 3, TILEWRIGHT_TERMS = 11 };
enum { TILEWRIGHT_NONE = -1 };

/* ---- Tables --------------------------------------------------------------- */

/* Machine code of one launch mode of a kernel, and what its launches need. */
typedef struct {
    const char *name;            /* as the manifest has it */
    const void *image;           /* a cubin */
    const char *symbol, *second; /* its function, and one launched behind it or null */
    unsigned shared_bytes;       /* dynamic shared memory of a block */
    unsigned part_bytes;         /* what each block needs of a workspace */
} tilewright_code;

/* How launches cover a result; see "geometry" in docs/export.md. */
typedef struct {
    int64_t tile_m, tile_n, tile_k, stages, resident;
    int64_t cluster_m, cluster_n, cluster_k;
    unsigned threads_x, threads_y;
    int folded, persistent, stream_k, tree;
    int tma, vector_along_k;
    int64_t tma_line_bytes, stages_k;
    int64_t map_line_bytes; /* of boxes that are one of some for a tile; 0: a box is a tile */
    int split_k;            /* whether the steps along k are cut into parts, as follows */
    double step_cycles;
    int64_t cut_bytes; /* of the sums that a block leaves, for the choice of the parts */
    unsigned reduction_blocks, reduction_threads;
    int64_t most_parts; /* of a tile */
} tilewright_geometry;

/* Launch modes, added up. */
enum { TILEWRIGHT_SCALAR = 1, TILEWRIGHT_CLAMPED = 2, TILEWRIGHT_STAGED = 4, TILEWRIGHT_MODES = 8 };

/* A size whose race a kernel won, and its time there. */
typedef struct {
    int64_t m, n, k;
    double ns;
} tilewright_won;

typedef struct {
    tilewright_geometry geometry;
    int codes[TILEWRIGHT_MODES]; /* by launch mode; TILEWRIGHT_NONE without machine code */
    const double *costs;         /* nanoseconds by term; null where nothing has any */
    const tilewright_won *won;
    int won_count;
    int own;    /* tuned on the user's device, or a default: serves every mode */
    int device; /* that it was measured on; TILEWRIGHT_NONE for none */
} tilewright_kernel;

/* What serves a variant: some kernels, and what serves where none of them can. */
typedef struct {
    const tilewright_kernel *kernels;
    int count;
    int timed; /* whether they have costs */
    const tilewright_kernel *fallback;
} tilewright_rows;

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

/* ---- Problems and choices -------------------------------------------------- */

/* A product in column-major terms. */
typedef struct {
    int precision;  /* 0 1 2 3: s d c z */
    int op_a, op_b; /* 0 1 2: N T C */
    int aligned;    /* whether A and B begin at multiples of 16 bytes */
    int64_t m, n, k, lda, ldb, ldc;
} tilewright_problem;

/* What the device is: its multiprocessors, and which of tilewright_devices it is, bit by bit. */
typedef struct {
    int64_t multiprocessors;
    uint64_t is;
} tilewright_place;

typedef struct {
    const tilewright_kernel *kernel;
    int code;
} tilewright_choice;

/* Thread blocks in the grid, and of the second function. */
typedef struct {
    unsigned grid_x, grid_y;
    unsigned second_x;
} tilewright_grid;

int64_t tilewright_element_bytes(int precision);

/* The kernel for a problem, and its machine code; false where there is none. */
int tilewright_choose(const tilewright_problem *problem, const tilewright_place *place,
                      tilewright_choice *choice);

/* Nanoseconds to expect; sizes must be within tilewright_is_modelled. */
double tilewright_expected(const tilewright_kernel *kernel, const tilewright_problem *problem,
                           int64_t multiprocessors);

/* Whether sizes are such that a device holds the matrices, so that nothing overflows. */
int tilewright_is_modelled(const tilewright_problem *problem);

/* Whether the kernel reads the operands as they lie. */
int tilewright_takes(const tilewright_geometry *it, const tilewright_problem *problem);

/* The launch mode that suits sizes and leading dimensions. */
int tilewright_mode(const tilewright_geometry *it, const tilewright_problem *problem);

/* Tiles along a side, of whole clusters. */
int64_t tilewright_tiles(int64_t side, int64_t tile, int64_t cluster);

/* The number of parts of parallel split-K that is expected to take the shortest time. */
int64_t tilewright_parts(const tilewright_geometry *it, int64_t steps, int64_t tiles,
                         int64_t multiprocessors);

/* Lay the grid out; false where it is larger than CUDA's. */
int tilewright_lay_out(const tilewright_geometry *it, const tilewright_problem *problem,
                       int64_t multiprocessors, tilewright_grid *grid);

static inline int64_t tilewright_up(int64_t x, int64_t by) { return x / by + (x % by > 0); }
static inline int64_t tilewright_least(int64_t x, int64_t y) { return x < y ? x : y; }
static inline int64_t tilewright_most(int64_t x, int64_t y) { return x > y ? x : y; }

/* Blocks that share a tile at most, in stream-K and in parallel split-K. */
enum { TILEWRIGHT_MOST_SHARES = 64 };

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
tw_status tilewright_launch(const tilewright_problem *problem, tilewright_real alpha[2],
                            uintptr_t a, uintptr_t b, tilewright_real beta[2], uintptr_t c,
                            int reads, tw_stream stream);

/* The current device; the first of tilewright_devices where no context is current. */
tilewright_place tilewright_here(void);

/* The driver's sentence for a CUresult; null where it has none. */
const char *tilewright_driver_says(int result);

#endif
