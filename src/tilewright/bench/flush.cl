/* Write a buffer from end to end, so that it takes the place of what caches held.

       out:  | block 0: CHUNK words | block 1: CHUNK words | ... |
   The threads of a block write its chunk side by side: THREADS words at a time.

   Comes after a dialect and the real precision's prelude.  Macros: CHUNK words a block,
   THREADS in a block. */
KERNEL void flush(GLOBAL REAL *out, const REAL value)
{
    GLOBAL REAL *chunk = out + (size_t)BLOCK_ID * CHUNK;
    for (int at = THREAD_ID; at < CHUNK; at += THREADS)
        chunk[at] = value;
}
