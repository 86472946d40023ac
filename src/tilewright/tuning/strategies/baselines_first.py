"""Rescheduled configs come after their baselines, and only where these are among the fastest."""

from __future__ import annotations

import math
import os

from tilewright.reschedule.levels import unscheduled
from tilewright.space import Config
from tilewright.tuning.strategies.base import Strategy

__all__ = ["BaselinesFirst"]

# Rescheduling takes up to minutes for each kernel, and the model promises a few percent at most
# (docs/scheduling.md): a kernel slower than the best by more than this does not win by it.
_WITHIN = 1.1


class BaselinesFirst(Strategy):
    """Put the compiler's own code before what is made of it, whatever a strategy proposes.

    Parameters
    ----------
    inner : Strategy
        Proposes, and learns every time.
    at_once : int, optional
        How many rescheduled configs may be under way; a quarter of the cores by default, as
        compiling must go on meanwhile.
    """

    def __init__(self, inner: Strategy, at_once: int | None = None) -> None:
        super().__init__(inner.space, inner.seed, inner.start)
        self._inner = inner
        self._asked: set[Config] = set()
        self._times: dict[Config, float] = {}
        self._waiting: dict[Config, list[Config]] = {}  # by the baseline that is not timed yet
        self._ready: list[Config] = []
        self._searched: set[Config] = set()  # proposed, and not observed yet
        self._at_once = at_once or max(1, len(os.sched_getaffinity(0)) // 4)

    def propose(self) -> Config | None:
        """Return what the strategy proposes, or first the baseline that it was made of."""
        while True:
            while self._ready and len(self._searched) < self._at_once:
                config = min(self._ready, key=lambda one: self._times[unscheduled(one)])
                self._ready.remove(config)
                if self._times[unscheduled(config)] <= _WITHIN * min(
                    self._times.values(), default=math.inf
                ):
                    self._searched.add(config)
                    return config
                self._inner.observe(config, None)
            found = self._inner.propose()
            if found is None:
                return None
            baseline = unscheduled(found)
            if baseline != found:
                self._wait(found, baseline)
            if baseline not in self._asked:
                self._asked.add(baseline)
                return baseline

    def _wait(self, config: Config, baseline: Config) -> None:
        """Keep a rescheduled config until its baseline was timed."""
        if baseline in self._times:
            self._ready.append(config)
        else:
            self._waiting.setdefault(baseline, []).append(config)

    def observe(self, config: Config, seconds: float | None) -> None:
        """Learn a time; a baseline's lets go what waited for it."""
        self._inner.observe(config, seconds)
        self._searched.discard(config)
        if unscheduled(config) != config:
            return
        self._asked.add(config)
        waiting = self._waiting.pop(config, [])
        if seconds is None:
            for one in waiting:  # what is made of a wrong kernel is as wrong
                self._inner.observe(one, None)
            return
        self._times[config] = seconds
        self._ready.extend(waiting)
