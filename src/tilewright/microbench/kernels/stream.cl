/* Global memory read, written or copied, four 32-bit words at a time (sixteen on a CPU).

   A step of a block is THREADS * UNROLLED vectors (here 3 and 2), neighbours side by side:

     |012 012|012 012|012 012| ...        0, 1, 2: the thread that takes the vector
      step 0  step 1  step 2

   walk 0: block b takes the steps of its own part, one after the other; parts lie end to end
   walk 1: every block takes all steps, and begins where its part would begin
   walk 2: every block takes all steps from the first on: all read the same lines together

   Word w holds w * FACTOR + OFFSET modulo 2^32, so that sums have a closed form and a wrong or
   missing read shows.  Comes after a dialect's prelude.
   Macros: MODE_READ | MODE_WRITE | MODE_COPY, LANES 4 | 16, THREADS, UNROLLED. */

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#if LANES != 4 && !defined(__OPENCL_VERSION__)
#error "CUDA has vectors of up to four words"
#endif
typedef PASTE(uint, LANES) vector;

#ifdef __OPENCL_VERSION__
#define LOAD(pointer) (*(pointer))
#define ADD(sum, v) ((sum) += (v))
#else
/* Past the first-level cache, which would serve a block's own slice by itself. */
#define LOAD(pointer) __ldcg(pointer)
#define ADD(sum, v) ((sum).x += (v).x, (sum).y += (v).y, (sum).z += (v).z, (sum).w += (v).w)
#endif

HELPER unsigned int word(isize w) { return (unsigned int)w * FACTOR + OFFSET; }

/* What vector `at` of the array holds. */
HELPER vector pattern(isize at)
{
    vector v;
    const isize w = at * LANES;
#if LANES == 4
    v.x = word(w); v.y = word(w + 1); v.z = word(w + 2); v.w = word(w + 3);
#else
    v = (vector)(word(w)) + (vector)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) * FACTOR;
#endif
    return v;
}

HELPER unsigned int folded(vector v)
{
#if LANES == 4
    return v.x + v.y + v.z + v.w;
#else
    const uint8 a = v.lo + v.hi;
    const uint4 b = a.lo + a.hi;
    return b.x + b.y + b.z + b.w;
#endif
}

/* steps: of the whole array; parts of walk 0 are equal where it is a multiple of `blocks`. */
KERNEL THREADS_PER_BLOCK(THREADS) void stream(GLOBAL const vector *RESTRICT from,
                                              GLOBAL vector *RESTRICT to,
                                              GLOBAL unsigned int *RESTRICT sums,
                                              const int steps, const int blocks,
                                              const int passes, const int walk)
{
    const int block = (int)BLOCK_ID;
    const int own = (int)((isize)block * steps / blocks);
    const int first = walk == 0 ? own : 0;
    const int end = walk == 0 ? (int)((isize)(block + 1) * steps / blocks) : steps;
    int step = walk == 2 ? 0 : own;
    vector sum = pattern(0); /* the first vector counts once more than it is read */
    const isize trips = (isize)passes * (end - first);
    ROLLED for (isize trip = 0; trip < trips; ++trip) {
        const isize at = (isize)step * (THREADS * UNROLLED) + THREAD_ID;
#if defined(MODE_WRITE)
        UNROLL for (int u = 0; u < UNROLLED; ++u) to[at + u * THREADS] = pattern(at + u * THREADS);
#else
        vector got[UNROLLED];
        UNROLL for (int u = 0; u < UNROLLED; ++u) got[u] = LOAD(from + at + u * THREADS);
#if defined(MODE_COPY)
        UNROLL for (int u = 0; u < UNROLLED; ++u) to[at + u * THREADS] = got[u];
#else
        UNROLL for (int u = 0; u < UNROLLED; ++u) ADD(sum, got[u]);
#endif
#endif
        step = step + 1 == end ? first : step + 1;
    }
    sums[block * THREADS + THREAD_ID] = folded(sum);
}
