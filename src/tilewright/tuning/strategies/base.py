"""The protocol between a strategy and the tuner: ask for configs, tell their times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.space import Config, Parameter, Value
from tilewright.text import install_hint

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["STRATEGIES", "Background", "Fixed", "Lesson", "Points", "Strategy", "needs"]


def needs(package: str, what: str) -> None:
    """Refuse to begin what a package is missing for, that would else end in the middle.

    Raises
    ------
    RuntimeError
        If it is not here; with the extra that brings it.
    """
    if find_spec(package) is None:
        raise RuntimeError(f"{what} needs {package}; {install_hint('search')}")


class Points(Protocol):
    """What strategies ask of a space: `Space` and `RecordedSpace` are such."""

    stencil_name: str

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return what may be varied."""

    def count(self) -> int:
        """Return the number of points."""

    def sample(self, n: int, seed: int) -> list[Config]:
        """Return points drawn uniformly, the same for the same seed."""

    def enumerate(self) -> Iterator[Config]:
        """Yield every point."""

    def neighbours(self, config: Mapping[str, Value]) -> list[Config]:
        """Return the points that differ from one in one parameter, nearest values first."""

    def contained(self, points: Sequence[Mapping[str, Value]]) -> list[bool]:
        """Return of each point whether it is in the space."""

    def __contains__(self, values: object) -> bool: ...


@dataclass(frozen=True)
class Lesson:
    """What was measured before: one problem on one device.

    Parameters
    ----------
    configs : sequence of Config
        That were timed, or failed.
    seconds : ndarray, shape (configs,)
        Their times; NaN where one failed.
    features : ndarray, shape (configs, features)
        As `Background.features` gives them for the problem and the device of the lesson.
    alike : bool
        Whether its kernels are those of the problem that is asked about: of the same precision and
        transposes, so that sizes alone tell them apart.
    """

    configs: Sequence[Config]
    seconds: NDArray[Any]
    features: NDArray[Any]
    alike: bool = False


@dataclass(frozen=True)
class Background:
    """What a strategy may know besides its space.

    Parameters
    ----------
    features : callable, optional
        Returns numbers about configs on this problem and device, one row each.
    forecast : callable, optional
        Returns of configs the share of the device's peak that a static model expects of each.
    lessons : callable
        Returns measurements of the same stencil on other problems, precisions or devices.
    of_one_problem : int, optional
        How many of the features, from the first, a model without lessons is given: few points
        tell little of many numbers.  All where None.
    """

    features: Callable[[Sequence[Config]], NDArray[Any]] | None = None
    forecast: Callable[[Sequence[Config]], NDArray[Any]] | None = None
    lessons: Callable[[], tuple[Lesson, ...]] = tuple
    of_one_problem: int | None = None


class Strategy(ABC):
    """Chooses which configs are tried, in which order.

    Parameters
    ----------
    space : Points
        What to search.
    seed : int
        Makes every random choice repeatable.
    start : sequence of Config
        Points to try first.

    Attributes
    ----------
    background : Background
        What is known besides the space; set before the first proposal.
    """

    background: Background = Background()

    def __init__(self, space: Points, seed: int, start: Sequence[Config]) -> None:
        self.space, self.seed, self.start = space, seed, tuple(start)

    @abstractmethod
    def propose(self) -> Config | None:
        """Return a config not proposed before; None when there is nothing to propose.

        None is final unless a result that is still under way changes it.
        """

    @abstractmethod
    def observe(self, config: Config, seconds: float | None) -> None:
        """Learn a config's time; None means that it failed."""


class Fixed(Strategy):
    """A strategy that learns nothing: starting points, and all others in an order of its own."""

    @abstractmethod
    def order(self) -> Iterator[Config]:
        """Yield all points, each once."""

    @cached_property
    def _left(self) -> Iterator[Config]:
        first = dict.fromkeys(self.start)
        return chain(first, (config for config in self.order() if config not in first))

    def propose(self) -> Config | None:
        """Return the next point."""
        return next(self._left, None)

    def observe(self, config: Config, seconds: float | None) -> None:
        """Learn nothing."""


STRATEGIES: dict[str, Callable[[Points, int, Sequence[Config]], Strategy]] = {}
"""By name; each strategy's file adds its own."""
