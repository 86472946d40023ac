/* A bias in each column of a result. */
#include "tilewright_bias.h"

/* What the pass may cost of a product's time: less than kernels win.  Products take what they do at
 * 55 TFLOP/s, as SGEMM and DGEMM on an H100. */
#define MOST_OF_TIME 0.05
#define FLOPS_PER_NS 55e3

/* What copies elements as they lie: that of any precision whose elements are as long. */
static const tilewright_copies *copies_of(int precision)
{
    const int64_t size = tilewright_element_bytes(precision);
    for (int i = 0; i < TILEWRIGHT_PRECISIONS; ++i)
        if (tilewright_copying_of[i].side > 0 && tilewright_element_bytes(i) == size)
            return &tilewright_copying_of[i];
    return NULL;
}

int tilewright_bias_pays(int precision, int64_t m, int64_t n, int64_t k)
{
    const tilewright_copies *const by = copies_of(precision);
    const double area = (double)m * (double)n;
    if (by == NULL)
        return 0;
    const double bytes = 2 * area * (double)tilewright_element_bytes(precision);
    const double pass_ns = by->takes.begin_ns + bytes / by->takes.bytes_per_ns;
    return pass_ns <= MOST_OF_TIME * 2 * area * (double)k / FLOPS_PER_NS;
}

/* A vector is a matrix of columns no elements apart, which is copied as any other is. */
tw_status tilewright_put_bias(int precision, const void *bias, const tilewright_matrix *c,
                              void *stream)
{
    const tilewright_copies *const by = copies_of(precision);
    int64_t rows = c->rows, columns = c->columns, none = 0, one = 1, ld = c->ld;
    uintptr_t to = c->first;
    void *function, *second;
    void *values[] = {&rows, &columns, &bias, &none, &one, &none, &to, &ld};
    tilewright_context *here;
    if (by == NULL)
        return TW_NO_KERNEL;
    tw_status status = tilewright_current(&here);
    if (status == TW_OK)
        status = tilewright_function(here, by->straight, &function, &second);
    const int64_t tiles = tilewright_up(rows, by->side) * tilewright_up(columns, by->side);
    if (status)
        return status;
    if (tiles < 1 || tiles > INT32_MAX)
        return TW_TOO_LARGE;
    const tilewright_cu_config how = {
        (unsigned)tiles, 1, 1, by->threads, 1, 1, tilewright_codes[by->straight].shared_bytes,
        stream, NULL, 0};
    return tilewright_status_of(tilewright_driver.launch(&how, function, values, NULL));
}
