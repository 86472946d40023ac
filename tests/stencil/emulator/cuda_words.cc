/* What the words of cuda_words.h do: compiled once, for all kernels. */
#include "cuda_words.h"

namespace emulated {

void fault(const std::string &what)
{
    if (now.fault.empty())
        now.fault = what;
}

void leave(state where)
{
    thread *const self = now.current;
    self->where = where;
    if (!_setjmp(self->left_at))
        _longjmp(now.scheduler, 1);
}

void meet(int barrier, int threads)
{
    now.current->barrier = barrier;
    now.current->meets = threads;
    leave(AT_SOME_BARRIER);
}

void wait_until(std::function<bool()> condition)
{
    if (condition())
        return;
    now.current->until = std::move(condition);
    leave(WAITING);
}

char *shared_bytes(int rank, unsigned at, int bytes, const char *doing)
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

bool is_readable(const char *from, int bytes)
{
    return std::any_of(now.readable.begin(), now.readable.end(), [&](range r) {
        return from >= r.begin && from + bytes <= r.end;
    });
}

bool check_readable(const void *at, int bytes, int alignment)
{
    const char *from = (const char *)at;
    if (bytes && !is_readable(from, bytes))
        fault("a read outside every array");
    else if ((uintptr_t)from % alignment)
        fault("a read from an address that is not aligned");
    else
        return true;
    return false;
}

void perform(const copy &c)
{
    char *to = shared_bytes(now.current->rank, c.to, c.total, "a copy writes");
    if (!check_readable(c.from, c.bytes, c.total))
        return;
    std::memset(to, 0, c.total);
    std::memcpy(to, c.from, c.bytes);
}

void start(const copy &c)
{
    if (now.late)
        now.current->groups.back().push_back(c);
    else
        perform(c);
}

void wait_for_all_but(int latest)
{
    auto &groups = now.current->groups; /* the open group is not waited for */
    while ((int)groups.size() - 1 > latest) {
        for (const copy &c : groups.front()) perform(c);
        groups.erase(groups.begin());
    }
}

void write_for_others(void *to, const void *from, int bytes)
{
    const char *first = (const char *)from;
    if (!check_readable(to, bytes, bytes))
        return;
    if (now.late)
        now.current->own.push_back({(char *)to, {first, first + bytes}});
    else
        std::memcpy(to, from, bytes);
}

void move_all(writes &to, writes &from)
{
    to.insert(to.end(), from.begin(), from.end());
    from.clear();
}

void apply(writes &these)
{
    for (const write &w : these) std::memcpy(w.to, w.bytes.data(), w.bytes.size());
    these.clear();
}

void release_word(unsigned *at)
{
    if (*at)
        fault("a flag is raised twice");
    move_all(now.sent[at], now.left[now.current->rank]);
    move_all(now.sent[at], now.current->own);
    *at = 1;
}

void acquire_word(const unsigned *at)
{
    now.current->at_flag = true;
    while (!*at) wait_until([at] { return *at != 0; });
    now.current->at_flag = false;
    move_all(now.taken[now.current->rank], now.sent[(unsigned *)at]);
}

void warp_product(const product &mine)
{
    now.current->mine = mine;
    leave(AT_WARP_PRODUCT);
}

}  // namespace emulated
