"""The protocol between a strategy and the tuner: ask for configs, tell their times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from tilewright.space import Config, Space

__all__ = ["STRATEGIES", "Strategy"]


class Strategy(ABC):
    """Chooses which configs are tried, in which order.

    Parameters
    ----------
    space : Space
        What to search.
    seed : int
        Makes every random choice repeatable.
    start : sequence of Config
        Points to try first.
    """

    def __init__(self, space: Space, seed: int, start: Sequence[Config]) -> None:
        self.space, self.seed, self.start = space, seed, tuple(start)

    @abstractmethod
    def propose(self) -> Config | None:
        """Return a config not proposed before; None when there is nothing to propose.

        None is final unless a result that is still under way changes it.
        """

    @abstractmethod
    def observe(self, config: Config, seconds: float | None) -> None:
        """Learn a config's time; None means that it failed."""


STRATEGIES: dict[str, Callable[[Space, int, Sequence[Config]], Strategy]] = {}
"""By name; each strategy's file adds its own."""
