/* Many threads multiply at once in contexts that are new to the library. */
#include <pthread.h>
#include <stdio.h>

#include "tilewright_gemm.h"

enum { THREADS = 8, CALLS = 2000, CONTEXTS = 5 };

extern _Thread_local unsigned long long fake_context;
extern int fake_loads;

static void *work(void *number)
{
    const float one = 1, zero = 0;
    const float *const a = (const float *)0x10000;
    float *const c = (float *)0x90000;
    for (int i = 0; i < CALLS; ++i) {
        const int64_t size = 1 + (i * 37) % 64;
        fake_context = 1 + (unsigned long long)(i % CONTEXTS);
        const tw_status status = tw_sgemm(i % 2 ? TW_ROW_MAJOR : TW_COL_MAJOR, 'N', 'N', size, size,
                                          size, &one, a, size, a, size, &zero, c, size, NULL);
        if (status != TW_OK) {
            fprintf(stderr, "%s\n", tw_strerror(status));
            *(int *)number = 1;
        }
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    int failed[THREADS] = {0}, failures = 0;
    for (int i = 0; i < THREADS; ++i)
        if (pthread_create(&threads[i], NULL, work, &failed[i]) != 0)
            return 2;
    for (int i = 0; i < THREADS; ++i) {
        pthread_join(threads[i], NULL);
        failures += failed[i];
    }
    printf("%d\n", fake_loads);
    return failures != 0;
}
