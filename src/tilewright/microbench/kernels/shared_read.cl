/* Shared memory read, WORDS (1, 2 or 4) 32-bit words a thread and load, without bank conflicts.

   The array, UNROLLED rows of THREADS pieces:

     row 0   |piece 0|piece 1| ... |piece THREADS - 1|     piece t belongs to thread t
     row 1   |...                                    |     a trip reads all rows once

   Word w holds w * FACTOR + OFFSET modulo 2^32; a thread's sum has a closed form.  `step` is 0,
   which the compiler cannot know: it must load again in every trip.  CUDA counts the cycles that
   the slowest thread of each block takes.  Comes after a dialect's prelude.
   Macros: WORDS, THREADS, UNROLLED, TRIPS. */

#if WORDS == 1
typedef unsigned int piece;
#define ADD(sum, v) ((sum) += (v))
#define FOLDED(v) (v)
#elif WORDS == 2
typedef uint2 piece;
#define ADD(sum, v) ((sum).x += (v).x, (sum).y += (v).y)
#define FOLDED(v) ((v).x + (v).y)
#else
typedef uint4 piece;
#define ADD(sum, v) ((sum).x += (v).x, (sum).y += (v).y, (sum).z += (v).z, (sum).w += (v).w)
#define FOLDED(v) ((v).x + (v).y + (v).z + (v).w)
#endif

#ifdef __OPENCL_VERSION__
#define CYCLES() 0
#else
#define CYCLES() clock64()
#endif

KERNEL THREADS_PER_BLOCK(THREADS) void shared_read(GLOBAL unsigned int *RESTRICT sums,
                                                   GLOBAL isize *RESTRICT cycles, const int step)
{
    SHARED_ARRAY ALIGNED(16) unsigned int words[UNROLLED * THREADS * WORDS];
    for (int w = THREAD_ID; w < UNROLLED * THREADS * WORDS; w += THREADS)
        words[w] = (unsigned int)w * FACTOR + OFFSET;
    BARRIER();
    SHARED const piece *from = (SHARED const piece *)words + THREAD_ID;
    piece sum = from[step]; /* one read more than the trips make */
    const isize begun = CYCLES();
    ROLLED for (int trip = 0; trip < TRIPS; ++trip) {
        UNROLL for (int u = 0; u < UNROLLED; ++u) ADD(sum, from[u * THREADS]);
        from += step;
    }
    const unsigned int total = FOLDED(sum); /* the clock waits for the last load */
    BARRIER();
    const isize ended = CYCLES();
    const int at = (int)(BLOCK_ID * THREADS) + THREAD_ID;
    sums[at] = total;
    cycles[at] = ended - begun;
}
