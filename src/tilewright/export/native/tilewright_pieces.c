/* Into how many pieces of k a product is cut, as tilewright.portfolio.pieces has it.
 *
 *     C <- A[:, 0:k1] B[0:k1] + beta C,    C <- A[:, k1:k2] B[k1:k2] + C,    ...
 */
#include "tilewright_internal.h"

#include <math.h>

/* Products that one sum adds up, at most, the fewest that cost no more than is worth it; and tiles,
 * of the size of large kernels' and for each multiprocessor, of results whose sums others divide. */
static const int64_t longest[] = {4096, 8192};
enum { TILE = 128, TILES = 3 };

/* Pieces begin at multiples of so many elements, and take so many times as long at most; each but the
 * first takes so many nanoseconds besides, and more for each element of C. */
enum { UNIT = 64 };
#define MORE 1.07
#define PIECE_NS 25e3
#define ELEMENT_NS 0.015

/* Products that a kernel adds to one sum at most, one after the other; 0 where threads have sums of
 * their own along k, which are short. */
static int64_t chain_of(const tilewright_geometry *it, const tilewright_problem *p,
                        int64_t multiprocessors)
{
    const int64_t tiles = tilewright_up(p->m, it->tile_m) * tilewright_up(p->n, it->tile_n);
    const int64_t steps = tilewright_up(p->k, it->tile_k);
    const int64_t parts = it->split_k ? tilewright_parts(it, steps, tiles, multiprocessors) : 1;
    int64_t found = tilewright_up(steps, parts * tilewright_most(1, it->cluster_k));
    if (it->streamed)
        return 0;
    if (it->persistent) {
        const tilewright_division by = tilewright_divide(it, p, tiles, steps, multiprocessors);
        if (by.shared == tiles)
            found = by.longest;
    }
    return found * it->tile_k;
}

/* Cut into pieces of so many products, whose kernels are chosen anew; 0 where there is none. */
static unsigned cut(const tilewright_rows *from, const tilewright_problem *p,
                    const tilewright_place *place, int64_t each, tilewright_piece *pieces)
{
    unsigned made = 0;
    if (tilewright_up(p->k, each) > TILEWRIGHT_PIECES)
        return 0;
    for (int64_t first = 0; first < p->k; first += each) {
        tilewright_piece *const one = &pieces[made++];
        one->first = first;
        one->problem = *p;
        one->problem.k = tilewright_least(each, p->k - first);
        if (!tilewright_choose(from, &one->problem, place, &one->choice) ||
            one->choice.code == TILEWRIGHT_NONE)
            return 0;
    }
    return made;
}

unsigned tilewright_cut(const tilewright_rows *from, const tilewright_problem *p,
                        const tilewright_place *place, const tilewright_choice *whole,
                        tilewright_piece pieces[TILEWRIGHT_PIECES])
{
    if (p->k > longest[0] && from->timed && whole->kernel != from->fallback && !isnan(whole->ns) &&
        tilewright_is_modelled(p) &&
        tilewright_up(p->m, TILE) * tilewright_up(p->n, TILE) <= TILES * place->multiprocessors) {
        const int64_t chain = chain_of(&whole->kernel->geometry, p, place->multiprocessors);
        for (int i = 0; i < 2; ++i) {
            const int64_t count = tilewright_most(1, tilewright_up(chain, longest[i]));
            const double more = PIECE_NS + ELEMENT_NS * (double)p->m * (double)p->n;
            if ((double)(count - 1) * more > (MORE - 1) * whole->ns)
                continue;
            const unsigned made =
                cut(from, p, place, tilewright_up(p->k, count * UNIT) * UNIT, pieces);
            if (made)
                return made;
            break;
        }
    }
    pieces[0] = (tilewright_piece){0, *p, *whole};
    return 1;
}
