/* The PTX functions of stencil/lu/words.cuh, for a CPU. */
HELPER unsigned int warp_max(unsigned int v)
{
    const auto all = host::exchange(v);
    return *std::max_element(all.begin(), all.end());
}

HELPER unsigned int warp_ballot(bool v)
{
    unsigned int bits = 0, lane = 0;
    for (unsigned int one : host::exchange(v)) bits |= one << lane++;
    return bits;
}

HELPER unsigned int warp_read(unsigned int v, int lane) { return host::exchange(v)[lane]; }

HELPER void warp_meet(void) { host::exchange(0); }

HELPER void send_words(words4 *to, words4 v)
{
    usize pair[2];
    memcpy(pair, &v, sizeof v);
    for (int i = 0; i < 2; ++i) __atomic_store_n((usize *)to + i, pair[i], __ATOMIC_RELAXED);
}

HELPER words4 look_at_words(const words4 *from)
{
    usize pair[2];
    words4 v;
    for (int i = 0; i < 2; ++i) pair[i] = __atomic_load_n((usize *)from + i, __ATOMIC_RELAXED);
    memcpy(&v, pair, sizeof v);
    host::leave(host::LOOKING);
    return v;
}

HELPER void meet_blocks(unsigned int *counter, unsigned int all)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(counter, __ATOMIC_ACQUIRE) < all) host::leave(host::LOOKING);
}

#if CLUSTER
/* An mbarrier: bytes that are expected and not yet there, whether they are all, and its phase. */
struct bytes_of_phase { int missing; short expected, phase; };
static char *arrivals_of[CLUSTER];
static std::mutex arriving;

static void count_bytes(void *at, int bytes, bool expected)
{
    std::lock_guard<std::mutex> lock(arriving);
    bytes_of_phase &its = *(bytes_of_phase *)at;
    its.missing += bytes;
    its.expected |= expected;
    if (its.expected && !its.missing)
        its = {0, 0, (short)!its.phase};
}

HELPER void make_arrivals(usize *arrivals)
{
    *arrivals = 0;
    if (!arrivals_of[blockIdx.x])
        arrivals_of[blockIdx.x] = (char *)arrivals;
}

HELPER void expect_bytes(usize *arrivals, int bytes) { count_bytes(arrivals, bytes, true); }

HELPER void wait_for_bytes(usize *arrivals, int parity)
{
    for (;; host::leave(host::LOOKING)) {
        std::lock_guard<std::mutex> lock(arriving);
        if (((bytes_of_phase *)arrivals)->phase != parity)
            return;
    }
}

HELPER void send_to_block(words4 *place, int block, words4 v, usize *arrivals)
{
    const auto beyond = arrivals_of[block] - arrivals_of[blockIdx.x];
    memcpy((char *)place + beyond, &v, sizeof v);
    count_bytes((char *)arrivals + beyond, -(int)sizeof v, false);
}

HELPER void meet_cluster(void)
{
    static std::atomic<int> met;
    static thread_local int mine[1024];
    const int all = gridDim.x * THREADS;
    ++met;
    for (const int wanted = all * ++mine[threadIdx.x]; met < wanted;) host::leave(host::LOOKING);
}
#endif

HELPER std::vector<double> exchange_doubles(double x)
{
    usize bits;
    memcpy(&bits, &x, sizeof x);
    const auto low = host::exchange((unsigned int)bits), high = host::exchange(bits >> 32);
    std::vector<double> all(WARP);
    for (int lane = 0; lane < WARP; ++lane) {
        bits = low[lane] | (usize)high[lane] << 32;
        memcpy(&all[lane], &bits, sizeof bits);
    }
    return all;
}

HELPER void multiply_by_warp(double *c, const double *a, double b)
{
    const int g = threadIdx.x % WARP / 4, t = threadIdx.x % 4;
    const auto above = exchange_doubles(a[0]), below = exchange_doubles(a[1]);
    const auto right = exchange_doubles(b);
    for (int k = 0; k < 4; ++k)
        for (int n = 0; n < 2; ++n) {
            c[n] += above[4 * g + k] * right[4 * (2 * t + n) + k];
            c[2 + n] += below[4 * g + k] * right[4 * (2 * t + n) + k];
        }
}

HELPER elem read_fresh(const elem *from) { return *from; }
HELPER int read_fresh_int(const int *from) { return *from; }

#if ELEM_BYTES == REAL_BYTES
HELPER REAL rough_inverse(REAL x) { return (REAL)(1 / x * 1.000001); }
#endif

HELPER usize bits_of(REAL x)
{
    usize bits = 0;
    memcpy((char *)&bits + sizeof bits - sizeof x, &x, sizeof x);
    return bits;
}
