/* Zeros where the guard counts. */
#define THREADS 256

KERNEL THREADS_PER_BLOCK(THREADS) void clear(isize count, GLOBAL int *RESTRICT words)
{
    const isize at = (isize)BLOCK_ID * THREADS + THREAD_ID;
    if (at < count)
        words[at] = 0;
}
