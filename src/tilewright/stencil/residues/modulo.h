/* Sums of products with random numbers modulo the prime q = 2^31 - 1, for certificates (certify.cl).
 *
 * A number's upper bits are added to its 31 lower ones, as 2^31 is 1; the upper word of one counts twice,
 * as 2^32 is 2.
 */
#define PRIME 0x7ffffffful
#define RANDOM_BITS 27

/* x times a random number, below 2^60 in magnitude. */
HELPER isize random_product(isize x, unsigned int random)
{
    return ((isize)(unsigned int)x + 2 * (isize)(int)(x >> 32)) * (isize)random;
}

HELPER usize folded(usize x) { return (x & PRIME) + (x >> 31); }

/* Of |x| < 2^63, below 2^32, so that 2^30 times it can be folded. */
HELPER usize modulo(isize x)
{
    const usize left = folded(folded(x < 0 ? -(usize)x : (usize)x));
    return x < 0 ? 2 * PRIME - left : left;
}

/* Partial sums of what reconstruct.cl adds up, so that no address is everybody's. */
#define TOTALS 64

/* Add every thread's number, below 2^34, to one in device memory; all threads of a block come here. */
#ifdef __OPENCL_VERSION__
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#define ATOMIC_ADD_LONG(at, number) atom_add(at, number)
HELPER void add_all(GLOBAL usize *at, usize x) { ATOMIC_ADD_LONG(at, x); }
#else
#define ATOMIC_ADD_LONG(at, number) atomicAdd(at, number)
HELPER void add_all(usize *at, usize x)
{
    UNROLL for (int left = 16; left > 0; left /= 2) x += __shfl_down_sync(0xffffffffu, x, left);
    if (THREAD_ID % 32 == 0)
        ATOMIC_ADD_LONG(at, x);
}
#endif
