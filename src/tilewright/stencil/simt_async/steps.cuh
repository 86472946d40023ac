/* Which tiles along k a block multiplies.  A part of kernel.cuh. */

/* The tiles that this block multiplies.  The first tile of all is the remainder of k, if
 * there is one; blocks that share a tile of C take consecutive runs of them. */
struct steps {
    isize begin;        /* tiles before this block's */
    unsigned int count; /* 2^32 of them are more than any memory holds */
    int first_depth;    /* how much of BLOCK_K the first tile of all has */
};

/* Those of the one with a number among `ranks`. */
HELPER steps steps_of(isize k, unsigned int rank, unsigned int ranks)
{
    const isize all = (k + BLOCK_K - 1) / BLOCK_K;
    steps s;
    s.begin = all * rank / ranks;
    s.count = (unsigned int)(all * (rank + 1) / ranks - s.begin);
    s.first_depth = (int)(k - (all - 1) * BLOCK_K);
    return s;
}
