"""Every point of the space, the starting points first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from tilewright.space import Config
from tilewright.tuning.strategies.base import STRATEGIES, Points, Strategy

__all__ = ["Exhaustive"]


class Exhaustive(Strategy):
    """Try every point, as ASTRA does (Kurzak et al., section 6)."""

    def __init__(self, space: Points, seed: int, start: Sequence[Config]) -> None:
        super().__init__(space, seed, start)
        first = set(self.start)
        rest = (config for config in space.enumerate() if config not in first)
        self._order: Iterator[Config] = chain(self.start, rest)

    def propose(self) -> Config | None:
        """Return the next point."""
        return next(self._order, None)

    def observe(self, config: Config, seconds: float | None) -> None:
        """Learn nothing: every point comes anyway."""


STRATEGIES["exhaustive"] = Exhaustive
