"""Which config next?  One file a strategy; a new one is a file and a row here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.space import Config, Space
from tilewright.tuning.strategies.base import Strategy
from tilewright.tuning.strategies.climb import Climb
from tilewright.tuning.strategies.exhaustive import Exhaustive
from tilewright.tuning.strategies.sampled import Sampled

__all__ = ["STRATEGIES", "Strategy", "strategy"]

STRATEGIES: dict[str, Callable[[Space, int, Sequence[Config]], Strategy]] = {
    "climb": Climb,
    "exhaustive": Exhaustive,
    "random": Sampled,
}


def strategy(name: str, space: Space, seed: int, start: Sequence[Config]) -> Strategy:
    """Return a strategy by name.

    Parameters
    ----------
    name : str
        One of `STRATEGIES`.
    space : Space
        What to search.
    seed : int
        Makes every random choice repeatable.
    start : sequence of Config
        Points worth trying first, such as a stencil's default.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    if name not in STRATEGIES:
        raise ValueError(f"strategy={name!r} is unknown; use one of {', '.join(STRATEGIES)}")
    return STRATEGIES[name](space, seed, start)
