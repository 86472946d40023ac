"""How well a search did against random search, over a budget: one number a space.

The methodology is the auto-tuning community's (Willemsen et al., "A methodology for comparing
optimization algorithms for auto-tuning", 2024): a search's best so far, averaged over its runs, is
set between the expected best of random search (0) and the optimum (1) at each moment of a budget;
its score is the mean over the budget.  The budget is where random search is expected to have come
95 % of the way from the median to the optimum, so that easy and hard spaces count alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tilewright.tuning.recorded import Recording
from tilewright.tuning.recorded.simulate import Trajectory

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["budget_candidates", "progress", "random_search", "score"]

# How far random search has come where the budget begins and where it ends.
_FIRST, _LAST = 0.01, 0.95

# Moments of the budget at which searches are compared.
_MOMENTS = 500


def random_search(recording: Recording, tries: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the best that random search is expected to have after so many tries.

    Drawing k of N points without replacement, the best is expected at place k (N + 1) / (k + 1)
    from the slowest; points that fail are not drawn, which favours random search.

    Parameters
    ----------
    recording : Recording
        The space.
    tries : ndarray
        1 or more each.
    """
    slowest_first = recording.sorted_seconds[::-1]
    total = len(slowest_first)
    place = tries * (total + 1) / (tries + 1) - 1
    return np.interp(place, np.arange(total), slowest_first)


def budget_candidates(recording: Recording, way: float = _LAST) -> int:
    """Return after how many tries random search is that part of the way to the optimum."""
    slowest_first = recording.sorted_seconds[::-1]
    total = len(slowest_first)
    target = recording.best + (float(np.median(slowest_first)) - recording.best) * (1 - way)
    place = int(np.argmax(slowest_first <= target))
    return max(1, math.ceil(place / (total + 1 - place)))


def progress(
    recording: Recording, runs: Sequence[Trajectory], *, clock: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how far between random search and the optimum runs are, over the budget.

    Parameters
    ----------
    recording : Recording
        The space.
    runs : sequence of Trajectory
        Of one strategy with several seeds.
    clock : bool
        Over seconds of tuning, the strategy's own among them, rather than over candidates.

    Returns
    -------
    moments, standing : ndarray
        Candidates or seconds; 0 for random search's expected best, 1 for the optimum.
    """
    unit = recording.typical_cost if clock else 1.0
    first, last = budget_candidates(recording, _FIRST), budget_candidates(recording)
    tries = np.linspace(min(first, last), last, _MOMENTS)
    expected = random_search(recording, tries)
    slowest = float(recording.sorted_seconds[-1])
    rows = []
    for run in runs:
        best = np.where(np.isfinite(found := run.best_so_far(recording)), found, slowest)
        at = run.spent(recording) if clock else np.arange(1, len(run) + 1)
        done = np.searchsorted(at, tries * unit, side="right")
        # Before its first result a search has what random search has in the mean: one point.
        rows.append(np.where(done > 0, best[np.maximum(done - 1, 0)], expected[0]))
    away = np.maximum(expected - recording.best, 1e-12 * recording.best)
    return tries * unit, (expected - np.mean(rows, axis=0)) / away


def score(recording: Recording, runs: Sequence[Trajectory], *, clock: bool = False) -> float:
    """Return the mean of `progress` over the budget: at most 1, 0 for random search."""
    return float(np.mean(progress(recording, runs, clock=clock)[1]))
