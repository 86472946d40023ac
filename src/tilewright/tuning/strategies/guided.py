"""The points that a static model expects most of, best first; nothing is learned of times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice

import numpy as np

from tilewright.space import Config
from tilewright.tuning.strategies.base import STRATEGIES, Background, Fixed, Points, Strategy
from tilewright.tuning.strategies.sampled import draws

__all__ = ["Drawing", "Guided"]

# A space of so many points is ranked as a whole; of a larger one so many are drawn, time and again.
_RANKED = 8192


def ranked(space: Points, seed: int, background: Background) -> Iterator[Config]:
    """Yield all points, what a static model expects most of first among each few thousand draws."""
    drawn = draws(space, seed)
    while some := list(islice(drawn, _RANKED)):
        if background.forecast is None:
            yield from some
            continue
        order = np.argsort(-background.forecast(some), kind="stable")
        yield from (some[place] for place in order.tolist())


class Drawing(Strategy):
    """A strategy that draws points in the order of `ranked`, none that was proposed."""

    def __init__(self, space: Points, seed: int, start: Sequence[Config]) -> None:
        super().__init__(space, seed, start)
        self._proposed: set[Config] = set()

    @cached_property
    def _draws(self) -> Iterator[Config]:
        return ranked(self.space, self.seed, self.background)

    def _draw(self) -> Config | None:
        return next((config for config in self._draws if config not in self._proposed), None)


class Guided(Fixed):
    """Rank points by `Background.forecast`; where there is none, draw them."""

    def order(self) -> Iterator[Config]:
        """Yield the best first."""
        return ranked(self.space, self.seed, self.background)


STRATEGIES["guided"] = Guided
