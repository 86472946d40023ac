/* CUDA's words for a CPU: enough to run a kernel text that keeps its PTX in functions.
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
 */
#pragma once
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
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

enum state { WAITING_TO_START, READY, AT_BLOCK_BARRIER, AT_CLUSTER_BARRIER, AT_WARP_PRODUCT,
             WAITING, DONE };

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
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    index3 id;
    int rank; /* of the block in its cluster */
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
    ucontext_t scheduler;
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
    std::function<void()> body;
    std::string fault; /* the first */
};
inline machine now;

/* More than any of our kernels keeps in a frame when nothing lives in registers. */
constexpr size_t STACK = 256 * 1024;

inline void fault(const std::string &what)
{
    if (now.fault.empty())
        now.fault = what;
}

inline void leave(state where)
{
    thread *self = now.current;
    self->where = where;
    swapcontext(&self->context, &now.scheduler);
}

/* Let others run until a condition holds. */
inline void wait_until(std::function<bool()> condition)
{
    if (condition())
        return;
    now.current->until = std::move(condition);
    leave(WAITING);
}

inline char *shared_bytes(int rank, unsigned at, int bytes, const char *doing)
{
    std::vector<char> &memory = now.shared[rank];
    if (now.running[rank] == 0)
        fault(std::string(doing) + " the shared memory of a block that has ended");
    if (at % bytes || at + bytes > memory.size()) {
        fault(std::string(doing) + " shared memory at " + std::to_string(at) + " of " +
              std::to_string(memory.size()));
        return memory.data();
    }
    return memory.data() + at;
}

/* Fault what is read outside every array, or from where so many bytes cannot be read. */
inline bool check_readable(const void *at, int bytes, int alignment)
{
    const char *from = (const char *)at;
    const bool known = std::any_of(now.readable.begin(), now.readable.end(), [&](range r) {
        return from >= r.begin && from + bytes <= r.end;
    });
    if (bytes && !known)
        fault("a read outside every array");
    else if ((uintptr_t)from % alignment)
        fault("a read from an address that is not aligned");
    else
        return true;
    return false;
}

inline void perform(const copy &c)
{
    char *to = shared_bytes(now.current->rank, c.to, c.total, "a copy writes");
    if (!check_readable(c.from, c.bytes, c.total))
        return;
    std::memset(to, 0, c.total);
    std::memcpy(to, c.from, c.bytes);
}

inline void start(const copy &c)
{
    if (now.late)
        now.current->groups.back().push_back(c);
    else
        perform(c);
}

inline void wait_for_all_but(int latest)
{
    auto &groups = now.current->groups; /* the open group is not waited for */
    while ((int)groups.size() - 1 > latest) {
        for (const copy &c : groups.front()) perform(c);
        groups.erase(groups.begin());
    }
}

/* Write for another block. */
inline void write_for_others(void *to, const void *from, int bytes)
{
    const char *first = (const char *)from;
    if (!check_readable(to, bytes, bytes))
        return;
    if (now.late)
        now.current->own.push_back({(char *)to, {first, first + bytes}});
    else
        std::memcpy(to, from, bytes);
}

inline void move_all(writes &to, writes &from)
{
    to.insert(to.end(), from.begin(), from.end());
    from.clear();
}

inline void apply(writes &these)
{
    for (const write &w : these) std::memcpy(w.to, w.bytes.data(), w.bytes.size());
    these.clear();
}

/* Raise a word: the block's writes before its last barrier go with it, and the thread's own. */
inline void release_word(unsigned *at)
{
    if (*at)
        fault("a flag is raised twice");
    move_all(now.sent[at], now.left[now.current->rank]);
    move_all(now.sent[at], now.current->own);
    *at = 1;
}

/* Wait for a word; what came with it is there behind the block's next barrier. */
inline void acquire_word(const unsigned *at)
{
    now.current->at_flag = true;
    while (!*at) wait_until([at] { return *at != 0; });
    now.current->at_flag = false;
    move_all(now.taken[now.current->rank], now.sent[(unsigned *)at]);
}

/* Multiply what a warp's lanes hold: fragments as the PTX ISA has them, "Matrix Fragments for
 * mma.m16n8k16 with floating point type" and the others for .f64. */
inline void multiply_warp(thread *lanes)
{
    const int rows = lanes->mine.rows, steps = lanes->mine.steps;
    std::vector<double> a(rows * steps), b(steps * 8);
    for (int lane = 0; lane < LANES; ++lane) {
        const product &p = lanes[lane].mine;
        if (p.rows != rows || p.steps != steps)
            return fault("lanes of a warp start different products");
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < rows * steps / LANES; ++i)
            a[(g + i % (rows / 8) * 8) * steps + t + i / (rows / 8) * 4] = p.a[i];
        for (int i = 0; i < steps / 4; ++i) b[(t + 4 * i) * 8 + g] = p.b[i];
    }
    for (int lane = 0; lane < LANES; ++lane)
        for (int i = 0; i < rows / 4; ++i) {
            const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
            double &sum = *lanes[lane].mine.c[i];
            for (int l = 0; l < steps; ++l)
                sum = std::fma(a[row * steps + l], b[l * 8 + column], sum);
        }
}

inline void warp_product(const product &mine)
{
    now.current->mine = mine;
    leave(AT_WARP_PRODUCT);
}

/* Release the warps all of whose lanes have started a product; false if there is none. */
inline bool release_warps()
{
    bool released = false;
    for (size_t first = 0; first + LANES <= now.threads.size(); first += LANES) {
        thread *const lanes = &now.threads[first];
        if (std::any_of(lanes, lanes + LANES,
                        [](thread &t) { return t.where != AT_WARP_PRODUCT; }))
            continue;
        multiply_warp(lanes);
        for (int lane = 0; lane < LANES; ++lane) lanes[lane].where = READY;
        released = true;
    }
    return released;
}

inline void run_one()
{
    now.body();
    leave(DONE);
}

/* Release who waits at a barrier that all have reached; false if nobody can go on. */
inline bool release()
{
    if (release_warps()) /* whoever is at a barrier waits a little longer */
        return true;
    bool released = false;
    auto all = [](state s, int rank) {
        return std::all_of(now.threads.begin(), now.threads.end(), [&](thread &t) {
            return t.where == s || (rank >= 0 && t.rank != rank);
        });
    };
    for (int rank = 0; rank <= (int)now.shared.size(); ++rank) {
        const bool cluster = rank == (int)now.shared.size();
        const state at = cluster ? AT_CLUSTER_BARRIER : AT_BLOCK_BARRIER;
        if (!all(at, cluster ? -1 : rank))
            continue;
        for (thread &t : now.threads)
            if (cluster || t.rank == rank) {
                t.where = READY;
                move_all(now.left[t.rank], t.own);
            }
        if (!cluster)
            apply(now.taken[rank]);
        released = true;
    }
    for (thread &t : now.threads)
        if (t.where == WAITING && t.until()) {
            t.where = READY;
            released = true;
        }
    return released;
}

/* Let one of the copies that are under way land; false if there is none. */
inline bool land(std::mt19937 &random)
{
    if (now.landing.empty())
        return false;
    std::swap(now.landing[random() % now.landing.size()], now.landing.back());
    const std::function<void()> last = std::move(now.landing.back());
    now.landing.pop_back();
    last();
    return true;
}

/* Start blocks while fewer than `most` run. */
inline bool start_blocks(std::vector<int> &order, int most)
{
    int running = 0;
    for (int left : now.running) running += left > 0;
    bool started = false;
    for (; running < most && !order.empty(); ++running, started = true) {
        const int rank = order.back();
        order.pop_back();
        for (thread &t : now.threads)
            if (t.rank == rank) {
                t.where = READY;
                ++now.running[rank];
            }
    }
    return started;
}

/* Run every thread that can go on, in a new order. */
inline void run_ready(std::mt19937 &random, int first_block)
{
    std::vector<thread *> order;
    for (thread &t : now.threads) order.push_back(&t);
    std::shuffle(order.begin(), order.end(), random);
    const int first = random() % now.shared.size(), ranks = now.shared.size();
    if (random() % 2) /* one block runs ahead of the others */
        std::stable_sort(order.begin(), order.end(), [&](thread *x, thread *y) {
            return (x->rank + first) % ranks < (y->rank + first) % ranks;
        });
    for (thread *t : order)
        if (t->where == READY) {
            now.current = t;
            now.block.x = first_block + t->rank;
            swapcontext(&now.scheduler, &t->context);
            now.running[t->rank] -= t->where == DONE;
        }
}

/* All threads at their first instruction, and nothing under way. */
inline void set_out()
{
    now.barriers.clear();
    now.landing.clear();
    now.running.assign(now.shared.size(), 0);
    now.left.assign(now.shared.size(), {});
    now.taken.assign(now.shared.size(), {});
    for (thread &t : now.threads) {
        t.where = WAITING_TO_START;
        t.groups.assign(1, {});
        t.multiplies.assign(1, {});
        t.said.clear();
        t.waits = 0;
        t.fenced = t.at_flag = false;
        getcontext(&t.context);
        t.context.uc_stack = {t.stack.get(), 0, STACK};
        t.context.uc_link = nullptr;
        makecontext(&t.context, run_one, 0);
    }
}

/* Run the blocks of a cluster, or all that stay, `most` of them at a time. */
inline void run_blocks(std::mt19937 &random, int most)
{
    set_out();
    std::vector<int> order;
    for (int rank = 0; rank < (int)now.shared.size(); ++rank) order.push_back(rank);
    std::shuffle(order.begin(), order.end(), random);
    const int first_block = now.block.x;
    start_blocks(order, most);
    for (bool goes_on = true; goes_on && now.fault.empty();) {
        run_ready(random, first_block);
        const bool released = release(), started = start_blocks(order, most);
        goes_on = released || started || land(random);
    }
    if (!now.landing.empty())
        fault("a block ends before the copies to it");
    for (thread &t : now.threads) {
        if (t.where == WAITING && t.at_flag)
            fault("blocks wait for one another");
        if (t.where != DONE)
            fault("a barrier is not met by all");
        apply(t.own);
    }
    for (writes &w : now.left) apply(w);
}

struct launch {
    int blocks, threads, cluster, shared_bytes, late, seed, arrays;
    int at_once; /* blocks that run at a time where all of the grid are there; else 0 */
    const range *readable;
};

inline const char *run(const launch &l, std::function<void()> body)
{
    now = machine{};
    now.body = std::move(body);
    now.late = l.late;
    now.grid = {l.blocks, 1, 1};
    now.readable.assign(l.readable, l.readable + l.arrays);
    const int together = l.at_once ? l.blocks : l.cluster;
    now.threads.resize(l.threads * together);
    for (int i = 0; i < l.threads * together; ++i) {
        now.threads[i].stack.reset(new char[STACK]); /* only what is used is ever touched */
        now.threads[i].id = {i % l.threads, 0, 0};
        now.threads[i].rank = i / l.threads;
    }
    std::mt19937 random(l.seed);
    for (int b = 0; b < l.blocks && now.fault.empty(); b += together) {
        /* All bits set: NaN, in either precision. */
        now.shared.assign(together, std::vector<char>(l.shared_bytes, (char)0xff));
        now.block = {b, 0, 0};
        run_blocks(random, l.at_once ? l.at_once : together);
    }
    return now.fault.c_str();
}

}  // namespace emulated

#define threadIdx (emulated::now.current->id)
#define blockIdx (emulated::now.block)
#define gridDim (emulated::now.grid)
#define __syncthreads() emulated::leave(emulated::AT_BLOCK_BARRIER)
