"""Climbs of the kernel ladder, from the results files of ``tilewright ladder``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.problem import Problem
from tilewright.report.runs import number_of, text_of
from tilewright.text import plain

__all__ = ["Climb", "Rung", "climb_of"]


@dataclass(frozen=True)
class Rung:
    """One kernel of a climb, or the library above it.

    Parameters
    ----------
    name, title, idea : str
        Who, what is new, and why that should help.
    rate, total_seconds, eta : float or None
        FLOP/s of the kernel alone, seconds with transfers, largest error.
    limits : str
        What stops it.
    reason : str
        Why there is no rate.
    """

    name: str
    title: str
    idea: str
    rate: float | None
    total_seconds: float | None
    eta: float | None
    limits: str
    reason: str


@dataclass(frozen=True)
class Climb:
    """All rungs on one problem and device.

    Parameters
    ----------
    device : str
        Fingerprint.
    problem : Problem
        Column-major, as it was measured.
    title : str
        The row-major problem in words.
    library : str
        The rung that is the vendor's library; empty where none ran.
    bound : float or None
        FLOP/s.
    limiting : str
        The bound's smallest term.
    rungs : tuple of Rung
        From the lowest up, libraries last.
    source, date : str
        File and ISO date.
    """

    device: str
    problem: Problem
    title: str
    library: str
    bound: float | None
    limiting: str
    rungs: tuple[Rung, ...]
    source: str
    date: str

    def share(self, rung: Rung, of: float | None) -> str:
        """Return a rung's rate as percent of another, empty where one is missing."""
        return f"{100 * rung.rate / of:.1f} %" if rung.rate and of else ""

    @property
    def library_rate(self) -> float | None:
        """The library's rate in FLOP/s."""
        return next((one.rate for one in self.rungs if one.name == self.library), None)


def climb_of(row: Mapping[str, Any], device: str, source: str, date: str) -> Climb:
    """Return one problem's climb.

    Raises
    ------
    ValueError, KeyError, TypeError
        If the record is not of the form that ``tilewright ladder -o`` writes.
    """
    rows, columns, depth = (int(side) for side in row["size"])
    bound = row.get("bound")
    bound = bound if isinstance(bound, dict) else {}
    return Climb(
        device,
        Problem(columns, rows, depth, text_of(row.get("precision")) or "s"),  # type: ignore[arg-type]
        plain(str(row.get("problem", "")))[:120],
        text_of(row.get("library")),
        number_of(bound.get("flops_per_second")),
        text_of(bound.get("limiting")),
        tuple(_rung(one) for one in row["rungs"]),
        source,
        date,
    )


def _rung(record: Mapping[str, Any]) -> Rung:
    return Rung(
        text_of(record["name"]),
        text_of(record.get("title")),
        text_of(record.get("idea")),
        number_of(record.get("flops_per_second")),
        number_of(record.get("total_seconds")),
        number_of(record.get("eta")),
        text_of(record.get("limits")),
        text_of(record.get("reason")),
    )
