/* What lets threads run, and decides when: compiled once, for all kernels. */
#include <signal.h>

#include <algorithm>
#include <random>

#include "cuda_words.h"

namespace emulated {

machine now;

namespace {

/* Multiply what a warp's lanes hold: fragments as the PTX ISA has them, "Matrix Fragments for
 * mma.m16n8k16 with floating point type" and the others for .f64. */
void multiply_warp(thread *lanes)
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

/* Release the warps all of whose lanes have started a product, or are at their barrier; false if
 * there is none. */
bool release_warps()
{
    bool released = false;
    for (size_t first = 0; first + LANES <= now.threads.size(); first += LANES) {
        thread *const lanes = &now.threads[first];
        const state at = lanes->where;
        if ((at != AT_WARP_PRODUCT && at != AT_WARP_BARRIER) ||
            std::any_of(lanes, lanes + LANES, [&](thread &t) { return t.where != at; }))
            continue;
        if (at == AT_WARP_PRODUCT)
            multiply_warp(lanes);
        for (int lane = 0; lane < LANES; ++lane) lanes[lane].where = READY;
        released = true;
    }
    return released;
}

void run_one()
{
    now.body(now.arguments);
    leave(DONE);
}

/* Let a thread run until it leaves. */
void go_on(thread &t)
{
    if (_setjmp(now.scheduler))
        return;
    if (t.begun)
        _longjmp(t.left_at, 1);
    t.begun = true;
    setcontext(&t.context);
}

/* Release who waits at a barrier of some of a block's threads; false if nobody can go on. */
bool release_some()
{
    bool released = false;
    std::map<std::pair<int, int>, std::vector<thread *>> meeting; /* by block and barrier */
    for (thread &t : now.threads)
        if (t.where == AT_SOME_BARRIER)
            meeting[{t.rank, t.barrier}].push_back(&t);
    for (const auto &[at, there] : meeting) {
        const int rank = at.first;
        if ((int)there.size() != there[0]->meets)
            continue;
        for (thread *t : there) {
            t->where = READY;
            move_all(now.left[rank], t->own);
        }
        apply(now.taken[rank]);
        released = true;
    }
    return released;
}

/* Release who waits at a barrier that all have reached; false if nobody can go on. */
bool release()
{
    if (release_warps()) /* whoever is at a barrier waits a little longer */
        return true;
    bool released = release_some();
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
bool land(std::mt19937 &random)
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
bool start_blocks(std::vector<int> &order, int most)
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

const int NONE = -1;

/* Run every thread that can go on, in a new order, but those of a warp that lags; false if there is
 * none. */
bool run_ready(std::mt19937 &random, int first_block, int lagging)
{
    std::vector<thread *> order;
    bool ran = false;
    for (thread &t : now.threads)
        if (lagging == NONE || (&t - now.threads.data()) / LANES != lagging)
            order.push_back(&t);
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
            go_on(*t);
            now.running[t->rank] -= t->where == DONE;
            ran = true;
        }
    return ran;
}

/* More than any of our kernels keeps in a frame when nothing lives in registers; of these bytes
 * only what is used is ever touched.  They stay for launches that follow. */
constexpr size_t STACK = 256 * 1024;
std::vector<std::unique_ptr<char[]>> stacks;

/* All threads at their first instruction, and nothing under way. */
void set_out()
{
    now.barriers.clear();
    now.landing.clear();
    now.running.assign(now.shared.size(), 0);
    now.left.assign(now.shared.size(), {});
    now.taken.assign(now.shared.size(), {});
    while (stacks.size() < now.threads.size()) stacks.emplace_back(new char[STACK]);
    for (size_t i = 0; i < now.threads.size(); ++i) {
        thread &t = now.threads[i];
        t.where = WAITING_TO_START;
        t.groups.assign(1, {});
        t.multiplies.assign(1, {});
        t.said.clear();
        t.waits = 0;
        t.begun = t.fenced = t.at_flag = false;
        getcontext(&t.context);
        t.context.uc_stack = {stacks[i].get(), 0, STACK};
        t.context.uc_link = nullptr;
        makecontext(&t.context, run_one, 0);
    }
}

/* Run the blocks of a cluster, or all persistent ones, `most` of them at a time. */
void run_blocks(std::mt19937 &random, int most)
{
    set_out();
    std::vector<int> order;
    for (int rank = 0; rank < (int)now.shared.size(); ++rank) order.push_back(rank);
    std::shuffle(order.begin(), order.end(), random);
    const int first_block = now.block.x;
    start_blocks(order, most);
    /* Every other time one warp goes on only where the others cannot. */
    const int warps = now.threads.size() / LANES;
    const int lagging = warps > 1 && random() % 2 ? (int)(random() % warps) : NONE;
    for (bool goes_on = true; goes_on && now.fault.empty();) {
        run_ready(random, first_block, lagging);
        const bool released = release(), started = start_blocks(order, most);
        goes_on = released || started ||
                  (lagging != NONE && run_ready(random, first_block, NONE)) || land(random);
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

/* Arrays end at pages that nobody may touch (device.py): who does ends there. */
void touched(int)
{
    fault("an access outside every array");
    leave(DONE);
}

struct watch {
    struct sigaction before;
    watch()
    {
        struct sigaction mine = {};
        mine.sa_handler = touched;
        mine.sa_flags = SA_NODEFER; /* the handler is left by a jump, and is there for the next */
        sigaction(SIGSEGV, &mine, &before);
    }
    ~watch() { sigaction(SIGSEGV, &before, nullptr); }
};

}  // namespace

const char *run(const launch &l, void (*body)(void **), void **arguments)
{
    const watch watching;
    now = machine{};
    now.body = body;
    now.arguments = arguments;
    now.late = l.late;
    now.grid = {l.blocks, 1, l.batch};
    now.readable.assign(l.readable, l.readable + l.arrays);
    const int together = l.at_once ? l.blocks : l.cluster;
    now.threads.resize(l.threads * together);
    for (int i = 0; i < l.threads * together; ++i) {
        now.threads[i].id = {i % l.threads, 0, 0};
        now.threads[i].rank = i / l.threads;
    }
    std::mt19937 random(l.seed);
    for (int z = 0; z < l.batch; ++z)
        for (int b = 0; b < l.blocks && now.fault.empty(); b += together) {
            /* All bits set: NaN, in either precision. */
            now.shared.assign(together, std::vector<char>(l.shared_bytes, (char)0xff));
            now.block = {b, 0, z};
            run_blocks(random, l.at_once ? l.at_once : together);
        }
    return now.fault.c_str();
}

}  // namespace emulated
