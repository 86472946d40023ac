"""Every point of the space, the starting points first, the rest shuffled 2^16 at a time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice

from tilewright.space import Config
from tilewright.tuning.strategies.base import STRATEGIES, Fixed

__all__ = ["Exhaustive"]

# Points that are shuffled at once: what was tried of a smaller space is a uniform draw of it.
_SHUFFLED = 2**16


class Exhaustive(Fixed):
    """Try every point, as ASTRA does (Kurzak et al., section 6)."""

    def order(self) -> Iterator[Config]:
        """Yield all points of the space, some at a time in random order."""
        every, rng = iter(self.space.enumerate()), random.Random(self.seed)  # noqa: S311
        while batch := list(islice(every, _SHUFFLED)):
            rng.shuffle(batch)
            yield from batch


STRATEGIES["exhaustive"] = Exhaustive
