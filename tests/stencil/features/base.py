"""What is asked of a feature: ways that show it, problems to draw, faults that must be found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.stencil.contract import checks
from tests.stencil.ways import Way
from tilewright.precision import PRECISIONS
from tilewright.problem import transposes_of
from tilewright.tuning.verify import Check

EVERY = [p.letter + a + b for p in PRECISIONS.values() for a, b in transposes_of(p)]
TRANSPOSES = ("NN", "NT", "TN", "TT")


@dataclass(frozen=True)
class Fault:
    """Words of a source, and wrong ones in their place.

    Parameters
    ----------
    way : Way
        Whose kernel is wrong by them.
    old, new : str
        The words.
    runs : tuple
        Problems that show it, each with a seed and a number of blocks; none: a tuner's own.
    """

    way: Way
    old: str
    new: str
    runs: tuple[tuple[Check, int, int | None], ...] = ()


@dataclass(frozen=True)
class Drawn:
    """Problems of a feature.

    Parameters
    ----------
    ways : list of Way
        Each example takes one.
    problems : callable
        Returns a strategy of problems for a way.
    examples : int
        How many.
    blocks : int
        Of a persistent grid, at most.
    """

    ways: list[Way]
    problems: Callable[[Way], st.SearchStrategy[Check]]
    examples: int = 20
    blocks: int = 5


@dataclass(frozen=True)
class Feature:
    """One feature.

    Parameters
    ----------
    certified : list of Way
        That must keep the whole contract: all classes of alpha and beta, ragged sizes, paddings,
        offsets, NaN and Inf.
    thorough : list of Way
        That must, too, and are asked in a thorough run alone.
    ways : list of Way
        That must compute what a tuner checks of every candidate, and these `checks`.
    checks : tuple of Check
        See `ways`.
    drawn : Drawn, optional
        Problems that must be computed exactly.
    faults : dict
        By what each is.
    """

    certified: list[Way] = field(default_factory=list)
    thorough: list[Way] = field(default_factory=list)
    ways: list[Way] = field(default_factory=list)
    checks: tuple[Check, ...] = ()
    drawn: Drawn | None = None
    faults: dict[str, Fault] = field(default_factory=dict)


def any_problem(chunk: int, most_k: int) -> Callable[[Way], st.SearchStrategy[Check]]:
    """Return problems whose sizes and distances are multiples of a chunk, or are not."""
    return lambda way: checks(chunk, most_k)


def faults_of(way: Way, words: dict[str, tuple[str, str]], *runs: Any) -> dict[str, Fault]:
    """Return faults that one way shows."""
    return {name: Fault(way, *pair, tuple(runs)) for name, pair in words.items()}


def at(sizes: tuple[int, int, int], pads: tuple[int, ...], beta: int = 1) -> tuple[Check, ...]:
    """Return one problem whose columns begin at several places."""
    return tuple(Check(*sizes, beta=beta, padding=pad, offset=pad) for pad in pads)
