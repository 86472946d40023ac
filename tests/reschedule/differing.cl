/* Fill a buffer with a pattern; count the words in which two buffers differ.

       words:  | thread 0 | thread 1 | ... | thread T - 1 | thread 0 | thread 1 | ...
       counts: one word for each of the T threads of the grid; each adds to its own

   Threads read side by side, so both run at the memory's speed.  Comes after a dialect.
   Macros: BLOCK_THREADS in a block, GRID_THREADS (T) in the grid. */
KERNEL void fill(GLOBAL unsigned int *out, const isize words, const unsigned int pattern)
{
    for (isize at = (isize)BLOCK_ID * BLOCK_THREADS + THREAD_ID; at < words; at += GRID_THREADS)
        out[at] = pattern;
}

KERNEL void differing(GLOBAL const unsigned int *one, GLOBAL const unsigned int *other,
                      GLOBAL unsigned int *counts, const isize words)
{
    const isize first = (isize)BLOCK_ID * BLOCK_THREADS + THREAD_ID;
    unsigned int found = 0;
    for (isize at = first; at < words; at += GRID_THREADS)
        found += one[at] != other[at];
    counts[first] += found;
}
