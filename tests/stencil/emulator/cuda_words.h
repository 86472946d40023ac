/* CUDA's words for a CPU: enough to run a kernel source that keeps its PTX in functions.
 *
 * The threads of a block, and the blocks of a cluster, are coroutines: each runs until it
 * meets a barrier, in an order drawn anew after every barrier, so that what the text does
 * not order may happen in any order.  Asynchronous copies happen either at once or as late
 * as the text allows; a text that is right computes the same both ways.  What the lanes of a
 * warp do together, they wait for as for a barrier.
 *
 * Where blocks stay and wait for one another, the whole grid is there at once, but only so many
 * blocks run at a time, started in an order drawn anew: more than any GPU may do to a text that
 * relies on neither.  What one block writes for another is seen as late as the memory model
 * allows (PTX ISA, "Memory Consistency Model"): after a barrier of the writer's block, a
 * release, an acquire of the same word, and a barrier of the reader's block.
 *
 * Functions are only named here where they can be: kernels are compiled by the hundred, and
 * engine.cc, cuda_words.cc and hopper_words.cc once.
 */
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
inline void __threadfence() {} /* blocks run one after the other, or as one thread */
#define __launch_bounds__(...)

struct float2 { float x, y; };
struct alignas(16) double2 { double x, y; };
struct index3 { int x, y, z; };

namespace emulated {

struct copy {
    unsigned to;
    const void *from;
    int bytes, total; /* read, and written: zeros behind what is read */
};

enum state { WAITING_TO_START, READY, AT_BLOCK_BARRIER, AT_CLUSTER_BARRIER, AT_SOME_BARRIER,
             AT_WARP_BARRIER, AT_WARP_PRODUCT, WAITING, DONE };

/* Bytes for another block. */
struct write {
    char *to;
    std::vector<char> bytes;
};
typedef std::vector<write> writes;

constexpr int LANES = 32;

/* A lane's part of mma.sync in doubles: `rows` x 8 x `steps`. */
struct product {
    int rows, steps;
    double *const *c;
    const double *a, *b;
};

struct thread {
    ucontext_t context; /* where it begins */
    jmp_buf left_at;    /* where it goes on: swapcontext would ask the kernel for signals each time */
    bool begun;
    index3 id;
    int rank; /* of the block in its cluster */
    int barrier, meets; /* which of some, and threads that it waits for, if AT_SOME_BARRIER */
    state where;
    std::function<bool()> until;           /* what it waits for, if WAITING */
    bool at_flag;                          /* and that is a word of another block's */
    std::vector<std::vector<copy>> groups; /* not yet waited for; the last is open */
    writes own;                            /* for other blocks, since the last barrier */
    /* Multiplies likewise; how often it waited for some; whether a fence came since. */
    std::vector<std::vector<std::function<void()>>> multiplies;
    int waits;
    bool fenced;
    std::vector<std::vector<unsigned>> said; /* to other lanes of its warp, one each time */
    product mine;
};

struct range { const char *begin, *end; };

/* A barrier in shared memory. */
struct barrier {
    int count, pending;
    long long bytes; /* still to come in this phase; negative if they come before they are
                        expected */
    unsigned phase;
};

/* Everything about one launch; one launch runs at a time. */
struct machine {
    std::vector<thread> threads; /* of one cluster */
    std::vector<std::vector<char>> shared;
    std::vector<int> running; /* threads of each block that have not ended */
    std::vector<range> readable;
    jmp_buf scheduler;
    thread *current;
    index3 block, grid;
    /* Copies happen when they are waited for, writes for others when they must be seen, and
     * multiplies at once; else the reverse: what a multiply reads too late is then overwritten
     * as early as can be. */
    bool late;
    std::vector<writes> left, taken;   /* of each block: behind a barrier; before one */
    std::map<unsigned *, writes> sent; /* with a word that was raised */
    /* What the copy engine has not yet done; happens when nobody can go on without it. */
    std::vector<std::function<void()>> landing;
    std::map<std::pair<int, unsigned>, struct barrier> barriers; /* by block and address */
    void (*body)(void **); /* the kernel, from its arguments */
    void **arguments;
    std::string fault; /* the first */
};
extern machine now; /* engine.cc */

void fault(const std::string &what);

void leave(state where);

/* Meet some threads of the block at the barrier of a number. */
void meet(int barrier, int threads);

/* Let others run until a condition holds. */
void wait_until(std::function<bool()> condition);

char *shared_bytes(int rank, unsigned at, int bytes, const char *doing);

bool is_readable(const char *from, int bytes);

/* Fault what is read outside every array, or from where so many bytes cannot be read. */
bool check_readable(const void *at, int bytes, int alignment);

void perform(const copy &c);

void start(const copy &c);

void wait_for_all_but(int latest);

/* Write for another block. */
void write_for_others(void *to, const void *from, int bytes);

void move_all(writes &to, writes &from);

void apply(writes &these);

/* Raise a word: the block's writes before its last barrier go with it, and the thread's own. */
void release_word(unsigned *at);

/* Wait for a word; what came with it is there behind the block's next barrier. */
void acquire_word(const unsigned *at);

void warp_product(const product &mine);

struct launch {
    int blocks, threads, cluster, shared_bytes, late, seed, arrays;
    int at_once; /* blocks that run at a time where all of the grid are there; else 0 */
    int batch;   /* blocks in z */
    const range *readable;
};

/* Run a kernel, all its threads; return the first fault or nothing. */
const char *run(const launch &l, void (*body)(void **), void **arguments);

}  // namespace emulated

#define threadIdx (emulated::now.current->id)
#define blockIdx (emulated::now.block)
#define gridDim (emulated::now.grid)
#define __syncthreads() emulated::leave(emulated::AT_BLOCK_BARRIER)
