"""Rescheduling as a parameter of CUDA stencils: its levels, where it may run, what it asks for.

A stencil takes part with one line each in its parameters (`schedule_parameter`), its constraints
(`schedule_constraints`) and its source (`schedule_of`, `macros`).  The kernel's text is the same at
every level: the CUDA backend changes the compiled code (`tilewright.sass.schedule`).

A config without the parameter is the compiler's own code, as it was before there was one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision
from tilewright.space import Config, Constraint, Parameter, Value

__all__ = [
    "ANY_SCHEDULE",
    "LEVELS",
    "SCHEDULE",
    "SCHEDULE_SECONDS",
    "Schedule",
    "macros",
    "permission",
    "schedule_constraints",
    "schedule_of",
    "schedule_parameter",
    "unscheduled",
    "with_unproved",
]

SCHEDULE = "schedule"  # the parameter's name

# The architecture whose latencies and barriers `tilewright.sass.hazards` models.
_MODELLED = 90

# In `DeviceSpec.schedules`: every level, proved or not.
ANY_SCHEDULE = "*"

# After so long the scheduler gives a kernel up.  The best kernels took up to 90 s on one of two
# cores, and 180 s where others worked beside it.
SCHEDULE_SECONDS = 300.0


@dataclass(frozen=True)
class Schedule:
    """How the main loop of a compiled kernel is rescheduled.

    Parameters
    ----------
    name : str
        Of the level, for people and proofs.
    steps : tuple of str
        Steps of `tilewright.sass.schedule`.
    seed : int
        Of its search; the same one gives the same code.
    """

    name: str
    steps: tuple[str, ...]
    seed: int = 0


_ORDER = ("reuse", "operands", "order")

# By value of the parameter.  Reuse flags alone and exchanged factors alone change next to nothing
# (docs/scheduling.md has the table), so they are no levels of their own.
LEVELS: tuple[Schedule | None, ...] = (
    None,
    Schedule("order", ("reuse", "order")),
    Schedule("all", _ORDER),
    Schedule("banks", (*_ORDER, "banks")),
    Schedule("placed", (*_ORDER, "banks", "loads", "stalls")),
    Schedule("walked", ("walk", *_ORDER)),
    Schedule("ahead", ("ahead", *_ORDER)),
)


def schedule_parameter() -> Parameter:
    """Return the parameter that chooses a level."""
    named = ", ".join(f"{level}: {one.name}" for level, one in enumerate(LEVELS) if one)
    return Parameter(
        SCHEDULE,
        tuple(range(len(LEVELS))),
        f"order of the main loop's multiply-adds in machine code: 0: the compiler's, {named}",
        "up to minutes of search for each kernel; only where an architecture is proved",
        unnamed=0,
    )


def schedule_constraints(
    stencil: str, precision: Precision, device: DeviceSpec
) -> tuple[Constraint, ...]:
    """Return what limits the parameter to devices that are modelled, and proved.

    Parameters
    ----------
    stencil : str
        The stencil's name.
    precision : Precision
        Of the variant.
    device : DeviceSpec
        Its `schedules` say what is proved.
    """
    modelled = device.compute_capability == _MODELLED
    allowed = [
        level
        for level, one in enumerate(LEVELS)
        if one is None or _is_allowed(device, permission(stencil, precision, one))
    ]
    return (
        Constraint(
            "architectures that are modelled",
            lambda schedule: (schedule == 0) | modelled,
            "the scheduler knows latencies and barriers of compute capability 9.0 only",
            "hardware",
        ),
        Constraint(
            "schedules that are proved",
            lambda schedule: np.isin(schedule, allowed),
            "rescheduled code runs only where a run on a device has shown it right, with this"
            " toolkit and this scheduler (docs/scheduling.md)",
            "proof",
        ),
    )


def permission(stencil: str, precision: Precision | str, schedule: Schedule) -> str:
    """Return what `DeviceSpec.schedules` holds where a level is proved for a stencil."""
    letter = precision if isinstance(precision, str) else precision.letter
    return f"{stencil}/{letter}/{schedule.name}"


def _is_allowed(device: DeviceSpec, wanted: str) -> bool:
    return wanted in device.schedules or ANY_SCHEDULE in device.schedules


def with_unproved(device: DeviceSpec) -> DeviceSpec:
    """Return a device on which every level may be tried, proved or not."""
    return replace(device, schedules=(ANY_SCHEDULE,))


def schedule_of(config: Mapping[str, Value]) -> Schedule | None:
    """Return what a config asks of the scheduler; None for the compiler's own code.

    Raises
    ------
    ValueError
        If there is no such level.
    """
    level = config.get(SCHEDULE, 0)
    if not isinstance(level, int) or not 0 <= level < len(LEVELS):
        raise ValueError(f"schedule={level!r} is no level; use one of 0 to {len(LEVELS) - 1}")
    return LEVELS[level]


def unscheduled(config: Config) -> Config:
    """Return a config's twin: the same kernel as the compiler left it."""
    return config.without(SCHEDULE)


def macros(config: Mapping[str, Value]) -> dict[str, Value]:
    """Return a config's values as macros of its text, which never sees the schedule."""
    return {name.upper(): config[name] for name in config if name != SCHEDULE}
