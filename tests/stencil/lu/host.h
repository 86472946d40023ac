/* Kernels of stencil/lu on a CPU: a block is a thread of the system, its threads are coroutines.
 *
 * Unlike the emulator's (tests/stencil/emulator), blocks run truly at once, and have shared arrays
 * of their own.  A thread runs until it meets a barrier, does something with its warp, or looks for
 * another block's words; then others go on, in an order drawn anew.
 */
#pragma once
#include <sched.h>
#include <ucontext.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#define EMULATED "words.h"
#define __global__
#define __device__
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __shared__ thread_local

struct float2 { float x, y; };
struct alignas(16) double2 { double x, y; };
inline void __threadfence() {}

namespace host {

enum state { READY, AT_BARRIER, AT_WARP, LOOKING, DONE };

struct coroutine {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    state where;
};

struct block {
    ucontext_t scheduler;
    std::vector<coroutine> threads;
    int now, number, all;
    std::vector<unsigned> said; /* by lanes, to their warps */
};

constexpr int LANES = 32, STACK = 1 << 16;
inline thread_local block *mine;
inline std::function<void()> body;

inline void leave(state where)
{
    coroutine &self = mine->threads[mine->now];
    self.where = where;
    swapcontext(&self.context, &mine->scheduler);
}

/* Return what all lanes of the warp say. */
inline std::vector<unsigned> exchange(unsigned v)
{
    const int first = mine->now / LANES * LANES;
    mine->said[mine->now] = v;
    leave(AT_WARP);
    const std::vector<unsigned> all(&mine->said[first], &mine->said[first] + LANES);
    leave(AT_WARP); /* nobody says anything else before all have heard */
    return all;
}

inline void run_thread()
{
    body();
    leave(DONE);
}

inline void run_block(int number, int all, int threads)
{
    block its;
    mine = &its;
    its.number = number;
    its.all = all;
    its.threads.resize(threads);
    its.said.resize(threads);
    for (coroutine &t : its.threads) {
        getcontext(&t.context);
        t.stack.reset(new char[STACK]);
        t.context.uc_stack.ss_sp = t.stack.get();
        t.context.uc_stack.ss_size = STACK;
        t.context.uc_link = nullptr;
        makecontext(&t.context, run_thread, 0);
        t.where = READY;
    }
    std::mt19937 random(number);
    for (;;) {
        std::vector<int> order;
        for (int i = 0; i < threads; ++i)
            if (its.threads[i].where == READY || its.threads[i].where == LOOKING)
                order.push_back(i);
        std::shuffle(order.begin(), order.end(), random);
        for (int i : order) {
            its.now = i;
            swapcontext(&its.scheduler, &its.threads[i].context);
        }
        auto count = [&](int first, int last, state where) {
            return std::count_if(its.threads.begin() + first, its.threads.begin() + last,
                                 [&](coroutine &t) { return t.where == where; });
        };
        for (int first = 0; first < threads; first += LANES)
            if (count(first, first + LANES, AT_WARP) == LANES)
                for (int i = first; i < first + LANES; ++i) its.threads[i].where = READY;
        const auto done = count(0, threads, DONE), barred = count(0, threads, AT_BARRIER);
        if (done == threads)
            return;
        if (done + barred == threads)
            for (coroutine &t : its.threads)
                if (t.where == AT_BARRIER)
                    t.where = READY;
        if (!count(0, threads, READY)) {
            if (!count(0, threads, LOOKING))
                abort(); /* nobody can go on */
            sched_yield();
        }
    }
}

inline void run(int blocks, int threads, std::function<void()> kernel)
{
    body = std::move(kernel);
    std::vector<std::thread> all;
    for (int i = 0; i < blocks; ++i) all.emplace_back(run_block, i, blocks, threads);
    for (std::thread &one : all) one.join();
}

template <class... Given, size_t... I>
void call(void (*kernel)(Given...), void **arguments, std::index_sequence<I...>)
{
    kernel(*(std::remove_reference_t<Given> *)arguments[I]...);
}

template <class... Given> void launch(void (*kernel)(Given...), int blocks, int threads, void **at)
{
    run(blocks, threads, [=] { call(kernel, at, std::index_sequence_for<Given...>{}); });
}

struct index { int x; };

}  // namespace host

#define threadIdx (host::index{host::mine->now})
#define blockIdx (host::index{host::mine->number})
#define gridDim (host::index{host::mine->all})
#define __syncthreads() host::leave(host::AT_BARRIER)
inline int __ffs(int v) { return __builtin_ffs(v); }
