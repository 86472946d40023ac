"""How tuning went: every candidate in the order it was tried, and the best so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from tilewright.problem import Problem
from tilewright.report.gather import Device, Gathered, Tried
from tilewright.report.model import Curve, Curves, Figure, Section, Table
from tilewright.report.svg import ROLES
from tilewright.report.words import grouped, scale_of, tiling
from tilewright.tuning.measurement import Stage

__all__ = ["section"]

# More problems of one device than anybody compares; the newest are shown.
_PROBLEMS = 12
# A page must open on a phone: of longer searches the improvements stay, and every nth other.
_POINTS = 1500
_TABLE_ROWS = 300
# Two candidates so many seconds apart are of two runs.
_PAUSE = 60.0
# Where a candidate ends, by how its measurement calls it.
_REJECTED = {
    "not compiled": ("compile_error",),
    "wrong": ("wrong_result",),
    "failed on the device": ("crash", "launch_error", "out_of_memory", "timeout"),
}


def section(data: Gathered) -> Section:
    """Return two figures for each problem that was tuned, the newest first."""
    figures, missing, rows = [], [], []
    for device in data.devices:
        tried = data.tried.get(device.fingerprint, ())
        screened = (one for one in tried if one.stage is Stage.SCREEN)
        searches = grouped(screened, lambda one: one.problem)
        newest = sorted(searches.items(), key=lambda item: item[1][-1].created, reverse=True)
        if len(newest) > _PROBLEMS:
            missing.append(
                f"{len(newest) - _PROBLEMS} older searches on {device.label} are not drawn."
            )
        for problem, found in newest[:_PROBLEMS]:
            figures += [_figure(device, problem, found), _over_time(device, problem, found)]
            rows.append(_fates(device, problem, found, tried))
    heads = ("problem", "device", "tried", *_REJECTED, "timed", "raced", "certified")
    return Section(
        "progress",
        "Tuning progress",
        "Every candidate of the search in the order in which it was tried, and the best so far of "
        "each strategy by its own candidates, and by the seconds that it searched. Crosses on the "
        "axis are candidates that failed; each is stored with its reason.",
        tables=(Table("What was rejected where", heads, tuple(rows)),) if rows else (),
        figures=tuple(figures),
        missing=tuple(missing),
        command="tilewright tune --precision s --size 1024 --budget 60s",
    )


def _fates(
    device: Device, problem: Problem, screened: list[Tried], tried: Sequence[Tried]
) -> tuple[str, ...]:
    """Return how many candidates came how far."""
    ends = Counter(one.status for one in screened)
    rejected = [sum(ends[status] for status in statuses) for statuses in _REJECTED.values()]
    stages = Counter(one.stage for one in tried if one.problem == problem and one.ok)
    counts = (len(screened), *rejected, ends["ok"], stages[Stage.FINAL], stages[Stage.WINNER])
    return str(problem), device.label, *(f"{count:,}" for count in counts)


def _best(points: Sequence[tuple[float, float]], end: float) -> tuple[tuple[float, float], ...]:
    """Return where the best so far got better, and the end."""
    best: list[tuple[float, float]] = []
    for at, rate in points:
        if not best or rate > best[-1][1]:
            best.append((at, rate))
    return (*best, (end, best[-1][1])) if best else ()


def _figure(device: Device, problem: Problem, tried: list[Tried]) -> Figure:
    scale, unit = scale_of(one.rate for one in tried)
    good = [(float(at), one.rate / scale) for at, one in enumerate(tried, 1) if one.ok]
    failed = [(float(at), 0.0) for at, one in enumerate(tried, 1) if not one.ok]
    best = _best(good, len(tried))
    every = max(1, -(-len(good) // _POINTS))
    curves = (
        Curve("a candidate", "other", tuple(good[::every]), "dots"),
        *(
            Curve(name, role, _best([(x, y / scale) for x, y in points], len(points)), "step")
            for name, role, points in _strategies(tried, by_count=True)
        ),
        Curve("failed", "failed", tuple(failed[:: max(1, len(failed) // _POINTS)]), "crosses"),
    )
    fates = Counter(one.status for one in tried)
    told = ", ".join(f"{count} {status}" for status, count in sorted(fates.items()))
    return Figure(
        f"{problem} on {device.label}",
        f"{len(tried)} candidates: {told}."
        + (f" The best reached {best[-1][1]:,.1f} {unit}." if best else ""),
        Curves("candidates tried", unit, tuple(c for c in curves if c.points)),
        _table(tried, {int(at) for at, _ in best[:-1]}, scale, unit),
    )


def _strategies(
    tried: list[Tried], *, by_count: bool
) -> list[tuple[str, str, list[tuple[float, float]]]]:
    """Return for each strategy its name, how it is drawn, and rates by its candidates or seconds.

    Pauses between two runs of a search are not counted.
    """
    found = []
    names = list(dict.fromkeys(one.strategy for one in tried))
    for name, role in zip(names, ROLES, strict=False):
        points, spent, before = [], 0.0, None
        for at, one in enumerate((x for x in tried if x.strategy == name), 1):
            now = datetime.fromisoformat(one.created)
            if before is not None and 0 < (passed := (now - before).total_seconds()) < _PAUSE:
                spent += passed
            before = now
            points.append((float(at) if by_count else spent, one.rate if one.ok else 0.0))
        label = f"best so far: {name}" if name else "best so far"
        found.append((label, role, points))
    return found


def _over_time(device: Device, problem: Problem, tried: list[Tried]) -> Figure:
    """Return the best so far of each strategy against the seconds that it searched."""
    scale, unit = scale_of(one.rate for one in tried)
    curves, rows = [], []
    for name, role, points in _strategies(tried, by_count=False):
        best = _best([(x, y / scale) for x, y in points if y], points[-1][0])
        curves.append(Curve(name, role, best, "step"))
        last = f"{best[-1][1]:,.2f}" if best else ""
        rows.append((name, f"{len(points):,}", f"{points[-1][0]:,.1f}", last))
    return Figure(
        f"{problem} on {device.label}, over time",
        f"The best so far against seconds of searching, {len(rows)} strategies.",
        Curves("seconds", unit, tuple(one for one in curves if one.points)),
        Table("Strategies", ("strategy", "candidates", "seconds", f"best, {unit}"), tuple(rows)),
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
