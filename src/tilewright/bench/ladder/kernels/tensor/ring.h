/* The ring of rungs 3 to 5, between a warpgroup that brings tiles and others that multiply them.
 *
 *     | stage 0 | stage 1 | ... | full 0, full 1 ... | empty 0, empty 1 ... |
 *
 * Each stage has two barriers.  `full` ends a phase when its bytes have come, `empty` when every
 * warp that multiplies has done with them.  Nobody else meets:
 *
 *     producer     wait for empty   ->  announce bytes, start copies     ->  next stage
 *     consumers    wait for full    ->  start multiplies, wait for them  ->  arrive at empty
 */

#define CONSUMERS 2 /* warpgroups, 64 rows of the block each */
#define WARPS_OF_CONSUMERS (CONSUMERS * GROUP / 32)

/* Registers are dealt out when a block starts, 168 for each of 384 threads.  Who only starts copies
 * gives most of its own to those who hold sums: 128 (40 + 2 x 232) is less than 65536. */
#define PRODUCER_REGISTERS 40
#define CONSUMER_REGISTERS 232

/* Where one is in the ring: steps since the kernel began. */
struct ring {
    shared_at arena;
    unsigned int step;
};

HELPER shared_at stage_of(ring r) { return r.arena + r.step % STAGES * STAGE_BYTES; }

HELPER shared_at full_of(ring r)
{
    return r.arena + STAGES * STAGE_BYTES + 8 * (r.step % STAGES);
}

HELPER shared_at empty_of(ring r) { return full_of(r) + 8 * STAGES; }

HELPER unsigned int parity_of(ring r) { return r.step / STAGES & 1; }

/* One thread begins all barriers; `readers` warps empty a stage. */
HELPER void begin_ring(shared_at arena, int readers)
{
    for (ring r = {arena, 0}; r.step < STAGES; ++r.step) {
        begin_barrier(full_of(r), 1);
        begin_barrier(empty_of(r), readers);
    }
    publish_barriers();
}

/* The parity before the first one counts as ended: nobody has to empty what was never full. */
HELPER void wait_until_empty(ring r) { wait_for(empty_of(r), parity_of(r) ^ 1); }
HELPER void wait_until_full(ring r) { wait_for(full_of(r), parity_of(r)); }
