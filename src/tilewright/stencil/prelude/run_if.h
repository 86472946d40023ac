/* Kernels that a word in device memory holds back: with RUN_IF they have one more argument and
 * return at once unless it points at that number.  All threads read the same word. */
#ifdef RUN_IF
#ifdef GLOBAL
#define RUN_IF_ARGUMENT , const GLOBAL int *RESTRICT run_if
#else
#define RUN_IF_ARGUMENT , global const int *restrict run_if
#endif
#define RETURN_UNLESS_WANTED                                                              \
    if (*run_if != RUN_IF)                                                                \
        return;
#else
#define RUN_IF_ARGUMENT
#define RETURN_UNLESS_WANTED
#endif
