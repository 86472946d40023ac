/* Plans: launches laid out once, started again and again; what Python and C callers share.
 *
 *     table.c    which plan serves a call, by the layout of its arrays
 *     plan.c     plans made, and started
 *     arena.c    device memory that the calls of a stream share
 *     driver.c   the CUDA driver's functions
 *
 * These, and what chooses (choice.h), are compiled into libraries that are exported, too.  For
 * Python alone:
 *
 *     chosen.c   which kernel serves a problem, as choice.h has it
 *     seen.c     what there is to see of CuPy's arrays, PyTorch's tensors, double-double matrices
 *     arrays.c   calls with these, from Python's objects to a launch
 *     group.c    the same of lists of them
 *
 * A plan is immutable.  What differs from call to call (addresses, scalars, stream) is patched into
 * a copy of its arguments on the caller's stack, so that threads start one plan at once.
 */
#ifndef TILEWRIGHT_CORE_H
#define TILEWRIGHT_CORE_H

#include <stddef.h>
#include <stdint.h>

/* Of functions that Python calls: where they are the library's own, the build makes them visible. */
#ifndef TILEWRIGHT_API
#define TILEWRIGHT_API
#endif

/* ---- The driver --------------------------------------------------------------- */

typedef struct {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void *stream;
    const void *attributes;
    unsigned attribute_count;
} tilewright_cu_config; /* CUlaunchConfig of cuda.h */

typedef struct {
    unsigned id, pad;
    unsigned value[16];
} tilewright_cu_attribute; /* CUlaunchAttribute of cuda.h */

/* In the order of driver.c's names.  Handles are pointers, statuses CUresult: 0 is success. */
typedef struct {
    int (*current)(void **context);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*launch)(const tilewright_cu_config *config, void *function, void **arguments,
                  void **extra);
    int (*move_map)(void *map, void *address);
    int (*capturing)(void *stream, int *status);
    int (*stream_id)(void *stream, unsigned long long *id);
    int (*allocate)(uint64_t *memory, size_t bytes, void *stream);
    int (*free)(uint64_t memory, void *stream);
    int (*clear)(uint64_t memory, unsigned char value, size_t bytes, void *stream);
    int (*free_now)(uint64_t memory);
    int (*synchronize)(void);
    int (*exchange_mode)(int *mode); /* of the thread, in which it captures streams */
    int (*context_id)(void *context, unsigned long long *id);
    int (*context_device)(int *device);
    int (*device_attribute)(int *value, int attribute, int device);
    int (*device_memory)(size_t *bytes, int device);
    int (*load)(void **module, const void *image);
    int (*unload)(void *module);
    int (*function)(void **function, void *module, const char *name);
    int (*set_attribute)(void *function, int attribute, int value);
    int (*error_string)(int result, const char **text);
    int (*encode_map)(void *map, int type, unsigned rank, void *first, const uint64_t *sizes,
                      const uint64_t *strides, const unsigned *box, const unsigned *steps,
                      int interleave, int swizzle, int promotion, int fill);
    int (*new_event)(void **event, unsigned flags);
    int (*record)(void *event, void *stream);
} tilewright_cu;

extern tilewright_cu tilewright_driver;

/* Find the driver, once; 0 where it is not here, or is older than CUDA 12. */
TILEWRIGHT_API int tilewright_find_driver(void);

/* ---- Plans -------------------------------------------------------------------- */

/* A launch; its arguments are `count` places of the plan's, from `first` on. */
typedef struct {
    void *function; /* CUfunction */
    unsigned grid_x, grid_y, grid_z, block_x, block_y, shared_bytes;
    unsigned early; /* whether its blocks may begin before the launch before it has ended */
    unsigned first, count;
} tilewright_launch;

/* What is written into an argument at each call. */
enum {
    TILEWRIGHT_A,        /* the address of A, plus `delta` bytes */
    TILEWRIGHT_B,
    TILEWRIGHT_C,
    TILEWRIGHT_REPORT,   /* of memory for the guard's decision */
    TILEWRIGHT_SCRATCH,  /* of the call's workspace; what lies before it is zero between calls */
    TILEWRIGHT_ALPHA_RE, /* scalars, as `type` has them */
    TILEWRIGHT_ALPHA_IM,
    TILEWRIGHT_BETA_RE,
    TILEWRIGHT_BETA_IM,
    TILEWRIGHT_VECTOR /* the address of a vector; behind it those of the others */
};
enum { TILEWRIGHT_VECTORS = 3 };
enum { TILEWRIGHT_FLOAT, TILEWRIGHT_DOUBLE, TILEWRIGHT_PAIR, TILEWRIGHT_INT };

typedef struct {
    unsigned place; /* of the argument; where that is a tensor map its address is moved */
    unsigned char kind, type;
    uint16_t member; /* of a group, whose A, B or C it is */
    int64_t delta;
} tilewright_patch;

/* In place of the number of an argument's tensor map: it is none, or a map in a table, which takes
 * its place and those behind it. */
enum { TILEWRIGHT_NO_MAP = -1, TILEWRIGHT_MAP_HERE = -2 };

/* A number of up to two words a part: real high and low, imaginary high and low. */
typedef struct {
    double re, re_low, im, im_low;
} tilewright_scalar;

typedef struct {
    uint64_t a, b, c, report; /* as kernels have them: A may be the caller's b */
    tilewright_scalar alpha, beta;
    void *stream;
    uint64_t vectors[TILEWRIGHT_VECTORS]; /* of an epilogue */
    const uint64_t *members; /* A, B and C of each member of a group; null: it is none */
} tilewright_call;

typedef struct tilewright_plan tilewright_plan;

/* Make a plan of copies of everything given; null where memory is short, or no address space holds
 * the workspace.
 *
 * Arguments have 16 bytes each, but for a last one that is a table, which has as many places as it
 * wants behind its first, a multiple of four.  `map_of` has the tensor map of each place; a map has
 * 128 bytes.  The workspace has `zero_bytes` before TILEWRIGHT_SCRATCH and `scratch_bytes` behind. */
TILEWRIGHT_API tilewright_plan *tilewright_plan_new(
    void *context, const tilewright_launch *launches, unsigned launch_count, const void *places,
    const int *map_of, unsigned place_count, const void *maps, unsigned map_count,
    const tilewright_patch *patches, unsigned patch_count, uint64_t zero_bytes,
    uint64_t scratch_bytes);
TILEWRIGHT_API void tilewright_plan_free(tilewright_plan *plan);

/* Matrices of a batch: how many, and bytes from those of one product to the next's. */
typedef struct {
    int64_t count, a, b, c;
} tilewright_repeat;

/* Let a plan that has not been started be started for each product of a batch of some dimensions,
 * the first one slowest: its launches are enqueued again and again, at other addresses.  False where
 * memory is short. */
TILEWRIGHT_API int tilewright_plan_repeat(tilewright_plan *plan, const tilewright_repeat *repeats,
                                          unsigned count);

/* The bytes of a plan's workspace. */
TILEWRIGHT_API uint64_t tilewright_plan_bytes(const tilewright_plan *plan);

/* Whether a plan's workspace is small enough to be kept for the next call on a stream; what needs
 * more takes it for one call. */
TILEWRIGHT_API int tilewright_plan_shares(const tilewright_plan *plan);

/* No CUresults; nothing was done. */
enum {
    TILEWRIGHT_NO_WORKSPACE = -1, /* the stream's arena is too small for the plan, or has none */
    TILEWRIGHT_NO_MEMORY = -2     /* the device has too little memory for the plan's workspace */
};

/* Whether this thread has enqueued a launch of a plan since whoever asks set this to 0: one that
 * fails behind others leaves results that are neither what they were nor whole. */
extern _Thread_local int tilewright_has_launched;

/* Enqueue a plan's launches; returns a CUresult, or TILEWRIGHT_NO_WORKSPACE with nothing done.
 * Into a stream that is captured go, with them, nodes for memory of the graph's own. */
TILEWRIGHT_API int tilewright_start(const tilewright_plan *plan, const tilewright_call *call);

/* The same in memory of the caller's, whose first `zero_bytes` are made zero. */
TILEWRIGHT_API int tilewright_start_in(const tilewright_plan *plan, const tilewright_call *call,
                                       uint64_t memory);

/* The same in memory of the driver's: an arena for the stream where it has none that is large
 * enough, or memory of this call alone.  `freed` as of tilewright_arena_put. */
TILEWRIGHT_API int tilewright_run(const tilewright_plan *plan, const tilewright_call *call,
                                  uint64_t *freed);

/* ---- Arenas ------------------------------------------------------------------- */

/* Streams that have one at the same time.  A program that makes a stream for each call must not
 * collect memory for all of them; so many that work at once are rare. */
enum { TILEWRIGHT_ARENAS = 32 };

/* Raise what a plan needs to what an arena has: no less than most plans need, so that few make it
 * anew. */
TILEWRIGHT_API void tilewright_arena_sizes(uint64_t *zero_bytes, uint64_t *scratch_bytes);

/* Give a stream an arena of the caller's memory: `zero_bytes` before `scratch`, which are zero, and
 * `scratch_bytes` behind.  Returns a CUresult.  `freed` becomes the scratch of an arena of somebody's
 * memory that is no longer used, if there is one: the stream's before, or the one used least
 * recently. */
TILEWRIGHT_API int tilewright_arena_put(void *context, void *stream, uint64_t scratch,
                                        uint64_t zero_bytes, uint64_t scratch_bytes,
                                        uint64_t *freed);

/* Take memory of the driver's, in a stream's order.  Returns a CUresult or TILEWRIGHT_NO_MEMORY. */
int tilewright_take(uint64_t *memory, uint64_t bytes, void *stream);

/* The same as tilewright_arena_put in such memory, which is freed when the arena is no longer
 * used. */
int tilewright_arena_make(void *context, void *stream, uint64_t zero_bytes, uint64_t scratch_bytes,
                          uint64_t *freed);

/* Forget the arenas of the current context, wait for its work, and free those of the driver's
 * memory.  Returns a CUresult. */
TILEWRIGHT_API int tilewright_arena_release(void *context);

/* Find where a plan's scratch is on a stream; 0 where the arena is too small.  Until the caller lets
 * it go no other call enqueues what works there.  Returns a CUresult. */
int tilewright_arena_hold(void *context, void *stream, uint64_t zero_bytes,
                          uint64_t scratch_bytes, uint64_t *scratch);

/* `spoiled`: what should be zero may not be, because a launch failed. */
void tilewright_arena_let_go(uint64_t scratch, int spoiled);

#endif
