"""Funnel: how many points each constraint leaves."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.dataclass import dataclass
from tilewright.space.constraint import Kind

__all__ = ["Funnel", "Stage"]


@dataclass(frozen=True)
class Stage:
    """One constraint's row of a funnel.

    Parameters
    ----------
    name, kind, reason : str
        The constraint's.
    survivors : int
        Points that meet this constraint and all before it.
    removed : int
        Points that meet all before it and not this one.
    """

    name: str
    kind: Kind
    reason: str
    survivors: int
    removed: int


@dataclass(frozen=True)
class Funnel:
    """What is left of a space after each constraint, in declared order.

    The exact counterpart of ASTRA's numbers of tested kernels (Kurzak et al.
    2012, Figure 2), with every pruning rule in between.

    Parameters
    ----------
    raw_size : int
        Points before any constraint.
    stages : tuple of Stage
        A row for each constraint.
    """

    raw_size: int
    stages: tuple[Stage, ...]

    @property
    def survivors(self) -> int:
        """Points that meet every constraint."""
        return self.stages[-1].survivors if self.stages else self.raw_size

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def __len__(self) -> int:
        return len(self.stages)
