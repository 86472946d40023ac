/* The ring of stages, and who may touch one.  A part of kernel.cuh. */

#if ELEMENT == ELEMENT_F16 || ELEMENT == ELEMENT_BF16
#define ELEMENT_BYTES 2
#elif ELEMENT == ELEMENT_TF32
#define ELEMENT_BYTES 4
#else
#define ELEMENT_BYTES 1
#endif

#define PART_BYTES_A (BLOCK_M * BLOCK_K * ELEMENT_BYTES)
#define PART_BYTES_B (BLOCK_N * BLOCK_K * ELEMENT_BYTES)
#define STAGE_BYTES (PARTS * (PART_BYTES_A + PART_BYTES_B))

/* | stages | full of each | empty of each | turn of each consumer |, 8 bytes a barrier */
#define BARRIERS_AT (STAGES * STAGE_BYTES)

/* Who copies into a block's stages: blocks of its row and of its column of the cluster. */
#define PEERS (CLUSTER_M + CLUSTER_N - 1)

/* A stage, and the parity of how often the ring has gone round. */
struct ring {
    unsigned int stage, round;
};

HELPER void advance(ring *at)
{
    if (++at->stage == STAGES) {
        at->stage = 0;
        at->round ^= 1;
    }
}

/* Leave so many stages to other consumers. */
HELPER void skip(ring *at, unsigned int stages)
{
    const unsigned int to = at->stage + stages;
    at->stage = to % STAGES;
    at->round ^= to / STAGES & 1;
}

HELPER shared_at stage_at(shared_at arena, unsigned int stage)
{
    return arena + stage * STAGE_BYTES;
}

HELPER shared_at full_of(shared_at arena, unsigned int stage)
{
    return arena + BARRIERS_AT + stage * 8;
}

HELPER shared_at empty_of(shared_at arena, unsigned int stage)
{
    return arena + BARRIERS_AT + (STAGES + stage) * 8;
}

HELPER shared_at turn_of(shared_at arena, unsigned int consumer)
{
    return arena + BARRIERS_AT + (2 * STAGES + consumer) * 8;
}

/* A stage is full when its block's producer has said how many bytes come and they are there, or when
 * each of its warps has said that its chunks are; empty when every warp of every consumer that reads
 * what this block's producer brings has said so.  A consumer may multiply when every warp of the one
 * before says so. */
HELPER void begin_barriers(shared_at arena)
{
    UNROLL for (int s = 0; s < STAGES; ++s) {
        begin_barrier(full_of(arena, s), TMA ? 1 : GROUP / 32);
        begin_barrier(empty_of(arena, s), SHARERS * (GROUP / 32) * PEERS);
    }
    UNROLL for (int c = 0; PINGPONG && c < CONSUMERS; ++c)
        begin_barrier(turn_of(arena, c), GROUP / 32);
    publish_barriers();
}

/* Give a stage back to all who copy into it: a warp's lanes report to one block each. */
HELPER void release(shared_at arena, unsigned int stage, unsigned int rank)
{
    const int lane = THREAD_ID % 32;
    const int rank_m = rank % CLUSTER_M, rank_n = rank / CLUSTER_M;
    if (lane < CLUSTER_N) {
        arrive(empty_of(arena, stage), rank_m + lane * CLUSTER_M);
    } else if (lane < PEERS) {
        const int other = lane - CLUSTER_N;
        arrive(empty_of(arena, stage), other + (other >= rank_m) + rank_n * CLUSTER_M);
    }
}
