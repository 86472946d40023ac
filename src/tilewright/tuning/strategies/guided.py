"""The points that a static model expects most of, best first; nothing is learned of times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain

import numpy as np

from tilewright.space import Config
from tilewright.tuning.strategies.base import STRATEGIES, Points, Strategy
from tilewright.tuning.strategies.sampled import draws

__all__ = ["Guided"]

# A space of so many points is ranked as a whole; of a larger one so many are drawn, time and again.
_RANKED = 8192


class Guided(Strategy):
    """Rank points by `Background.forecast`; where there is none, draw them."""

    def __init__(self, space: Points, seed: int, start: Sequence[Config]) -> None:
        super().__init__(space, seed, start)
        self._proposed: set[Config] = set()

    @cached_property
    def _order(self) -> Iterator[Config]:
        return chain(self.start, self._ranked())

    def _ranked(self) -> Iterator[Config]:
        """Yield all points, the best of each few thousand first."""
        drawn = draws(self.space, self.seed)
        while some := [config for config, _ in zip(drawn, range(_RANKED), strict=False)]:
            if self.background.forecast is None:
                yield from some
                continue
            order = np.argsort(-self.background.forecast(some), kind="stable")
            yield from (some[place] for place in order.tolist())

    def propose(self) -> Config | None:
        """Return a starting point, or the best that was not proposed."""
        found = next((config for config in self._order if config not in self._proposed), None)
        if found is not None:
            self._proposed.add(found)
        return found

    def observe(self, config: Config, seconds: float | None) -> None:
        """Learn nothing: the model knows no times."""


STRATEGIES["guided"] = Guided
