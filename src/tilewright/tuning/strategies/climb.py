"""Hill climbing over neighbours from the best points known, with random restarts."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tilewright.space import Config
from tilewright.tuning.strategies.base import STRATEGIES, Points
from tilewright.tuning.strategies.guided import Drawing

__all__ = ["Climb"]

# Points that are drawn before climbing starts, best forecasts first: enough to land on several
# hills, a small part of what a minute allows.
_SCOUTS = 24

# The climb follows this many leaders at once: the first of a noisy screening is often
# not the best of the quiet final.
_LEADERS = 4

# Share of proposals that keep drawing, so that no hill is missed for ever.
_EXPLORATION = 0.15


class Climb(Drawing):
    """Try starting points and scouts, then the neighbours of the best seen."""

    def __init__(self, space: Points, seed: int, start: Sequence[Config]) -> None:
        super().__init__(space, seed, start)
        self._random = random.Random(seed)  # noqa: S311  # a search, not a secret
        self._seconds: dict[Config, float] = {}
        self._neighbours: dict[Config, list[Config]] = {}
        self._first = list(reversed(self.start))
        self._scouts = _SCOUTS

    def propose(self) -> Config | None:
        """Return a starting point, a scout, or a neighbour of a leader."""
        chosen = self._first.pop() if self._first else self._next()
        if chosen is not None:
            self._proposed.add(chosen)
        return chosen

    def _next(self) -> Config | None:
        scouting = self._scouts > 0
        if scouting or self._random.random() < _EXPLORATION:
            self._scouts -= 1
            drawn = self._draw()
            if drawn is not None:
                return drawn
        for leader in sorted(self._seconds, key=self._seconds.__getitem__)[:_LEADERS]:
            around = self._around(leader)
            while around:
                candidate = around.pop()
                if candidate not in self._proposed:
                    return candidate
        return self._draw()

    def _around(self, leader: Config) -> list[Config]:
        if leader not in self._neighbours:
            # Nearest values come first; the list is used from its end.
            self._neighbours[leader] = list(reversed(list(self.space.neighbours(leader))))
        return self._neighbours[leader]

    def observe(self, config: Config, seconds: float | None) -> None:
        """Remember a time; also of configs that others proposed."""
        self._proposed.add(config)
        if seconds is not None:
            self._seconds[config] = seconds


STRATEGIES["climb"] = Climb
