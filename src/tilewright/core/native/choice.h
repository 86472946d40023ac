/* Which kernel serves a problem: tables of kernels, and what is asked of them.
 *
 *     choose.c     which kernel, in which launch mode
 *     ways.c       whether operands are copied before it
 *     model.c      how long a kernel is expected to take
 *     geometry.c   how a grid follows from a problem
 *
 * No driver, no allocation, no state: arithmetic on tables.  They are compiled into libraries that
 * are exported, and laid out at run time by tilewright.portfolio.native_choice, which mirrors the
 * structures up to tilewright_choice.
 */
#ifndef TILEWRIGHT_CHOICE_H
#define TILEWRIGHT_CHOICE_H

#include <stddef.h>
#include <stdint.h>

enum { TILEWRIGHT_TERMS = 11, TILEWRIGHT_NONE = -1 };

/* What a kernel's time counts for where its instance for the problem's launch mode is not there: so many
 * times, and nanoseconds more for a million elements of C; as tilewright.portfolio.choose has it. */
#define TILEWRIGHT_NOT_SCALAR 1.4
#define TILEWRIGHT_NOT_CLAMPED 1.15
#define TILEWRIGHT_NOT_STAGED 6000.0

/* ---- Tables --------------------------------------------------------------- */

/* How launches cover a result; see tilewright.stencil.geometry. */
typedef struct {
    int64_t tile_m, tile_n, tile_k, stages, resident;
    int64_t cluster_m, cluster_n, cluster_k;
    unsigned threads_x, threads_y;
    int folded, persistent, stream_k, tree;
    int tma, vector_along_k;
    int64_t tma_line_bytes, stages_k;
    int64_t most_k; /* steps of the longest sums that it is for; 0: of any length */
    int streamed; /* 1: A is read once, straight to registers; 2: B; 0: neither */
    int any_alignment; /* whether one instance serves every launch mode */
    int64_t map_line_bytes; /* of boxes that are one of some for a tile; 0: a box is a tile */
    int split_k;            /* whether the steps along k are cut into parts, as follows */
    double step_cycles;
    int64_t cut_bytes; /* of the sums that a block leaves, for the choice of the parts */
    unsigned reduction_blocks, reduction_threads;
    int64_t most_parts; /* of a tile */
    double reduction_cycles; /* of the reduction kernel, which one part goes without; 0: never */
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

/* ---- Problems and choices -------------------------------------------------- */

/* A product in column-major terms. */
typedef struct {
    int element_bytes;
    int is_single;        /* of float32: fewer blocks share a tile than in other precisions */
    int trans_a, trans_b; /* whether rows become columns */
    int aligned;          /* whether A and B begin at multiples of 16 bytes */
    int64_t m, n, k, lda, ldb, ldc;
    int64_t batch; /* such products in one launch; 0 or 1: one */
} tilewright_problem;

/* What the device is: its multiprocessors, which of those that kernels were measured on have as
 * many, a bit each, and its memory in bytes. */
typedef struct {
    int64_t multiprocessors;
    uint64_t alike;
    uint64_t memory;
} tilewright_place;

typedef struct {
    const tilewright_kernel *kernel;
    int mode;  /* that suits the problem */
    int code;  /* for it or the next best mode; TILEWRIGHT_NONE without machine code for any */
    double ns; /* that are expected; not a number where nothing is known of it */
} tilewright_choice;

/* Thread blocks in the grid, and of the second function, which is not launched without any. */
typedef struct {
    unsigned grid_x, grid_y;
    unsigned second_x;
} tilewright_grid;

/* How long a pass over memory takes that copies an operand: whatever its size, and for bytes that it
 * reads and writes. */
typedef struct {
    double begin_ns, bytes_per_ns;
} tilewright_copying;

/* A copy of an operand that every kernel takes, in aligned columns. */
typedef struct {
    int is_made;
    int is_transposed; /* whether it runs across the operand's memory */
    int64_t inner, outer, ld; /* elements along its memory, and across it */
    int64_t bytes;
} tilewright_copy;

/* How a product is computed: what the kernel computes, on A, B or their copies. */
typedef struct {
    tilewright_problem problem;
    tilewright_copy copies[2];
} tilewright_way;

/* What is copied, added up: a way's number. */
enum { TILEWRIGHT_COPIED_B = 1, TILEWRIGHT_COPIED_A = 2, TILEWRIGHT_WAYS = 4 };

/* Bits of the ways with copies whose passes are short beside the nanoseconds that are expected
 * without, and whose copies fit: the others need no closer look.  In `problem` A and B are as they
 * lie; `aligned` says of each whether it begins at a multiple of 16 bytes. */
unsigned tilewright_open_ways(const tilewright_problem *problem, const int aligned[2],
                              const tilewright_place *place, const tilewright_copying *copying,
                              double expected);

/* Find the way of which the shortest time is expected, of rows of kernels by the way's number; null
 * where there are none. */
void tilewright_find_way(const tilewright_rows *const from[TILEWRIGHT_WAYS],
                         const tilewright_problem *problem, const int aligned[2],
                         const tilewright_place *place, const tilewright_copying *copying,
                         tilewright_way *way);

/* The kernel for a problem; false where there is none. */
int tilewright_choose(const tilewright_rows *from, const tilewright_problem *problem,
                      const tilewright_place *place, tilewright_choice *choice);

/* Nanoseconds to expect; sizes must be within tilewright_is_modelled. */
double tilewright_expected(const tilewright_kernel *kernel, const tilewright_problem *problem,
                           int64_t multiprocessors);

/* Whether sizes are such that a device holds the matrices, so that nothing overflows. */
int tilewright_is_modelled(const tilewright_problem *problem);

/* Whether the kernel is for a problem, and reads its operands as they lie. */
int tilewright_takes(const tilewright_geometry *it, const tilewright_problem *problem);

/* The launch mode that suits sizes and leading dimensions. */
int tilewright_mode(const tilewright_geometry *it, const tilewright_problem *problem);

/* Elements that are copied or stored at once where they are aligned. */
int64_t tilewright_chunk(const tilewright_problem *problem);

/* Tiles along a side, of whole clusters. */
int64_t tilewright_tiles(int64_t side, int64_t tile, int64_t cluster);

/* The number of parts of parallel split-K that is expected to take the shortest time. */
int64_t tilewright_parts(const tilewright_geometry *it, int64_t steps, int64_t tiles,
                         int64_t multiprocessors);

/* How persistent blocks take tiles: some whole, and some shared along k. */
typedef struct {
    int64_t blocks, shared; /* tiles that are */
    int64_t workers;        /* blocks that share these */
    int64_t longest;        /* steps of k that one of them does at most */
} tilewright_division;

/* Divide tiles, each of so many steps of k, among persistent blocks; sizes must be within
 * tilewright_is_modelled. */
tilewright_division tilewright_divide(const tilewright_geometry *it,
                                      const tilewright_problem *problem, int64_t tiles,
                                      int64_t steps, int64_t multiprocessors);

/* Whether the reduction kernel runs behind so many parts of a tile. */
int tilewright_reduces(const tilewright_geometry *it, int64_t parts);

/* Lay the grid out; false where it is larger than CUDA's. */
int tilewright_lay_out(const tilewright_geometry *it, const tilewright_problem *problem,
                       int64_t multiprocessors, tilewright_grid *grid);

static inline int64_t tilewright_up(int64_t x, int64_t by) { return x / by + (x % by > 0); }
static inline int64_t tilewright_least(int64_t x, int64_t y) { return x < y ? x : y; }
static inline int64_t tilewright_most(int64_t x, int64_t y) { return x > y ? x : y; }

/* Blocks that share a tile at most, in stream-K. */
enum { TILEWRIGHT_MOST_SHARES = 64 };

#endif
