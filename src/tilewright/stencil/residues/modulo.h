/* Sums and products modulo the prime 2^31 - 1, for certificates (certify.cl).
 *
 * As 2^31 is 1, a number's upper bits are added to its 31 lower ones; x below 2^63 is then below 2^33.
 */
#define PRIME 0x7ffffffful

HELPER usize folded(usize x) { return (x & PRIME) + (x >> 31); }

/* Of |x| < 2^63: below 2^32, so that its product with a number below 2^31 can be folded. */
HELPER usize modulo(isize x)
{
    const usize left = folded(folded(x < 0 ? -(usize)x : (usize)x));
    return x < 0 ? 2 * PRIME - left : left;
}

/* Partial sums of what reconstruct.cl adds up, so that no address is everybody's. */
#define TOTALS 64

#ifdef __OPENCL_VERSION__
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#define ATOMIC_ADD_LONG(at, number) atom_add(at, number)
#else
#define ATOMIC_ADD_LONG(at, number) atomicAdd(at, number)
#endif

/* The block's numbers, each below 2^48, summed into the first. */
HELPER void add_up(SHARED usize *found)
{
    for (int left = THREADS / 2; left > 0; left /= 2) {
        BARRIER();
        if (THREAD_ID < left)
            found[THREAD_ID] += found[THREAD_ID + left];
    }
}
