"""How long a kernel takes on a problem: one linear model, its coefficients data of the portfolio.

::

    expected ns  =  sum over terms of   cost of the kernel  x  what the launch has to do

What a launch has to do is counted from the kernel's geometry (`tilewright.stencil.work`).  What
each thing costs is fitted to measured times, kernel by kernel (`tilewright.portfolio.fit`).  The
same IEEE operations in the same order everywhere, so that every caller on every machine chooses
alike.  Calls are served by the same model in C (``core/native/model.c``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tilewright.problem import Problem
from tilewright.stencil.geometry import Geometry
from tilewright.stencil.work import TERMS, Work

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["NEVER", "TERMS", "Model"]

# Costs of a kernel of which nothing is known: each launch takes for ever.
NEVER = tuple(math.inf if term == "launch" else 0.0 for term in TERMS)

# No matrix that a device holds has so many elements; what `Work` multiplies stays under 2^63.
_MOST_ELEMENTS = 2**38


class Model(Work):
    """What launches of some kernels have to do, and how long they are expected to take.

    Parameters
    ----------
    geometries : sequence of Geometry
        Of the kernels.
    costs : array
        A row a kernel, nanoseconds for one of each of `TERMS`.
    """

    def __init__(self, geometries: Sequence[Geometry], costs: Floats) -> None:
        super().__init__(geometries)
        self.costs = costs

    def expected(self, problem: Problem, multiprocessors: int) -> Floats:
        """Return the nanoseconds to expect of each kernel.

        Of what is larger than anything that a device holds, none: any kernel will do.
        """
        m, n, k = (max(1, side) for side in (problem.m, problem.n, problem.k))
        if max(m * n, m * k, n * k) * problem.batch > _MOST_ELEMENTS:
            return np.zeros(len(self.costs))
        does = self.work(problem, multiprocessors)
        total = self.costs[:, 0] * does[:, 0]
        for term in range(1, len(TERMS)):  # in this order: a matrix product would choose its own
            total = total + self.costs[:, term] * does[:, term]
        return total
