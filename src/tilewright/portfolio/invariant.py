"""The kernel for results whose bits do not depend on how many rows or columns are computed.

Its blocks step through all of k for each tile, and it is chosen by the variant and k alone, as for
a result of fixed sides: whatever m and n are, an element is summed in one order.  Launch modes
change how operands are copied and results stored, not that order.
"""

from __future__ import annotations

import numpy as np

from tilewright.portfolio.choose import Choice, by_default, made_choice
from tilewright.portfolio.held import Served, held_rows
from tilewright.problem import Problem
from tilewright.stencil import Variant
from tilewright.stencil.geometry import Geometry

__all__ = ["choose_invariant"]

# Between a batch of a few rows of tokens and a training step's thousands.
_SIDE = 1024


def choose_invariant(device: Served, problem: Problem, aligned: bool = True) -> Choice:
    """Return the kernel that serves all problems of a variant and k.

    Parameters
    ----------
    device : Served
        Where.
    problem : Problem
        As kernels see it, column-major; of tensor cores in aligned columns.
    aligned : bool
        Whether A and B begin at multiples of 16 bytes.

    Raises
    ------
    ValueError
        If the device has no such kernel.
    """
    p, variant = problem, Variant.of(problem)
    table = held_rows(device, variant)
    there = table.compiled[0].any(axis=1) | table.is_own
    able = [
        at
        for at, one in enumerate(table.kernels)
        if there[at] and _sums_alike(one.geometry, p) and one.geometry.takes(p, aligned)
    ]
    if not able:
        return by_default(variant, device.spec, p, aligned, lambda one: _sums_alike(one, p))
    best = able[0]
    if table.model is not None:
        fixed = Problem(_SIDE, _SIDE, p.k, p.precision, p.trans_a, p.trans_b)
        expected = table.model.expected(fixed, device.spec.multiprocessors)
        best = able[int(np.argmin(expected[able]))]
    mode = table.kernels[best].geometry.mode(p)
    return made_choice(table, best, mode, device.spec, 0)


def _sums_alike(one: Geometry, problem: Problem) -> bool:
    """Whether all tiles are summed in one order, and all sides are taken."""
    reads_all = problem.precision.is_short and not one.tma_line_bytes if one.tma else True
    return reads_all and one.split_k is None and not (one.stream_k or one.streamed)
