"""Which parameters mattered in searches: permutation importance with its uncertainty."""

from __future__ import annotations

from tilewright.problem import Problem
from tilewright.report.gather import Device, Gathered, Tried
from tilewright.report.model import Bars, Figure, Rows, Section, Table
from tilewright.report.words import grouped
from tilewright.tuning.importance import LEAST, importances
from tilewright.tuning.measurement import Stage

__all__ = ["section"]

# Seconds of fitting each: the searches of a device with the most candidates, and of these so many.
_PROBLEMS, _CANDIDATES = 2, 800

# Bars that one compares at a glance; the table has all.
_BARS = 12


def section(data: Gathered) -> Section:
    """Return a figure for the longest searches of each device."""
    figures, missing = [], []
    for device in data.devices:
        tried = data.tried.get(device.fingerprint, ())
        right = (one for one in tried if one.stage is Stage.SCREEN and one.ok)
        searches = grouped(right, lambda one: one.problem)
        long = [item for item in searches.items() if len(item[1]) >= LEAST]
        long.sort(key=lambda item: len(item[1]), reverse=True)
        try:
            figures += [_figure(device, *one) for one in long[:_PROBLEMS]]
        except RuntimeError as problem:
            missing.append(f"{str(problem).capitalize()}.")
            break
    return Section(
        "importance",
        "What mattered",
        "By how much a model of the times gets worse when one parameter's values are shuffled: the "
        "larger, the more the parameter decides. Of twenty bootstraps the bars show the median, "
        "the table where nine in ten lie.",
        figures=tuple(figures),
        missing=tuple(missing),
        command="tilewright tune --precision s --size 1024 --budget 120s",
    )


def _figure(device: Device, problem: Problem, tried: list[Tried]) -> Figure:
    newest = tried[-_CANDIDATES:]
    flops = float(problem.flops)
    found = importances([one.config for one in newest], [flops / one.rate for one in newest])
    shown = found[:_BARS]
    bars = Bars("share of the variance", "tilewright", tuple(max(0.0, x.share) for x in shown))
    first = found[0].name if found else "none"
    return Figure(
        f"{problem} on {device.label}",
        f"Of {len(newest)} candidates' speeds, {first} explains most.",
        Rows("explained variance lost", tuple(one.name for one in shown), (bars,)),
        Table(
            "Parameters",
            ("parameter", "median", "5 %", "95 %"),
            tuple((x.name, f"{x.share:.3f}", f"{x.low:.3f}", f"{x.high:.3f}") for x in found),
        ),
    )
