/* Choices for callers outside the library. */
#include "choice.h"
#include "core.h"

TILEWRIGHT_API int tilewright_chosen(const tilewright_rows *from,
                                     const tilewright_problem *problem,
                                     const tilewright_place *place, tilewright_choice *choice);

TILEWRIGHT_API unsigned tilewright_worth_a_look(const tilewright_problem *problem, int aligned_a,
                                                int aligned_b, const tilewright_place *place,
                                                const tilewright_copying *copying, double expected);

TILEWRIGHT_API int tilewright_chosen_way(const tilewright_rows *const from[TILEWRIGHT_WAYS],
                                         const tilewright_problem *problem, int aligned_a,
                                         int aligned_b, const tilewright_place *place,
                                         const tilewright_copying *copying);

/* The place in a table of the kernel for a problem; TILEWRIGHT_NONE where none of its kernels
 * serves. */
int tilewright_chosen(const tilewright_rows *from, const tilewright_problem *problem,
                      const tilewright_place *place, tilewright_choice *choice)
{
    if (!tilewright_choose(from, problem, place, choice) || choice->kernel == from->fallback)
        return TILEWRIGHT_NONE;
    return (int)(choice->kernel - from->kernels);
}

/* As tilewright_open_ways. */
unsigned tilewright_worth_a_look(const tilewright_problem *problem, int aligned_a, int aligned_b,
                                 const tilewright_place *place, const tilewright_copying *copying,
                                 double expected)
{
    const int aligned[2] = {aligned_a, aligned_b};
    return tilewright_open_ways(problem, aligned, place, copying, expected);
}

/* The number of the way for a problem. */
int tilewright_chosen_way(const tilewright_rows *const from[TILEWRIGHT_WAYS],
                          const tilewright_problem *problem, int aligned_a, int aligned_b,
                          const tilewright_place *place, const tilewright_copying *copying)
{
    tilewright_way way;
    const int aligned[2] = {aligned_a, aligned_b};
    tilewright_find_way(from, problem, aligned, place, copying, &way);
    return TILEWRIGHT_COPIED_A * way.copies[0].is_made + TILEWRIGHT_COPIED_B * way.copies[1].is_made;
}
