"""Rescheduling as a parameter of what is tuned: its levels, and where each may run.

`schedule` is not a parameter of a stencil: the kernel's source is the same at every level, and
only the compiled code differs (`tilewright.reschedule.schedule`).  `schedule_space` adds it to the
space of a stencil whose kernels can be rescheduled; `unscheduled` takes it from a config, so that
the stencil, which does not know it, sees its own parameters only.  Configs without it are the
compiler's own code.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision
from tilewright.space import Config, Constraint, Parameter, Space, Value
from tilewright.stencil import Mode, Stencil, Variant

__all__ = [
    "LEVELS",
    "SCHEDULE",
    "SCHEDULE_SECONDS",
    "Level",
    "baseline_and_level",
    "is_rescheduled",
    "level_of",
    "may_reschedule",
    "permission",
    "schedule_space",
    "unscheduled",
]

SCHEDULE = "schedule"  # the parameter's name

# Stencils whose main loops the scheduler improves: FFMA from registers, with asynchronous copies.
_STENCILS = frozenset({"simt_async"})

# The architecture whose latencies and barriers `tilewright.reschedule.latency` models.
_MODELLED = 90

# After so long the scheduler gives a kernel up.  The best kernels took up to 90 s on one of two
# cores, and 180 s where others worked beside it.
SCHEDULE_SECONDS = 300.0


@dataclass(frozen=True)
class Level:
    """How the main loop of a compiled kernel is rescheduled.

    Parameters
    ----------
    name : str
        For people, proofs and kept code.
    ahead : bool
        Whether shared loads may move ahead of their readers.
    """

    name: str
    ahead: bool


# By value of the parameter.  1 to 4 were levels that no kernel was served with; stores may hold
# measurements of them.
LEVELS: Mapping[int, Level] = {5: Level("walked", ahead=False), 6: Level("ahead", ahead=True)}


def schedule_space(
    stencil: Stencil, variant: Variant, device: DeviceSpec, proved: Collection[str] = ()
) -> Space:
    """Return a stencil's space, with `schedule` if its kernels can be rescheduled.

    Parameters
    ----------
    stencil : Stencil
        Whose kernels.
    variant : Variant
        What they compute.
    device : DeviceSpec
        Where they run.
    proved : collection of str
        What may be rescheduled there: `permission` of each level
        (`tilewright.reschedule.proofs.proved`).
    """
    space = stencil.space(variant, device)
    if stencil.name not in _STENCILS:
        return space
    rules = _constraints(stencil.name, variant.precision, device, proved)
    return Space(stencil.name, (*space.parameters, _parameter()), (*space.constraints, *rules))


def _parameter() -> Parameter:
    named = ", ".join(f"{value}: {level.name}" for value, level in LEVELS.items())
    return Parameter(
        SCHEDULE,
        (0, *LEVELS),
        f"order of the main loop's multiply-adds in machine code: 0: the compiler's, {named}",
        "up to minutes of search for each kernel; only where an architecture is proved",
        unnamed=0,
    )


def _constraints(
    stencil: str, precision: Precision, device: DeviceSpec, proved: Collection[str]
) -> tuple[Constraint, ...]:
    """Return what limits the parameter: to kernels and devices that are modelled, and proofs."""
    modelled = device.compute_capability == _MODELLED
    allowed = [0]
    allowed += [n for n, one in LEVELS.items() if permission(stencil, precision, one) in proved]
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


def permission(stencil: str, precision: Precision | str, level: Level) -> str:
    """Return what stands for a level that is proved for a stencil and a precision."""
    letter = precision if isinstance(precision, str) else precision.letter
    return f"{stencil}/{letter}/{level.name}"


def level_of(config: Mapping[str, Value]) -> Level | None:
    """Return a config's level; None for the compiler's own code.

    Raises
    ------
    ValueError
        If there is no such level.
    """
    value = config.get(SCHEDULE, 0)
    if value == 0:
        return None
    if not isinstance(value, int) or value not in LEVELS:
        known = " or ".join(map(str, LEVELS))
        raise ValueError(f"schedule={value!r} is no level; use {known}, or 0 for the compiler's")
    return LEVELS[value]


def baseline_and_level(config: Config) -> tuple[Config, Level | None]:
    """Return what the stencil compiles for a config, and how that is rescheduled.

    Raises
    ------
    ValueError
        If there is no such level.
    """
    if config.stencil not in _STENCILS:
        return config, None
    return unscheduled(config), level_of(config)


def unscheduled(config: Config) -> Config:
    """Return a config's baseline: the same kernel as the compiler left it."""
    return config.without(SCHEDULE)


def may_reschedule(mode: Mode) -> bool:
    """Whether kernels compiled in a launch mode may be rescheduled: not those with staged stores.

    ptxas lets a read of shared memory overwrite what a store to C has still to read, where both
    queue for the same unit; `tilewright.reschedule.hazards` refuses such kernels.
    """
    return not mode.staged


def is_rescheduled(config: Config) -> bool:
    """Whether a config is not the compiler's own code."""
    return unscheduled(config) != config
