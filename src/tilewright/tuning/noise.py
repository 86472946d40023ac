"""How far times can be trusted: how rounds differ, and what else ran meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

__all__ = ["OutsideLoad", "noise", "spread"]

# On a quiet machine of two cores the middle half of the rounds lies within 5 %.
_SPREAD = 0.2

# Of the cores that this process may use.
_OUTSIDE = 0.1

# Fewer rounds than these have no middle half.
_LEAST = 4

# Columns of /proc/stat: user, nice, system; interrupts, soft interrupts, stolen by other machines.
_BUSY = (0, 1, 2, 5, 6, 7)


def spread(times: Sequence[float]) -> float:
    """Return the distance between the quartiles, over the median; 0 of too few."""
    if len(times) < _LEAST:
        return 0.0
    low, middle, high = np.percentile(np.asarray(times, np.float64), (25, 50, 75))
    return float((high - low) / middle)


class OutsideLoad:
    """What share of this process's cores others took, from its making on; Linux alone tells.

    Work of child processes counts as others'.
    """

    def __init__(self) -> None:
        self._began = time.perf_counter(), _busy_seconds(), time.process_time()

    def share(self) -> float | None:
        """Return the share until now, from 0 to 1; None where nobody tells."""
        began, busy, own = self._began
        now = _busy_seconds()
        seconds = time.perf_counter() - began
        if busy is None or now is None or not seconds:
            return None
        others = (now - busy) - (time.process_time() - own)
        return min(1.0, max(0.0, others / (seconds * len(os.sched_getaffinity(0)))))


def _busy_seconds() -> float | None:
    """Return how long the cores that this process may use were busy since the machine started."""
    try:
        mine = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        lines = Path("/proc/stat").read_text().splitlines()
    except (AttributeError, OSError):
        return None
    rows = [fields for line in lines if (fields := line.split()) and fields[0] in mine]
    ticks = sum(int(fields[1 + column]) for fields in rows for column in _BUSY)
    return ticks / os.sysconf("SC_CLK_TCK") if rows else None


def noise(times: Mapping[str, Sequence[float]], outside: float | None) -> list[str]:
    """Return what makes times doubtful, a line each; nothing if they can be trusted.

    Parameters
    ----------
    times : mapping of str to sequence of float
        Times of all rounds by whose they are, in any unit.
    outside : float or None
        See `OutsideLoad.share`.
    """
    found = [
        f"the middle half of {name}'s rounds spreads over {share:.0%} of their median"
        for name, taken in times.items()
        if (share := spread(taken)) > _SPREAD
    ]
    if outside is not None and outside > _OUTSIDE:
        found.append(f"other processes took {outside:.0%} of this machine's cores meanwhile")
    return found
