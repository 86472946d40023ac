"""Every point of the space, the starting points first, the rest shuffled 2^16 at a time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from tilewright.space import Config
from tilewright.tuning.strategies.base import STRATEGIES, Points, Strategy

__all__ = ["Exhaustive"]


# Points that are shuffled at once: what was tried of a smaller space is a uniform draw of it.
_SHUFFLED = 2**16


def _shuffled(space: Points, seed: int) -> Iterator[Config]:
    """Yield all points of a space, some at a time in random order."""
    every, rng = iter(space.enumerate()), random.Random(seed)  # noqa: S311
    while batch := list(islice(every, _SHUFFLED)):
        rng.shuffle(batch)
        yield from batch


class Exhaustive(Strategy):
    """Try every point, as ASTRA does (Kurzak et al., section 6)."""

    def __init__(self, space: Points, seed: int, start: Sequence[Config]) -> None:
        super().__init__(space, seed, start)
        first = set(self.start)
        rest = (config for config in _shuffled(space, seed) if config not in first)
        self._order: Iterator[Config] = chain(self.start, rest)

    def propose(self) -> Config | None:
        """Return the next point."""
        return next(self._order, None)

    def observe(self, config: Config, seconds: float | None) -> None:
        """Learn nothing: every point comes anyway."""


STRATEGIES["exhaustive"] = Exhaustive
