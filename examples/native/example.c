/* Multiply two matrices from C: no CUDA header, no CUDA library, no CUDA compiler.
 *
 *     tilewright export --device cuda:0 --format c -o kernels
 *     cc -std=c11 -O2 -ffp-contract=off -Ikernels/c example.c kernels/c/[a-z]*.c -ldl -lm -lpthread \
 *        -l:libcuda.so.1 -o example
 *     ./example 300 200 100
 *
 * Usage: example M N K [FILE].  C = A B in single precision, column-major, checked against a
 * plain loop; with FILE the bytes of C are written to it.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tilewright_gemm.h"

/* The few functions of the driver that this program calls itself.  With a CUDA toolkit one
 * includes cuda.h instead. */
typedef unsigned long long device_pointer;
int cuInit(unsigned flags);
int cuDeviceGet(int *device, int ordinal);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(device_pointer *memory, size_t bytes);
int cuMemFree_v2(device_pointer memory);
int cuMemcpyHtoD_v2(device_pointer to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, device_pointer from, size_t bytes);

static void must(int result, const char *doing)
{
    if (result == 0)
        return;
    fprintf(stderr, "%s failed: CUDA error %d\n", doing, result);
    exit(1);
}

/* Numbers in [-1, 1) that any program can make again: multiples of 2^-15. */
static float number(uint32_t i) { return (float)((i * 2654435761u) >> 16) / 32768.0f - 1.0f; }

static float *numbers(int64_t count, uint32_t from)
{
    float *const made = malloc((size_t)count * sizeof *made);
    if (made == NULL) {
        fprintf(stderr, "no memory for %lld numbers\n", (long long)count);
        exit(1);
    }
    for (int64_t i = 0; i < count; ++i)
        made[i] = number(from + (uint32_t)i);
    return made;
}

static device_pointer upload(const float *values, int64_t count)
{
    device_pointer memory;
    must(cuMemAlloc_v2(&memory, (size_t)count * sizeof *values), "cuMemAlloc");
    must(cuMemcpyHtoD_v2(memory, values, (size_t)count * sizeof *values), "cuMemcpyHtoD");
    return memory;
}

/* The largest |C - AB| / (|A||B|), in units of the rounding error of one operation. */
static double worst(const float *a, const float *b, const float *c, int64_t m, int64_t n, int64_t k)
{
    double most = 0;
    for (int64_t j = 0; j < n; ++j)
        for (int64_t i = 0; i < m; ++i) {
            double sum = 0, size = 0;
            for (int64_t l = 0; l < k; ++l) {
                const double product = (double)a[i + l * m] * b[l + j * k];
                sum += product;
                size += fabs(product);
            }
            const double error = fabs(c[i + j * m] - sum) / (size > 0 ? size : 1);
            /* Not "error > most": that would pass over what is not a number. */
            if (!(error <= most))
                most = error;
        }
    return most / 0x1p-24;
}

int main(int count, char **words)
{
    const int64_t m = count > 3 ? atoll(words[1]) : 300;
    const int64_t n = count > 3 ? atoll(words[2]) : 200;
    const int64_t k = count > 3 ? atoll(words[3]) : 100;
    const float alpha = 1, beta = 0;
    void *context;
    int device;

    must(cuInit(0), "cuInit");
    must(cuDeviceGet(&device, 0), "cuDeviceGet");
    must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    must(cuCtxSetCurrent(context), "cuCtxSetCurrent");

    float *const a = numbers(m * k, 1), *const b = numbers(k * n, 7), *const c = numbers(m * n, 3);
    const device_pointer da = upload(a, m * k), db = upload(b, k * n), dc = upload(c, m * n);

    const tw_status status =
        tw_sgemm(TW_COL_MAJOR, 'N', 'N', m, n, k, &alpha, (const float *)(uintptr_t)da, m,
                 (const float *)(uintptr_t)db, k, &beta, (float *)(uintptr_t)dc, m, NULL);
    if (status != TW_OK) {
        fprintf(stderr, "tw_sgemm: %s\n", tw_strerror(status));
        return 1;
    }
    /* On the default stream, so that the copy waits for the kernel. */
    must(cuMemcpyDtoH_v2(c, dc, (size_t)(m * n) * sizeof *c), "cuMemcpyDtoH");

    const double error = worst(a, b, c, m, n, k);
    printf("%s computed SGEMM %lldx%lldx%lld: largest error %.2f units of rounding\n",
           tw_choose('s', TW_COL_MAJOR, 'N', 'N', m, n, k), (long long)m, (long long)n,
           (long long)k, error);
    if (count > 4) {
        FILE *const file = fopen(words[4], "wb");
        if (file == NULL || fwrite(c, sizeof *c, (size_t)(m * n), file) != (size_t)(m * n) ||
            fclose(file) != 0) {
            fprintf(stderr, "cannot write %s\n", words[4]);
            return 1;
        }
    }
    must(cuMemFree_v2(da), "cuMemFree");
    must(cuMemFree_v2(db), "cuMemFree");
    must(cuMemFree_v2(dc), "cuMemFree");
    free(a);
    free(b);
    free(c);
    /* A sum of k products in any order has at most k + 1 roundings on the way to an element. */
    return error <= (double)k + 1 ? 0 : 1;
}
