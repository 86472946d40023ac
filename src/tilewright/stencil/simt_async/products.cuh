/* Which product's tiles persistent blocks take: one's, or those of all of a batch.  A part of
 * persistent.cuh; triangle.cuh stands in its place where a triangle is computed. */

HELPER unsigned int tiles_of_product(const matrices *x)
{
    const unsigned int rows = (unsigned int)((x->m + BLOCK_M - 1) / BLOCK_M);
    const unsigned int columns = (unsigned int)((x->n + BLOCK_N - 1) / BLOCK_N);
    return rows * columns;
}

#if BATCHED == 2
/* The product of a batch that a tile of all is of. */
struct product {
    matrices one;

    METHOD product(const matrices *all, unsigned int tile) : one(*all)
    {
        const isize number = tile / tiles_of_product(all);
        one.offset_a += number * all->step_a;
        one.offset_b += number * all->step_b;
        one.offset_c += number * all->step_c;
    }
    METHOD const matrices *of() const { return &one; }
};
#define PRODUCT_OF(x, tile) (product(x, tile).of())
#define PLACE_OF(x, tile) place_in((x)->m, (x)->n, (tile) % tiles_of_product(x))
#define PRODUCTS(x) ((unsigned int)(x)->batch)
#else
#define PRODUCT_OF(x, tile) (x)
#define PLACE_OF(x, tile) place_in((x)->m, (x)->n, tile)
#define PRODUCTS(x) 1
#endif
