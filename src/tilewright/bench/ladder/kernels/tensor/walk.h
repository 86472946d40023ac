/* The two walks along k, the producer's and a consumer's; each returns where the ring is then.  How
 * tiles are brought and given back is said before: `bring` and `give_back`. */

HELPER ring produce(ring at, const tensor_map *a, const tensor_map *b, int steps, isize row,
                    isize column)
{
    ROLLED for (int t = 0; t < steps; ++t, ++at.step) {
        wait_until_empty(at);
        expect_bytes(full_of(at), STAGE_BYTES);
        bring(at, a, b, t, row, column);
    }
    return at;
}

/* A stage is given back when the next one's multiplies have started: the tensor cores always have
 * some to do.  The last one too, for the producer counts on it. */
HELPER ring consume(ring at, int consumer, int steps, float *sum)
{
    ring before = at;
    ROLLED for (int t = 0; t < steps; ++t) {
        wait_until_full(at);
        start_stage(sum, stage_of(at) + consumer * 64 * ROW_BYTES, stage_of(at) + TILE_BYTES_A);
        if (t > 0) {
            wait_for_multiplies<1>(); /* all but this step's */
            give_back(before);
        }
        before = at;
        ++at.step;
    }
    wait_for_multiplies<0>();
    if (steps > 0)
        give_back(before);
    return at;
}
