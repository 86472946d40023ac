"""A rescheduled kernel is kept only where it beats its baseline, the compiler's own code.

Both run interleaved, in one process and one race; the rescheduled one's measurement then carries
the baseline's times of that race in its environment, and the scheduler's version.  Without them it
is not served: gains are a few percent, and times of two runs differ by as much.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tilewright.reschedule.levels import is_rescheduled, unscheduled
from tilewright.reschedule.version import SCHEDULER_VERSION
from tilewright.space import Config
from tilewright.tuning.measurement import Measurement, Status

__all__ = [
    "beats_its_baseline",
    "gain",
    "grouped",
    "is_current",
    "judged",
    "marked",
    "with_baselines",
]

# Keys of a rescheduled kernel's environment.
_BASELINE, _VERSION = "unscheduled", "scheduler"


def marked(measurement: Measurement) -> Measurement:
    """Return a measurement that says which scheduler made its kernel, if one did."""
    if not is_rescheduled(measurement.config):
        return measurement
    return _with(measurement, {_VERSION: SCHEDULER_VERSION})


def _with(measurement: Measurement, more: dict[str, Any]) -> Measurement:
    return replace(measurement, environment={**measurement.environment, **more})


def is_current(measurement: Measurement) -> bool:
    """Whether the scheduler would make the same kernel today."""
    version = measurement.environment.get(_VERSION)
    return not is_rescheduled(measurement.config) or version == SCHEDULER_VERSION


def with_baselines(ranked: Sequence[Measurement]) -> list[Measurement]:
    """Return finalists, rescheduled ones right before their baselines, each config once."""
    found = []
    for group in grouped(ranked):
        found += group
        baseline = unscheduled(group[0].config)
        if all(one.config != baseline for one in group):
            found.append(
                replace(group[0], config=baseline, times_ns=(), error=None, compile_seconds=None)
            )
    return found


def grouped(candidates: Sequence[Measurement]) -> list[list[Measurement]]:
    """Return candidates one by one, rescheduled ones together with their baselines."""
    by_baseline: dict[Config, list[Measurement]] = {}
    for one in candidates:
        by_baseline.setdefault(unscheduled(one.config), []).append(one)
    return list(by_baseline.values())


def judged(raced: Iterable[Measurement]) -> list[Measurement]:
    """Return what was right in a race, fastest first, rescheduled ones if faster than baselines.

    These carry their baselines' time from here on.  Rounds are compared one by one, since clocks
    drift in a race.
    """
    right = {one.config: one for one in raced if one.status == Status.OK}
    kept = []
    for one in right.values():
        baseline = right.get(unscheduled(one.config))
        if baseline is None or len(baseline.times_ns) != len(one.times_ns):
            continue
        if baseline is not one:
            pairs = zip(baseline.times_ns, one.times_ns, strict=True)
            saved = statistics.median(theirs - mine for theirs, mine in pairs)
            one = _with(
                marked(one), {_BASELINE: {"median_ns": baseline.median_ns, "saved_ns": saved}}
            )
        if beats_its_baseline(one):
            kept.append(one)
    return sorted(kept, key=lambda one: one.median_ns)


def beats_its_baseline(measurement: Measurement) -> bool:
    """Whether a measurement is of the compiler's own code, or shows that it beats it."""
    if not is_rescheduled(measurement.config):
        return True
    return _number(measurement, "saved_ns") > 0 < _number(measurement, "median_ns")


def gain(measurement: Measurement) -> float | None:
    """Return the share of its baseline's time that a rescheduled kernel saves; None for others."""
    baseline_ns = _number(measurement, "median_ns")
    if not is_rescheduled(measurement.config) or baseline_ns <= 0:
        return None
    return _number(measurement, "saved_ns") / baseline_ns


def _number(measurement: Measurement, name: str) -> float:
    """Return a number of the baseline's; 0 where there is none: a file may hold anything."""
    baseline = measurement.environment.get(_BASELINE)
    value = baseline.get(name) if isinstance(baseline, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
