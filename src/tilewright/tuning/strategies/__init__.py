"""Which config next?  One file a strategy, which adds it to `STRATEGIES`."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib import import_module

from tilewright.space import Config, Space
from tilewright.tuning.strategies.base import STRATEGIES, Strategy

__all__ = ["STRATEGIES", "Strategy", "strategy"]

for _file in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_file.name}")


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
