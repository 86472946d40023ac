/* Copies from device memory to shared memory that the hardware does by itself: PTX's cp.async, for
 * compute capability 8.0 and later.  A copy goes on while the thread does other things.  L2 is
 * advised to fetch whole lines of 128 bytes: what a tile leaves of A's lines, the next ones take.
 */

/* Where something lies in shared memory, in bytes, as the copies want it. */
typedef unsigned int shared_address;

HELPER shared_address address_of(const SHARED float *pointer)
{
    shared_address address;
    asm("{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }"
        : "=r"(address)
        : "l"(pointer));
    return address;
}

/* Ask for four elements; both addresses are multiples of 16 bytes.  They go past the L1 cache. */
HELPER void copy16(shared_address to, const GLOBAL float *from)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from));
}

/* Ask for one element, or for a zero where it is not inside: of the 4 bytes that are written, so
 * many are read. */
HELPER void copy4(shared_address to, const GLOBAL float *from, int inside)
{
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(inside ? 4 : 0));
}

/* What a thread asked for since the last call is a group, perhaps an empty one. */
HELPER void end_group(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Wait until all groups but the last `count` have arrived. */
#define WAIT_FOR_ALL_BUT(count) asm volatile("cp.async.wait_group %0;" ::"n"(count) : "memory")
