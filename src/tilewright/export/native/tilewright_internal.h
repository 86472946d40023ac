/* What the library's own files share.
 *
 *     tilewright_gemm.c       arguments checked, the call made
 *     tilewright_overlap.c    whether two matrices share an element
 *     tilewright_calls.c      plans kept, looked up and started
 *     tilewright_laying.c     a plan laid out: a way and a kernel chosen, arguments, tensor maps
 *     tilewright_pieces.c     into how many pieces of k a product is cut
 *     tilewright_contexts.c   contexts, and machine code loaded into them
 *     tilewright_precision.c  precisions, operations and scalars
 *     choice.h                what chooses: choose.c, ways.c, model.c, geometry.c
 *     core.h                  what launches: plan.c, arena.c, table.c, driver.c
 *     kernels.c               written by the exporter: the tables below
 *     image_*.c               written by the exporter: machine code
 */
#ifndef TILEWRIGHT_INTERNAL_H
#define TILEWRIGHT_INTERNAL_H

#include "choice.h"
#include "core.h"
#include "tilewright_gemm.h"

/* ---- Precisions ------------------------------------------------------------- */

/* A precision is a place in "sdcz", an operation one in "NTC". */
enum { TILEWRIGHT_PRECISIONS = 4, TILEWRIGHT_TRANSPOSES = 3, TILEWRIGHT_UNKNOWN = -1 };
extern const char tilewright_letters[], tilewright_operations[];

static inline int tilewright_is_double(int64_t precision) { return (precision & 1) != 0; }
static inline int tilewright_is_complex(int64_t precision) { return precision > 1; }

/* Bytes of an element. */
int64_t tilewright_element_bytes(int64_t precision);

/* Those of a letter in either case; TILEWRIGHT_UNKNOWN of another.  On real elements C is T. */
int tilewright_precision_of(char letter);
int tilewright_operation_of(char letter, int64_t precision);

/* Read a scalar's two parts; a real one has no imaginary part. */
tilewright_scalar tilewright_read_scalar(const void *scalar, int64_t precision);

/* Whether a scalar is a real number. */
int tilewright_equals(const tilewright_scalar *x, double value);

/* The scalar 1 in memory. */
const void *tilewright_one(int64_t precision);

/* ---- Tables --------------------------------------------------------------- */

/* Machine code of one launch mode of a kernel, and what its launches need. */
typedef struct {
    const char *name;            /* as the manifest has it */
    const void *image;           /* a cubin */
    const char *symbol, *second; /* its function, and one launched behind it or null */
    unsigned shared_bytes;       /* dynamic shared memory of a block */
    unsigned part_bytes;         /* what each block needs of a workspace */
} tilewright_code;

/* What copies a precision's operands (realign.cl). */
typedef struct {
    tilewright_copying takes;
    int64_t side;        /* of the tile that a block moves; 0 where nothing is copied */
    unsigned threads;    /* of a block */
    int straight;        /* code of what aligns columns, */
    int transposed;      /* of what transposes as well, */
    int conjugated;      /* and conjugates; TILEWRIGHT_NONE for real elements */
} tilewright_copies;

extern const tilewright_code tilewright_codes[];
extern const int tilewright_code_count;
/* Multiprocessors of the devices that kernels were measured on. */
extern const int64_t tilewright_devices[];
extern const int tilewright_device_count; /* at least one, at most 64 */

/* By precision (s d c z), and by the operations on A and B (N T C). */
extern const tilewright_copies tilewright_copying_of[TILEWRIGHT_PRECISIONS];
extern const tilewright_rows
    tilewright_rows_of[TILEWRIGHT_PRECISIONS][TILEWRIGHT_TRANSPOSES][TILEWRIGHT_TRANSPOSES];

/* Of kernels that compute a batch in one launch, by machine code of their own. */
extern const tilewright_rows
    tilewright_batched_of[TILEWRIGHT_PRECISIONS][TILEWRIGHT_TRANSPOSES][TILEWRIGHT_TRANSPOSES];

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

/* The same for matrices of batches, whose first ones are given, so many elements apart. */
int tilewright_batch_fits(const tilewright_matrix *x, int64_t step, int64_t batch,
                          int64_t element_bytes);

/* Whether the memory that two batches that fit reach over has an element in common. */
int tilewright_batches_meet(const tilewright_matrix *x, int64_t step_x, const tilewright_matrix *y,
                            int64_t step_y, int64_t batch, int64_t element_bytes);

/* Whether two matrices of a batch, of which the first fits, may share an element. */
int tilewright_meets_itself(const tilewright_matrix *x, int64_t step, int64_t batch);

/* ---- Contexts ---------------------------------------------------------------- */

/* Of a code in a context: its functions, and the module that they are in. */
typedef struct {
    void *function, *second, *module; /* null where it is not loaded */
} tilewright_loaded;

typedef struct tilewright_context {
    unsigned long long id;
    struct tilewright_context *next;
    void *handle;
    tilewright_place place;
    int begins_early; /* whether a launch may begin before the one before it has ended */
    tilewright_loaded loaded[];
} tilewright_context;

/* The current context; made known to the library if it is new. */
tw_status tilewright_current(tilewright_context **here);

/* Load a code that is not in the tables into the current context. */
tw_status tilewright_load(const tilewright_code *code, tilewright_loaded *loaded);

/* A code's functions in the current context, loaded if they are not. */
tw_status tilewright_function(tilewright_context *here, int code, void **function, void **second);

/* Load all codes of the tables into the current context, or unload them from it. */
tw_status tilewright_load_all(tilewright_context *here);
tw_status tilewright_unload_all(tilewright_context *here);

/* The current device; the first of tilewright_devices where no context is current. */
tilewright_place tilewright_here(void);

/* The library's status for a CUresult. */
tw_status tilewright_status_of(int result);

/* The driver's sentence for a CUresult; null where it has none. */
const char *tilewright_driver_says(int result);

/* ---- Plans --------------------------------------------------------------------- */

/* A product in column-major terms, and all else that its plan depends on.  Compared byte by byte:
 * has no padding. */
typedef struct {
    uint64_t context;
    int64_t m, n, k, lda, ldb, ldc;
    int64_t batch, step_a, step_b, step_c; /* so many products, and elements between matrices */
    int64_t precision;
    uint32_t op_a, op_b;
    uint32_t begins_a, begins_b; /* addresses modulo 16 */
    uint32_t reads;              /* whether A and B are read: k is not 0, nor alpha */
    uint32_t lean;               /* whether it does without copies */
    uint32_t emulated, is_real; /* whether tilewright_emulation lays it out; scalars there */
} tilewright_product;

/* Find the best way to compute a product on a device, and the kernel for it among those of a variant;
 * false for none. */
int tilewright_way_of(const tilewright_product *it, const tilewright_place *place,
                      tilewright_way *way, const tilewright_rows **from, tilewright_choice *choice);

/* A piece of k: where it begins, what its kernel computes, and which that is. */
typedef struct {
    int64_t first;
    tilewright_problem problem;
    tilewright_choice choice;
} tilewright_piece;

/* At most; sums that are so long are not cut. */
enum { TILEWRIGHT_PIECES = 64 };

/* Products of a launch, as many as a grid has blocks in z (CUDA C++ Programming Guide, technical
 * specifications), and of a plan. */
enum { TILEWRIGHT_LAUNCHED = 65535, TILEWRIGHT_PLANNED = TILEWRIGHT_PIECES * TILEWRIGHT_LAUNCHED };

/* Cut a product that one kernel of some rows would compute; returns into how many pieces. */
unsigned tilewright_cut(const tilewright_rows *from, const tilewright_problem *problem,
                        const tilewright_place *place, const tilewright_choice *whole,
                        tilewright_piece pieces[TILEWRIGHT_PIECES]);

/* Lay the plan of a product out, in the current context. */
tw_status tilewright_lay(tilewright_context *here, const tilewright_product *it,
                         tilewright_plan **plan, int *has_copies);

/* What lays plans of emulated arithmetic out, whose accuracy is another than IEEE's, by precision;
 * null: nothing does.  TW_NO_KERNEL of products that are computed by IEEE arithmetic. */
typedef tw_status tilewright_layer(tilewright_context *here, const tilewright_product *it,
                                   tilewright_plan **plan);
extern tilewright_layer *tilewright_emulation[TILEWRIGHT_PRECISIONS];

/* Whether the last product that this thread started was emulated; and whether it starts no others,
 * which are TW_NO_KERNEL. */
extern _Thread_local int tilewright_was_emulated, tilewright_only_emulated;

/* Start the plan of a product in the current context, which is filled in. */
tw_status tilewright_multiply(tilewright_product *it, const tilewright_call *call);

/* Forget all plans, once nobody starts them any more. */
void tilewright_forget_plans(void);

#endif
