/* Batches of whose products a word each holds back: batched.h and run_if.h in one.  It stands in the
 * place of run_if.h; `run_if` points at the first product's word, `step_run_if` ints from that is the
 * next one's. */
#ifdef __OPENCL_VERSION__
#define BATCH_ID ((isize)get_group_id(2))
#define WORDS_IN global
#else
#define BATCH_ID ((isize)blockIdx.z)
#define WORDS_IN
#endif
#define RUN_IF_ARGUMENT                                                                   \
    , isize step_a, isize step_b, isize step_c, WORDS_IN const int *run_if, isize step_run_if
#define RETURN_UNLESS_WANTED                                                              \
    if (run_if[BATCH_ID * step_run_if] != RUN_IF)                                         \
        return;                                                                           \
    offset_a += BATCH_ID * step_a;                                                        \
    offset_b += BATCH_ID * step_b;                                                        \
    offset_c += BATCH_ID * step_c;
