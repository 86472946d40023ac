"""Which config next?  One file a strategy, which adds it to `STRATEGIES`."""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from tilewright.space import Config
from tilewright.tuning.strategies.base import STRATEGIES, Background, Lesson, Points, Strategy

__all__ = ["STRATEGIES", "Background", "Lesson", "Points", "Strategy", "strategy", "usual_strategy"]

for _file in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_file.name}")


def usual_strategy() -> str:
    """Return the strategy that found most on recorded spaces, of those that are installed."""
    return "learned" if find_spec("sklearn") else "climb"


def strategy(
    name: str,
    space: Points,
    seed: int,
    start: Sequence[Config],
    background: Background | None = None,
) -> Strategy:
    """Return a strategy by name.

    Parameters
    ----------
    name : str
        One of `STRATEGIES`.
    space : Points
        What to search.
    seed : int
        Makes every random choice repeatable.
    start : sequence of Config
        Points worth trying first, such as a stencil's default.
    background : Background, optional
        What else the strategy may know.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    if name not in STRATEGIES:
        raise ValueError(f"strategy={name!r} is unknown; use one of {', '.join(STRATEGIES)}")
    made = STRATEGIES[name](space, seed, start)
    if background is not None:
        made.background = background
    return made
