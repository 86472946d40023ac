/* Results whose columns begin with a vector, a bias, in the place of beta C.
 *
 * cuBLAS adds a bias on its way; here a pass over the result puts it there, and the product is added.
 */
#ifndef TILEWRIGHT_BIAS_H
#define TILEWRIGHT_BIAS_H

#include "tilewright_internal.h"

/* Whether the pass is short beside a product. */
int tilewright_bias_pays(int precision, int64_t m, int64_t n, int64_t k);

/* Let each column of a result be the bias. */
tw_status tilewright_put_bias(int precision, const void *bias, const tilewright_matrix *c,
                              void *stream);

#endif
