"""A strategy on a recorded space: what it would have tried, and what that would have taken."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.tuning.budget import Budget, Within
from tilewright.tuning.recorded.recording import Recording
from tilewright.tuning.strategies import strategy as make_strategy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilewright.tuning.strategies import Background

__all__ = ["Trajectory", "simulate"]


@dataclass(frozen=True)
class Trajectory:
    """What a search tried, in the order in which results came.

    Parameters
    ----------
    rows : ndarray of int, shape (tried,)
        Points of the recording.
    thinking : ndarray, shape (tried,)
        Seconds that the strategy itself took until each of them was proposed.
    """

    rows: NDArray[np.intp]
    thinking: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.rows)

    def best_so_far(self, recording: Recording) -> NDArray[np.float64]:
        """Return the least seconds after each try; infinity before the first that did not fail."""
        seconds = recording.seconds[self.rows]
        return np.minimum.accumulate(np.where(np.isfinite(seconds), seconds, np.inf))

    def spent(self, recording: Recording) -> NDArray[np.float64]:
        """Return the seconds that tuning would have taken after each try."""
        cost = recording.cost[self.rows]
        known = np.where(np.isfinite(cost), cost, recording.typical_cost)
        return np.cumsum(known + self.thinking)


def simulate(
    recording: Recording,
    name: str,
    seed: int,
    budget: Budget,
    *,
    background: Background | None = None,
) -> Trajectory:
    """Run a strategy on a recorded space.

    Parameters
    ----------
    recording : Recording
        The space.
    name : str
        One of `tilewright.tuning.strategies.STRATEGIES`.
    seed : int
        Makes the strategy's choices repeatable.
    budget : Budget
        When it ends: recorded seconds and the strategy's own, candidates, or tries in a row that
        improved nothing.
    background : Background, optional
        What the strategy may know beforehand.

    Raises
    ------
    ValueError
        If there is no such strategy.
    """
    chosen = Within(make_strategy(name, recording.space, seed, (), background), budget)
    rows: list[int] = []
    thinking: list[float] = []
    spent = 0.0
    while spent < budget.seconds:
        started = time.perf_counter()
        config = chosen.propose()
        if config is None:
            break
        seconds = recording.tried(config)
        chosen.observe(config, seconds)
        thinking.append(time.perf_counter() - started)
        rows.append(recording.space.row(config))
        known = float(recording.cost[rows[-1]])
        spent += thinking[-1] + (known if np.isfinite(known) else recording.typical_cost)
    return Trajectory(np.array(rows, np.intp), np.array(thinking))
