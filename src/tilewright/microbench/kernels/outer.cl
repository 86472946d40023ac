/* The main loop of a GEMM without its memory: outer products of lines in shared memory.

   Shared memory holds DEPTH lines of a and of b, filled with random numbers.  A thread takes
   SIDE values of each line, in pieces of VECTOR (128 bits), and adds all their products to its
   SIDE x SIDE accumulators, c[i][j] += a[i] * b[j].  A line of b, VECTOR 4 and SIDE 8:

     |t0 t0 t0 t0|t1 t1 t1 t1| ... |t15 ...|t0 t0 t0 t0|t1 ...      t: column of threads
     piece 0 of every thread column        piece 1

   so that neighbours' pieces lie side by side and no banks collide; a likewise by rows of
   threads.  What a power limit makes of the clock depends on the bits that toggle: zeros or
   constants would not do.  CUDA counts the cycles of each thread.  Comes after
   a dialect's and a real precision's prelude.
   Macros: SIDE, VECTOR, DEPTH, THREADS, TRIPS. */

#ifdef __OPENCL_VERSION__
#define CYCLES() 0
#else
#define CYCLES() clock64()
#endif

#define COLUMNS 16
#define ROWS (THREADS / COLUMNS)

/* Between -1 and 1, bits in every place: two steps of the generator of Numerical Recipes
   (section 7.1, "even quicker"), mixed in between. */
HELPER REAL noise(unsigned int seed)
{
    unsigned int x = seed * 1664525u + 1013904223u;
    x = (x ^ (x >> 15)) * 1664525u + 1013904223u;
    return (REAL)(int)x * (REAL)4.656612873077393e-10; /* 2^-31 */
}

KERNEL THREADS_PER_BLOCK(THREADS) void outer(GLOBAL REAL *RESTRICT out,
                                             GLOBAL isize *RESTRICT cycles, const int step)
{
    SHARED_ARRAY ALIGNED(16) REAL a[DEPTH * ROWS * SIDE];
    SHARED_ARRAY ALIGNED(16) REAL b[DEPTH * COLUMNS * SIDE];
    for (int i = THREAD_ID; i < DEPTH * ROWS * SIDE; i += THREADS) a[i] = noise((unsigned int)i);
    for (int i = THREAD_ID; i < DEPTH * COLUMNS * SIDE; i += THREADS)
        b[i] = noise((unsigned int)i + 77777u);
    BARRIER();
    int at_a = THREAD_ID / COLUMNS, at_b = THREAD_ID % COLUMNS;
    REAL c[SIDE][SIDE];
    UNROLL for (int i = 0; i < SIDE; ++i)
        UNROLL for (int j = 0; j < SIDE; ++j) c[i][j] = 0;
    const isize begun = CYCLES();
    ROLLED for (int trip = 0; trip < TRIPS; ++trip) {
        UNROLL for (int k = 0; k < DEPTH; ++k) {
            REAL row[SIDE], column[SIDE];
            UNROLL for (int i = 0; i < SIDE; ++i)
                row[i] = a[(k * SIDE + i / VECTOR * VECTOR) * ROWS + at_a * VECTOR + i % VECTOR];
            UNROLL for (int j = 0; j < SIDE; ++j)
                column[j] =
                    b[(k * SIDE + j / VECTOR * VECTOR) * COLUMNS + at_b * VECTOR + j % VECTOR];
            UNROLL for (int i = 0; i < SIDE; ++i)
                UNROLL for (int j = 0; j < SIDE; ++j) c[i][j] += row[i] * column[j];
        }
        at_a += step; /* 0, which the compiler cannot know: it loads anew in every trip */
        at_b += step;
    }
    const isize ended = CYCLES();
    REAL sum = 0;
    UNROLL for (int i = 0; i < SIDE; ++i)
        UNROLL for (int j = 0; j < SIDE; ++j) sum += c[i][j];
    const int at = (int)(BLOCK_ID * THREADS) + THREAD_ID;
    out[at] = sum;
    cycles[at] = ended - begun;
}
