/* Persistent blocks that compute one triangle of a square C, and write nothing of the other.  It stands
 * in the place of products.cuh; a launch's n is C's columns, or their negative for the triangle above.
 *
 *     | 0          |     its tiles, in the order that asynchronous/triangle.cuh has: 0, 2, 5 and 9,
 *     | 1  2       |     which the diagonal cuts, are computed whole, and of them only what lies in
 *     | 3  4  5    |     the triangle is stored, element by element; of the others all is
 *     | 6  7  8  9 |
 *
 * Of op(A) and its own conjugate transpose the triangle is Hermitian: elements on the diagonal are
 * real, and nothing depends on the imaginary parts that C had there.
 */

#define HERMITIAN (CONJ_A != CONJ_B)

/* A block's first row and column of C. */
struct tile {
    isize i0, j0;
};

#define CLUSTER_M 1
#define CLUSTER_N 1
#include "asynchronous/triangle.cuh"

HELPER unsigned int tiles_of_product(const matrices *x) { return tiles_of_triangle(x->m); }

/* The product that the triangle is of. */
struct product {
    matrices one;

    METHOD product(const matrices *given) : one(*given) { one.n = one.m; }
    METHOD const matrices *of() const { return &one; }
};
#define PRODUCT_OF(x, tile) (product(x).of())
#define PLACE_OF(x, tile) place_of_tile(x, tile)
#define PRODUCTS(x) 1

/* Which of a tile's elements are in the triangle, and inside C. */
enum coverage { NO_ELEMENTS, SOME_ELEMENTS, ALL_ELEMENTS };

struct place_in_triangle : place {
    bool lower;
    coverage stored;
};

HELPER place_in_triangle place_of_tile(const matrices *x, unsigned int number)
{
    place_in_triangle p;
    p.lower = x->n > 0;
    tile at = tile_of_triangle(x->m, number, p.lower);
    /* Squares at the edge may have tiles beyond it: these compute the first one again. */
    const bool beyond = at.i0 >= x->m || at.j0 >= x->m;
    if (beyond)
        at.i0 = at.j0 = 0;
    p.i = edge_at(at.i0, x->m, BLOCK_M, K_FAST_A);
    p.j = edge_at(at.j0, x->m, BLOCK_N, K_FAST_B);
    at.i0 = p.i.at, at.j0 = p.j.at;
    p.stored = beyond                         ? NO_ELEMENTS
               : is_of_triangle(p.lower, at) ? ALL_ELEMENTS
                                             : SOME_ELEMENTS;
    return p;
}

/* C from a block's place on, and how far to the right of the diagonal the thread's first element is. */
struct result_in_triangle {
    result all;
    isize right;
    bool lower;
    coverage stored;
};

HELPER result_in_triangle result_in(const matrices *x, place_in_triangle p)
{
    result_in_triangle c;
    c.all = result_in(x, (place)p);
    c.right = p.j.at + thread_column() - (p.i.at + thread_row());
    c.lower = p.lower;
    c.stored = p.stored;
    return c;
}

/* Write an element of the triangle. */
HELPER void store_element(const result *c, elem sum, int row, int column, bool on_diagonal)
{
    elem *const to = c->at + column * c->ld + row;
    const elem v = scaled(*c, finished(c, sum, row, column), to);
    *to = HERMITIAN && on_diagonal ? elem_scalar(real_of(v, 0), 0) : v; /* scalars are real then */
}

HELPER void store_own_sums(result_in_triangle c, const elem *sum, shared_at tiles)
{
    if (c.stored == ALL_ELEMENTS)
        store_own_sums(c.all, sum, tiles);
    if (c.stored != SOME_ELEMENTS)
        return;
    UNROLL for (int j = 0; j < TILE_N; ++j)
        UNROLL for (int e = 0; e < TILE_M; ++e) {
            const int row = e / CHUNK * LANES_M * CHUNK + e % CHUNK, column = column_of(j);
            const bool own = row >= c.all.m_first && row < c.all.m_left &&
                             column >= c.all.n_first && column < c.all.n_left;
            const isize right = c.right + column - row;
            if (own && in_triangle(c.lower, 0, right))
                store_element(&c.all, sum[j * TILE_M + e], row, column, right == 0);
        }
}
