"""Candidates that are compiled and wait for the device: the most promising one first."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from tilewright.tuning.measurement import Measurement

__all__ = ["ReadyQueue"]

# A candidate whose forecast is this far below the best one's is not the fastest: of 159 kernels
# on an H100, the model's share was at most 45 points off, and 10 where it knew all wavefronts.
_HOPELESS = 0.6


@dataclass(frozen=True)
class _Ready:
    candidate: Measurement
    forecast: float


class ReadyQueue:
    """A queue by forecast; candidates with the same one leave in the order they came."""

    def __init__(self) -> None:
        self._waiting: list[_Ready] = []  # best forecast last, of equal ones the oldest

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, candidate: Measurement, forecast: float | None = None) -> None:
        """Put a candidate where its forecast, a share of the peak, says; None is the lowest."""
        ready = _Ready(candidate, forecast or 0.0)
        place = bisect_left(self._waiting, ready.forecast, key=lambda one: one.forecast)
        self._waiting.insert(place, ready)

    def take(self) -> Measurement:
        """Remove and return the most promising candidate."""
        return self._waiting.pop().candidate

    def give_up(self) -> Measurement | None:
        """Remove and return the least promising candidate, if it need not be timed at all."""
        if not self._waiting:
            return None
        worst, best = self._waiting[0], self._waiting[-1]
        if worst.forecast >= _HOPELESS * best.forecast:
            return None
        return self._waiting.pop(0).candidate
