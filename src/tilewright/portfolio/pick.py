"""The fewest kernels that lose little beside everything measured: greedy, one after the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["pick"]

# A kernel that was not timed on a problem counts as so many times slower than the best there.
_UNKNOWN = 10.0

# Of the objective, beside the mean loss: the root mean square of what exceeds half of the most
# that a problem may lose.  Of 0.1, 0.3 and 1 this needed the fewest kernels for both limits.
_WORST = 0.3


def pick(ns: NDArray[np.float64], mean: float, most: float, limit: int = 64) -> tuple[int, ...]:
    """Return a small set of kernels, by their columns in the order in which they were taken.

    Parameters
    ----------
    ns : array
        Times: a row a problem, a column a kernel; infinite where one was not timed.
    mean, most : float
        What problems may lose in the mean, and one at most, such as 0.02 and 0.08.
    limit : int
        Of kernels.
    """
    best = ns.min(axis=1, keepdims=True)
    loss = np.where(np.isfinite(ns), ns / best - 1, _UNKNOWN)
    columns: list[int] = []
    have = np.full(len(ns), _UNKNOWN)
    while len(columns) < min(limit, ns.shape[1]):
        made = np.minimum(have[:, None], loss)
        beyond = np.maximum(made - most / 2, 0)
        goal = made.mean(axis=0) + _WORST * np.sqrt((beyond**2).mean(axis=0))
        column = int(np.argmin(goal))
        columns.append(column)
        have = made[:, column]
        if have.mean() <= mean and have.max() <= most:
            break
    return tuple(columns)
