"""A rescheduled kernel is kept only where it beats its twin, the compiler's own code.

Both run interleaved, in one process and one race; the rescheduled one's measurement then carries
the twin's times of that race in its environment, and the scheduler's version.  Without them it is
not served: gains are a few percent, and times of two runs differ by as much.
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
    "beats_its_twin",
    "gain",
    "grouped",
    "is_current",
    "judged",
    "marked",
    "with_twins",
]

# Keys of a rescheduled kernel's environment.
_TWIN, _VERSION = "unscheduled", "scheduler"


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


def with_twins(ranked: Sequence[Measurement]) -> list[Measurement]:
    """Return finalists, rescheduled ones right before their twins, each config once."""
    found = []
    for group in grouped(ranked):
        found += group
        twin = unscheduled(group[0].config)
        if all(one.config != twin for one in group):
            found.append(
                replace(group[0], config=twin, times_ns=(), error=None, compile_seconds=None)
            )
    return found


def grouped(candidates: Sequence[Measurement]) -> list[list[Measurement]]:
    """Return candidates one by one, rescheduled ones together with their twins."""
    by_twin: dict[Config, list[Measurement]] = {}
    for one in candidates:
        by_twin.setdefault(unscheduled(one.config), []).append(one)
    return list(by_twin.values())


def judged(raced: Iterable[Measurement]) -> list[Measurement]:
    """Return what was right in a race, fastest first, rescheduled ones where they beat their twins.

    These carry their twins' time from here on.  Rounds are compared one by one, since clocks
    drift in a race.
    """
    right = {one.config: one for one in raced if one.status == Status.OK}
    kept = []
    for one in right.values():
        twin = right.get(unscheduled(one.config))
        if twin is None or len(twin.times_ns) != len(one.times_ns):
            continue
        if twin is not one:
            pairs = zip(twin.times_ns, one.times_ns, strict=True)
            saved = statistics.median(theirs - mine for theirs, mine in pairs)
            one = _with(marked(one), {_TWIN: {"median_ns": twin.median_ns, "saved_ns": saved}})
        if beats_its_twin(one):
            kept.append(one)
    return sorted(kept, key=lambda one: one.median_ns)


def beats_its_twin(measurement: Measurement) -> bool:
    """Whether a measurement is of the compiler's own code, or shows that it beats it."""
    if not is_rescheduled(measurement.config):
        return True
    return _number(measurement, "saved_ns") > 0 < _number(measurement, "median_ns")


def gain(measurement: Measurement) -> float | None:
    """Return the share of its twin's time that a rescheduled kernel saves; None for others."""
    twin_ns = _number(measurement, "median_ns")
    if not is_rescheduled(measurement.config) or twin_ns <= 0:
        return None
    return _number(measurement, "saved_ns") / twin_ns


def _number(measurement: Measurement, name: str) -> float:
    """Return a number of the twin's; 0 where there is none: a file may hold anything."""
    twin = measurement.environment.get(_TWIN)
    value = twin.get(name) if isinstance(twin, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
