/* Barriers in shared memory that count bytes of the copy engine's boxes: compute capability 9.0.  A
 * part of sources that say what `shared_at` is, an address there. */

/* Of a kernel's argument that the engine reads where it lies. */
#define GRID_CONSTANT __grid_constant__

HELPER void begin_barrier(shared_at barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

/* Barriers that were begun are there for the copy engine and other blocks too. */
HELPER void publish_barriers(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Arrive, and say how many bytes of copies this phase waits for besides. */
HELPER void expect_bytes(shared_at barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}

/* Wait until the phase of that parity has ended.  What came are copies, which the barrier
 * itself counted: there are no stores of other blocks to see, nor caches to forget. */
HELPER void wait_for(shared_at barrier, unsigned int parity)
{
    asm volatile("{\n\t.reg .pred done;\n"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
                 "@!done bra again;\n\t}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}
