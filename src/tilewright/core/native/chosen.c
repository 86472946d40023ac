/* Choices for callers outside the library. */
#include "choice.h"
#include "core.h"

TILEWRIGHT_API int tilewright_chosen(const tilewright_rows *from,
                                     const tilewright_problem *problem,
                                     const tilewright_place *place, tilewright_choice *choice);

/* The place in a table of the kernel for a problem; TILEWRIGHT_NONE where none of its kernels
 * serves. */
int tilewright_chosen(const tilewright_rows *from, const tilewright_problem *problem,
                      const tilewright_place *place, tilewright_choice *choice)
{
    if (!tilewright_choose(from, problem, place, choice) || choice->kernel == from->fallback)
        return TILEWRIGHT_NONE;
    return (int)(choice->kernel - from->kernels);
}
