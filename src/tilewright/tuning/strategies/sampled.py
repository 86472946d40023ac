"""Points drawn uniformly, none twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from tilewright.space import Config
from tilewright.tuning.strategies.base import STRATEGIES, Points, Strategy

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


class Sampled(Strategy):
    """Try points drawn uniformly: the yardstick that a cleverer strategy must beat."""

    def __init__(self, space: Points, seed: int, start: Sequence[Config]) -> None:
        super().__init__(space, seed, start)
        self._waiting = list(reversed(self.start))
        self._draws = draws(space, seed)

    def propose(self) -> Config | None:
        """Return a starting point or the next draw."""
        if self._waiting:
            return self._waiting.pop()
        first = set(self.start)
        return next((config for config in self._draws if config not in first), None)

    def observe(self, config: Config, seconds: float | None) -> None:
        """Learn nothing: draws are independent."""


STRATEGIES["random"] = Sampled
