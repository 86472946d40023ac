"""Points drawn uniformly, none twice."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from tilewright.space import Config
from tilewright.tuning.strategies.base import STRATEGIES, Fixed, Points

__all__ = ["Sampled", "draws"]

# Points a draw asks the space for at once.
_BATCH = 256


def draws(space: Points, seed: int) -> Iterator[Config]:
    """Yield points of a space in random order; each once, until all have come."""
    seen: set[Config] = set()
    total = space.count()
    for batch in count():
        fresh = [c for c in space.sample(min(_BATCH, total), seed + batch) if c not in seen]
        seen.update(fresh)
        yield from fresh
        if len(seen) >= total:
            return
        # Where most points are known already, drawing mostly repeats: list the others.
        if total <= 4 * len(seen):
            yield from (config for config in space.enumerate() if config not in seen)
            return


class Sampled(Fixed):
    """Try points drawn uniformly: the yardstick that a cleverer strategy must beat."""

    def order(self) -> Iterator[Config]:
        """Yield draws."""
        return draws(self.space, self.seed)


STRATEGIES["random"] = Sampled
