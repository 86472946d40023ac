/* CUDA's words for a CPU: enough to run a kernel text that keeps its PTX in functions.
 *
 * The threads of a block, and the blocks of a cluster, are coroutines: each runs until it
 * meets a barrier, in an order drawn anew after every barrier, so that what the text does
 * not order may happen in any order.  What a warp's lanes do together is a barrier too.  Asynchronous copies happen either at once or as late
 * as the text allows; a text that is right computes the same both ways.
 */
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
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

enum state { READY, AT_BLOCK_BARRIER, AT_CLUSTER_BARRIER, AT_WARP_PRODUCT, DONE };

constexpr int LANES = 32;

/* A lane's part of mma.sync in doubles: `rows` x 8 x `steps`. */
struct product {
    int rows, steps;
    double *const *c;
    const double *a, *b;
};

struct thread {
    ucontext_t context;
    std::vector<char> stack;
    index3 id;
    int rank; /* of the block in its cluster */
    state where;
    std::vector<std::vector<copy>> groups; /* not yet waited for; the last is open */
    product mine;
};

struct range { const char *begin, *end; };

/* Everything about one launch; one launch runs at a time. */
struct machine {
    std::vector<thread> threads; /* of one cluster */
    std::vector<std::vector<char>> shared;
    std::vector<int> running; /* threads of each block that have not ended */
    std::vector<range> readable;
    ucontext_t scheduler;
    thread *current;
    index3 block;
    bool late; /* copies happen when they are waited for */
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

/* Multiply what a warp's lanes hold: fragments as the PTX ISA has them, "Matrix Fragments for
 * mma.m16n8k16 with floating point type" and the others for .f64. */
inline void multiply(thread *lanes)
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
        multiply(lanes);
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
    bool released = release_warps();
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
    return released;
}

inline void run_cluster(std::mt19937 &random)
{
    now.running.assign(now.shared.size(), now.threads.size() / now.shared.size());
    for (thread &t : now.threads) {
        t.where = READY;
        t.groups.assign(1, {});
        getcontext(&t.context);
        t.context.uc_stack = {t.stack.data(), 0, t.stack.size()};
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
    } while (now.fault.empty() && release());
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
    now.readable.assign(l.readable, l.readable + l.arrays);
    now.threads.resize(l.threads * l.cluster);
    for (int i = 0; i < l.threads * l.cluster; ++i) {
        now.threads[i].stack.resize(STACK);
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
#define __syncthreads() emulated::leave(emulated::AT_BLOCK_BARRIER)
