/* Whether operands are copied before a product.
 *
 * The fastest kernels take operands that run along m or n in aligned columns, whole tiles of them at
 * once; of 16-bit elements, which tensor cores read in either order, aligned ones that run along k
 * as well.  A pass over memory (realign.cl) makes such a copy of any operand.  What that costs grows
 * with the square of a size, what it wins with the cube:
 *
 *     A as it lies, or its copy  --+
 *                                  +-->  the kernel for those  -->  C
 *     B as it lies, or its copy  --+
 *
 * All four ways are compared by the times that are expected of their kernels, and the passes' own.
 * Plain IEEE operations in this order, so that every caller decides alike.
 */
#include "choice.h"

#include <math.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

enum { CHUNK_BYTES = 16 };

/* Of the time without: what is won by less is not worth the memory, nor is it known so well. */
static const double worth = 0.995;

/* A kernel is not slower than the best there is by more than passes of so much of its time. */
static const double most = 0.3;

/* Of a device's memory, for a call's copies: 2.5 GB of 80. */
enum { SHARE_OF_MEMORY = 32 };

static const tilewright_copy no_copy;

/* The copy of an operand that has one: one that does not lie as kernels read it fastest. */
static tilewright_copy copy_of(const tilewright_problem *p, int of_b, int aligned)
{
    const int along_k = of_b ? !p->trans_b : p->trans_a;
    const int64_t side = of_b ? p->n : p->m, ld = of_b ? p->ldb : p->lda;
    const int64_t chunk = tilewright_chunk(p);
    const int turned = along_k && p->element_bytes != 2;
    if (!turned && aligned && ld % chunk == 0)
        return no_copy;
    const int stays = along_k && !turned;
    tilewright_copy made = {1, turned, stays ? p->k : side, stays ? side : p->k, 0, 0};
    made.ld = tilewright_up(tilewright_most(1, made.inner), chunk) * chunk;
    made.bytes = made.ld * made.outer * p->element_bytes;
    return made;
}

/* What the kernel computes, where it reads some copies. */
static tilewright_way way_of(const tilewright_problem *p, const int aligned[2], int which)
{
    const int of_a = which & TILEWRIGHT_COPIED_A, of_b = which & TILEWRIGHT_COPIED_B;
    tilewright_way made = {*p, {no_copy, no_copy}};
    if (of_a) {
        made.copies[0] = copy_of(p, 0, aligned[0]);
        made.problem.trans_a = p->trans_a && !made.copies[0].is_transposed;
        made.problem.lda = made.copies[0].ld;
    }
    if (of_b) {
        made.copies[1] = copy_of(p, 1, aligned[1]);
        made.problem.trans_b = p->trans_b || made.copies[1].is_transposed;
        made.problem.ldb = made.copies[1].ld;
    }
    made.problem.aligned = (aligned[0] || of_a) && (aligned[1] || of_b);
    return made;
}

/* Nanoseconds of the passes that make copies. */
static double passes_ns(const tilewright_copy copies[2], const tilewright_problem *p,
                        const tilewright_copying *copying)
{
    double ns = 0.0;
    for (int i = 0; i < 2; ++i) {
        const int64_t traffic = 2 * copies[i].inner * copies[i].outer * p->element_bytes;
        if (copies[i].is_made)
            ns = ns + (copying->begin_ns + (double)traffic / copying->bytes_per_ns);
    }
    return ns;
}

/* Nanoseconds that are expected of a kernel; not a number where nothing is known. */
static double kernel_ns(const tilewright_rows *from, const tilewright_problem *p,
                        const tilewright_place *place)
{
    tilewright_choice found;
    return from != NULL && tilewright_choose(from, p, place, &found) ? found.ns : NAN;
}

unsigned tilewright_open_ways(const tilewright_problem *p, const int aligned[2],
                              const tilewright_place *place, const tilewright_copying *copying,
                              double expected)
{
    unsigned found = 0;
    /* Beyond that nothing is held by a device, and bytes may overflow. */
    if (!tilewright_is_modelled(p))
        return found;
    for (int way = 1; way < TILEWRIGHT_WAYS; ++way) {
        const tilewright_copy copies[2] = {
            way & TILEWRIGHT_COPIED_A ? copy_of(p, 0, aligned[0]) : no_copy,
            way & TILEWRIGHT_COPIED_B ? copy_of(p, 1, aligned[1]) : no_copy};
        const int made = copies[0].is_made * TILEWRIGHT_COPIED_A +
                         copies[1].is_made * TILEWRIGHT_COPIED_B;
        const uint64_t bytes = (uint64_t)(copies[0].bytes + copies[1].bytes);
        if (made == way && passes_ns(copies, p, copying) <= most * expected &&
            bytes <= place->memory / SHARE_OF_MEMORY)
            found |= 1u << way;
    }
    return found;
}

void tilewright_find_way(const tilewright_rows *const from[TILEWRIGHT_WAYS],
                         const tilewright_problem *p, const int aligned[2],
                         const tilewright_place *place, const tilewright_copying *copying,
                         tilewright_way *way)
{
    *way = way_of(p, aligned, 0);
    const double expected = kernel_ns(from[0], &way->problem, place);
    const unsigned open = tilewright_open_ways(p, aligned, place, copying, expected);
    double shortest = expected * worth;
    for (int which = 1; which < TILEWRIGHT_WAYS; ++which) {
        if (!(open >> which & 1))
            continue;
        const tilewright_way other = way_of(p, aligned, which);
        const double ns =
            kernel_ns(from[which], &other.problem, place) + passes_ns(other.copies, p, copying);
        if (ns < shortest) { /* false where nothing is known */
            *way = other;
            shortest = ns;
        }
    }
}
