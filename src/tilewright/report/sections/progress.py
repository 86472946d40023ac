"""How tuning went: every candidate in the order it was tried, and the best so far."""

from __future__ import annotations

from collections import Counter

from tilewright.problem import Problem
from tilewright.report.gather import Device, Gathered, Tried
from tilewright.report.model import Curve, Curves, Figure, Section, Table
from tilewright.report.words import scale_of, tiling
from tilewright.tuning.measurement import Stage

__all__ = ["section"]

# More problems of one device than anybody compares; the newest are shown.
_PROBLEMS = 12
# A page must open on a phone: of longer searches the improvements stay, and every nth other.
_POINTS = 1500
_TABLE_ROWS = 300


def section(data: Gathered) -> Section:
    """Return a figure for each problem that was tuned, the newest first."""
    figures, missing = [], []
    for device in data.devices:
        searches: dict[Problem, list[Tried]] = {}
        for one in data.tried.get(device.fingerprint, ()):
            if one.stage is Stage.SCREEN:
                searches.setdefault(one.problem, []).append(one)
        newest = sorted(searches.items(), key=lambda item: item[1][-1].created, reverse=True)
        if len(newest) > _PROBLEMS:
            missing.append(
                f"{len(newest) - _PROBLEMS} older searches on {device.label} are not drawn."
            )
        figures += [_figure(device, *one) for one in newest[:_PROBLEMS]]
    return Section(
        "progress",
        "Tuning progress",
        "Every candidate of the search in the order in which it was tried, and the best so far. "
        "Crosses on the axis are candidates that failed; each is stored with its reason.",
        figures=tuple(figures),
        missing=tuple(missing),
        command="tilewright tune --precision s --size 1024 --budget 60s",
    )


def _figure(device: Device, problem: Problem, tried: list[Tried]) -> Figure:
    scale, unit = scale_of(one.rate for one in tried)
    good = [(at, one.rate / scale) for at, one in enumerate(tried, 1) if one.ok]
    failed = [(float(at), 0.0) for at, one in enumerate(tried, 1) if not one.ok]
    best: list[tuple[int, float]] = []
    for at, rate in good:
        if not best or rate > best[-1][1]:
            best.append((at, rate))
    stairs = [*best, (len(tried), best[-1][1])] if best else []
    every = max(1, -(-len(good) // _POINTS))
    curves = (
        Curve("a candidate", "other", tuple(good[::every]), "dots"),
        Curve("best so far", "tilewright", tuple(stairs), "step"),
        Curve("failed", "failed", tuple(failed[:: max(1, len(failed) // _POINTS)]), "crosses"),
    )
    fates = Counter(one.status for one in tried)
    told = ", ".join(f"{count} {status}" for status, count in sorted(fates.items()))
    return Figure(
        f"{problem} on {device.label}",
        f"{len(tried)} candidates: {told}."
        + (f" The best reached {best[-1][1]:,.1f} {unit}." if best else ""),
        Curves("candidates tried", unit, tuple(c for c in curves if c.points)),
        _table(tried, {at for at, _ in best}, scale, unit),
    )


def _table(tried: list[Tried], improved: set[int], scale: float, unit: str) -> Table:
    """Return all candidates of a short search, the improvements of a long one."""
    whole = len(tried) <= _TABLE_ROWS
    rows = [
        (str(at), one.status, f"{one.rate / scale:,.2f}" if one.ok else "", tiling(one.config))
        for at, one in enumerate(tried, 1)
        if whole or at in improved
    ]
    note = "" if whole else "Improvements only; every candidate: tilewright db export"
    return Table("Candidates", ("no.", "status", unit, "tiling"), tuple(rows), note)
