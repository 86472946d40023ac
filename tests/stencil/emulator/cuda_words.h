/* CUDA's words for a CPU: enough to run a kernel text that keeps its PTX in functions.
 *
 * The threads of a block, and the blocks of a cluster, are coroutines: each runs until it
 * meets a barrier, in an order drawn anew after every barrier, so that what the text does
 * not order may happen in any order.  Asynchronous copies happen either at once or as late
 * as the text allows; a text that is right computes the same both ways.
 */
#pragma once
#include <ucontext.h>

#include <algorithm>
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
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)

struct float2 { float x, y; };
struct double2 { double x, y; };
struct index3 { int x, y, z; };

namespace emulated {

struct copy {
    unsigned to;
    const void *from;
    int bytes, total; /* read, and written: zeros behind what is read */
};

enum state { READY, AT_BLOCK_BARRIER, AT_CLUSTER_BARRIER, WAITING, DONE };

struct thread {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    index3 id;
    int rank; /* of the block in its cluster */
    state where;
    std::function<bool()> until;           /* what it waits for, if WAITING */
    std::vector<std::vector<copy>> groups; /* not yet waited for; the last is open */
    /* Multiplies likewise; how often it waited for some; whether a fence came since. */
    std::vector<std::vector<std::function<void()>>> multiplies;
    int waits;
    bool fenced;
    std::vector<std::vector<unsigned>> said; /* to other lanes of its warp, one each time */
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
    /* Copies happen when they are waited for, and multiplies at once; else the reverse: what
     * a multiply reads too late is then overwritten as early as can be. */
    bool late;
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

inline void run_one()
{
    now.body();
    leave(DONE);
}

/* Release who waits at a barrier that all have reached; false if nobody can go on. */
inline bool release()
{
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
            if (cluster || t.rank == rank)
                t.where = READY;
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

inline void run_cluster(std::mt19937 &random)
{
    now.barriers.clear();
    now.landing.clear();
    now.running.assign(now.shared.size(), now.threads.size() / now.shared.size());
    for (thread &t : now.threads) {
        t.where = READY;
        t.groups.assign(1, {});
        t.multiplies.assign(1, {});
        t.said.clear();
        t.waits = 0;
        t.fenced = false;
        getcontext(&t.context);
        t.context.uc_stack = {t.stack.get(), 0, STACK};
        t.context.uc_link = nullptr;
        makecontext(&t.context, run_one, 0);
    }
    std::vector<thread *> order;
    for (thread &t : now.threads) order.push_back(&t);
    const int first_block = now.block.x, ranks = now.shared.size();
    int first = 0;
    do {
        std::shuffle(order.begin(), order.end(), random);
        if (random() % 2) /* one block runs ahead of the others */
            std::stable_sort(order.begin(), order.end(), [&](thread *x, thread *y) {
                return (x->rank + first) % ranks < (y->rank + first) % ranks;
            });
        first = random() % ranks;
        for (thread *t : order)
            if (t->where == READY) {
                now.current = t;
                now.block.x = first_block + t->rank;
                swapcontext(&now.scheduler, &t->context);
                now.running[t->rank] -= t->where == DONE;
            }
    } while (now.fault.empty() && (release() || land(random)));
    if (!now.landing.empty())
        fault("a block ends before the copies to it");
    for (thread &t : now.threads)
        if (t.where != DONE)
            fault("a barrier is not met by all");
}

struct launch {
    int blocks, threads, cluster, shared_bytes, late, seed, arrays;
    const range *readable;
};

inline const char *run(const launch &l, std::function<void()> body)
{
    now = machine{};
    now.body = std::move(body);
    now.late = l.late;
    now.grid = {l.blocks, 1, 1};
    now.readable.assign(l.readable, l.readable + l.arrays);
    now.threads.resize(l.threads * l.cluster);
    for (int i = 0; i < l.threads * l.cluster; ++i) {
        now.threads[i].stack.reset(new char[STACK]); /* only what is used is ever touched */
        now.threads[i].id = {i % l.threads, 0, 0};
        now.threads[i].rank = i / l.threads;
    }
    std::mt19937 random(l.seed);
    for (int b = 0; b < l.blocks && now.fault.empty(); b += l.cluster) {
        /* All bits set: NaN, in either precision. */
        now.shared.assign(l.cluster, std::vector<char>(l.shared_bytes, (char)0xff));
        now.block = {b, 0, 0};
        run_cluster(random);
    }
    return now.fault.c_str();
}

}  // namespace emulated

#define threadIdx (emulated::now.current->id)
#define blockIdx (emulated::now.block)
#define gridDim (emulated::now.grid)
#define __syncthreads() emulated::leave(emulated::AT_BLOCK_BARRIER)
