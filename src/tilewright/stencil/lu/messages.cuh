/* How the blocks of panel.cuh tell each other rows, once a column, and meet.
 *
 *     CLUSTER 0    through the last cache, each word beside a tag that says it is there
 *     CLUSTER 16   blocks are one cluster: into each other's shared memory, which counts the bytes
 *
 * Of two columns that follow one another, messages lie apart: whoever sends has heard all messages
 * of the column before, whose senders had read those before that.
 *
 * Macros: CLUSTER, SLAB, THREADS.
 */
#define WARPS (THREADS / WARP)

/* In shared memory: a row's number, and the row 16 bytes on. */
#define HEARD (4 + SLAB * ELEM_WORDS)

/* Where blocks meet: nothing but a cluster's own barrier, or a word that counts them. */
typedef struct { GLOBAL unsigned int *counter; unsigned int met; } meeting;

#if CLUSTER
#define IN_CLUSTERS __cluster_dims__(CLUSTER, 1, 1)
#define ROOM heard, arrivals

/* Blocks that a warp sends to. */
#define EACH_WARP (CLUSTER > WARPS ? CLUSTER / WARPS : 1)

/* By all threads: send a row's columns from number j of the slab on, and its number, to all blocks.
 * `its_warp`: whose row it is.  `column`: of the panel. */
HELPER void send_row(const unsigned int *said, int its_warp, int column, int j, unsigned int *heard,
                     usize *arrivals, unsigned int number)
{
    const int parts = 1 + ((SLAB - j) * ELEM_WORDS + 3) / 4;
    const int lane = THREAD_ID % WARP, block = THREAD_ID / WARP * EACH_WARP + lane % EACH_WARP;
    words4 *const to = (words4 *)(heard + ((column & 1) * CLUSTER + (int)BLOCK_ID) * HEARD);
    (void)its_warp;
    (void)number;
    UNROLL for (int i = 0; i < HEARD / 4; i += WARP / EACH_WARP) {
        const int part = i + lane / EACH_WARP;
        if (part < parts && block < CLUSTER)
            send_to_block(to + part, block, ((const words4 *)said)[part], arrivals + (column & 1));
    }
}

/* Return what all blocks have sent. */
HELPER const unsigned int *hear_rows(int column, int j, unsigned int *heard, usize *arrivals,
                                     unsigned int number)
{
    const int parts = 1 + ((SLAB - j) * ELEM_WORDS + 3) / 4;
    (void)number;
    if (THREAD_ID == 0)
        expect_bytes(arrivals + (column & 1), 16 * CLUSTER * parts);
    wait_for_bytes(arrivals + (column & 1), column >> 1 & 1);
    return heard + (column & 1) * CLUSTER * HEARD;
}

HELPER void meet_all(meeting *at)
{
    (void)at;
    meet_cluster();
}

#else
#define IN_CLUSTERS
#define ROOM heard, messages

/* A block's message: its row's number, then the row; two words and their tags in 16 bytes. */
#define MESSAGE (1 + SLAB * ELEM_WORDS / 2)

/* Where a message's 16 bytes lie in shared memory. */
#define PLACE(number) ((number) ? 2 + 2 * (number) : 0)

/* Parts of a message that a warp hears. */
#define EACH_WARP ((MESSAGE + WARPS - 1) / WARPS)

HELPER unsigned int tag_of(unsigned int number, int column)
{
    return 256 * number + (unsigned int)column + 1;
}

HELPER void send_row(const unsigned int *said, int its_warp, int column, int j, unsigned int *heard,
                     words4 *messages, unsigned int number)
{
    if (THREAD_ID / WARP != its_warp)
        return;
    const unsigned int tag = tag_of(number, column);
    const int parts = 1 + ((SLAB - j) * ELEM_WORDS + 1) / 2; /* of columns not yet done */
    words4 *const to = messages + ((column & 1) * (int)BLOCK_COUNT + (int)BLOCK_ID) * MESSAGE;
    (void)heard;
    UNROLL for (int i = 0; i < MESSAGE; i += WARP) {
        const int part = i + THREAD_ID % WARP;
        if (part < parts) {
            const unsigned int *const its = said + PLACE(part);
            const words4 v = {its[0], tag, its[1], tag};
            send_words(to + part, v);
        }
    }
}

/* Wait for every block's message: lanes are blocks, and a warp takes every WARPS-th part of their
 * messages. */
HELPER const unsigned int *hear_rows(int column, int j, unsigned int *heard, words4 *messages,
                                     unsigned int number)
{
    const unsigned int tag = tag_of(number, column);
    const int warp = THREAD_ID / WARP, parts = 1 + ((SLAB - j) * ELEM_WORDS + 1) / 2;
    const words4 *const from = messages + (column & 1) * (int)BLOCK_COUNT * MESSAGE;
    ROLLED for (int block = THREAD_ID % WARP; block < (int)BLOCK_COUNT; block += WARP) {
        words4 v[EACH_WARP];
        bool waits;
        do {
            waits = false;
            UNROLL for (int u = 0; u < EACH_WARP; ++u)
                if (warp + u * WARPS < parts)
                    v[u] = look_at_words(from + block * MESSAGE + warp + u * WARPS);
            UNROLL for (int u = 0; u < EACH_WARP; ++u)
                if (warp + u * WARPS < parts)
                    waits |= v[u].y != tag || v[u].w != tag;
        } while (waits);
        UNROLL for (int u = 0; u < EACH_WARP; ++u)
            if (warp + u * WARPS < parts) {
                unsigned int *const to = heard + block * HEARD + PLACE(warp + u * WARPS);
                to[0] = v[u].x;
                to[1] = v[u].z;
            }
    }
    BARRIER();
    return heard;
}

HELPER void meet_all(meeting *at)
{
    at->met += BLOCK_COUNT;
    BARRIER();
    if (THREAD_ID == 0)
        meet_blocks(at->counter, at->met);
    BARRIER();
}
#endif
