/* Which kernel serves a problem, in which launch mode: what tilewright.portfolio.choose does.
 *
 *  1. What won a race of exactly this size, columns contiguous, on a device with as many
 *     multiprocessors.
 *  2. Else the kernel of which the shortest time is expected (model.c), longer without machine code
 *     for the problem's launch mode.
 *  3. Without costs the kernel tuned nearest in size; without any the default.
 *
 * Ties go to the user's own kernels, then to the first.
 */
#include "choice.h"

#include <math.h>

/* The mode whose machine code serves a problem of another: any is right for any problem. */
static int served_mode(const tilewright_kernel *it, int mode)
{
    /* What serves every mode has machine code for all that its stencil can be compiled for. */
    const int without[] = {0, TILEWRIGHT_SCALAR | TILEWRIGHT_CLAMPED, TILEWRIGHT_MODES - 1};
    const int shipped[] = {0, TILEWRIGHT_STAGED, TILEWRIGHT_CLAMPED,
                           TILEWRIGHT_STAGED | TILEWRIGHT_CLAMPED, TILEWRIGHT_MODES - 1};
    const int *const drop = it->own ? without : shipped;
    const int count = it->own ? 3 : 5;
    for (int i = 0; i < count; ++i)
        if (it->codes[mode & ~drop[i]] != TILEWRIGHT_NONE)
            return mode & ~drop[i];
    return TILEWRIGHT_NONE;
}

/* Nanoseconds with what the instance which serves lacks. */
static double slower(const tilewright_kernel *it, const tilewright_problem *p, double ns)
{
    const int mode = tilewright_mode(&it->geometry, p);
    const int served = it->own ? mode : served_mode(it, mode);
    const int lacks = served == TILEWRIGHT_NONE ? TILEWRIGHT_SCALAR : mode & ~served;
    const double times = lacks & TILEWRIGHT_SCALAR    ? TILEWRIGHT_NOT_SCALAR
                         : lacks & TILEWRIGHT_CLAMPED ? TILEWRIGHT_NOT_CLAMPED
                                                      : 1.0;
    const double more = lacks & TILEWRIGHT_STAGED ? TILEWRIGHT_NOT_STAGED : 0.0;
    const double area = (double)p->m * (double)p->n * (double)tilewright_most(1, p->batch);
    return ns * times + area * 1e-6 * more;
}

/* Whether it was measured on a device with as many multiprocessors. */
static int is_alike(const tilewright_kernel *it, const tilewright_place *place)
{
    return it->device != TILEWRIGHT_NONE && (place->alike >> it->device & 1) != 0;
}

/* The time of a race of this very size; null where the kernel won none that counts here. */
static const double *raced(const tilewright_kernel *it, const tilewright_problem *p,
                           const tilewright_place *place)
{
    if (!it->own && !is_alike(it, place))
        return NULL;
    for (int i = 0; i < it->won_count; ++i)
        if (it->won[i].m == p->m && it->won[i].n == p->n && it->won[i].k == p->k)
            return &it->won[i].ns;
    return NULL;
}

static int is_contiguous(const tilewright_problem *p)
{
    return p->lda == tilewright_most(1, p->trans_a ? p->k : p->m) &&
           p->ldb == tilewright_most(1, p->trans_b ? p->n : p->k) &&
           p->ldc == tilewright_most(1, p->m);
}

static const tilewright_kernel *fastest_raced(const tilewright_rows *from,
                                              const tilewright_problem *p,
                                              const tilewright_place *place, double *least)
{
    const tilewright_kernel *best = NULL;
    int device = TILEWRIGHT_NONE, one_model = 1; /* times of one model of device may be compared */
    if (!is_contiguous(p) || p->batch > 1)
        return NULL;
    for (int i = 0; i < from->count; ++i) {
        const tilewright_kernel *const it = &from->kernels[i];
        if (raced(it, p, place) == NULL || !tilewright_takes(&it->geometry, p))
            continue;
        one_model = one_model && (device == TILEWRIGHT_NONE || it->device == device);
        device = it->device;
    }
    for (int i = 0; i < from->count; ++i) {
        const tilewright_kernel *const it = &from->kernels[i];
        const double *const ns = raced(it, p, place);
        if (ns == NULL || !tilewright_takes(&it->geometry, p))
            continue;
        if (best == NULL || (!one_model && it->own != best->own ? it->own : *ns < *least)) {
            best = it;
            *least = *ns;
        }
    }
    return best;
}

/* How many doublings lie between two sizes. */
static double doublings(int64_t x, int64_t y)
{
    return fabs(log2((double)tilewright_most(1, x) / (double)tilewright_most(1, y)));
}

static double distance(const tilewright_kernel *it, const tilewright_problem *p)
{
    double least = HUGE_VAL;
    for (int i = 0; i < it->won_count; ++i) {
        const tilewright_won *const row = &it->won[i];
        const double found =
            doublings(p->m, row->m) + doublings(p->n, row->n) + doublings(p->k, row->k);
        if (found < least)
            least = found;
    }
    return least;
}

static const tilewright_kernel *nearest(const tilewright_rows *from, const tilewright_problem *p)
{
    const tilewright_kernel *best = NULL;
    double least = 0;
    for (int i = 0; i < from->count; ++i) {
        const tilewright_kernel *const it = &from->kernels[i];
        if (!tilewright_takes(&it->geometry, p))
            continue;
        const double found = distance(it, p);
        if (best == NULL || found < least) {
            best = it;
            least = found;
        }
    }
    return best;
}

/* The shortest expected time, where an instance of another mode serves with that. */
static const tilewright_kernel *fastest(const tilewright_rows *from, const tilewright_problem *p,
                                        int64_t multiprocessors, double *least)
{
    const tilewright_kernel *best = NULL;
    const int is_modelled = tilewright_is_modelled(p);
    for (int i = 0; i < from->count; ++i) {
        const tilewright_kernel *const it = &from->kernels[i];
        if (!tilewright_takes(&it->geometry, p))
            continue;
        /* Larger than anything that a device holds: any kernel will do. */
        const double expected = is_modelled ? tilewright_expected(it, p, multiprocessors) : 0;
        const double ns = slower(it, p, expected);
        if (best == NULL || ns < *least) {
            best = it;
            *least = ns;
        }
    }
    return best;
}

int tilewright_choose(const tilewright_rows *from, const tilewright_problem *p,
                      const tilewright_place *place, tilewright_choice *choice)
{
    const tilewright_kernel *best = NULL;
    if (p->m < 1 || p->n < 1 || place->multiprocessors < 1)
        return 0;
    choice->ns = NAN;
    best = fastest_raced(from, p, place, &choice->ns);
    if (best == NULL && from->timed)
        best = fastest(from, p, place->multiprocessors, &choice->ns);
    else if (best == NULL)
        best = nearest(from, p);
    if (best == NULL)
        best = from->fallback;
    if (best == NULL)
        return 0;
    choice->kernel = best;
    choice->mode = tilewright_mode(&best->geometry, p);
    const int served = served_mode(best, choice->mode);
    choice->code = served == TILEWRIGHT_NONE ? TILEWRIGHT_NONE : best->codes[served];
    return 1;
}
