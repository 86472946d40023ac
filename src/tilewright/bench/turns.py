"""Turns of some seconds: everybody computes again and again, at a clock of their own.

Where a device is at its power limit, its clock follows what ran in the last tenths of a second.
Kernels that take turns product by product share one clock there, so that one that takes less
energy lends its clock to the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.microbench.power import sample_power

__all__ = ["Sensed", "Turn", "energy_j", "long_turns", "turn_of"]

# Of a turn; it does not count.  An H100's clock has settled after 0.4 s of a second.
SETTLED = 0.4


@dataclass(frozen=True)
class Turn:
    """One library's turn.

    Parameters
    ----------
    ns : tuple of int
        Times of the products that count, in nanoseconds; one at least.
    clock_hz, power_w : float or None
        Medians of what the device's sensors told meanwhile; None where they cannot be read.
    """

    ns: tuple[int, ...]
    clock_hz: float | None
    power_w: float | None


@dataclass(frozen=True)
class Sensed:
    """What a library's turns had in common: medians of clock in Hz and power in W."""

    clock_hz: float | None
    power_w: float | None


def turn_of(live: Any, call: Callable[[], int], seconds: float) -> Turn:
    """Compute for so long; products that begin within the first `SETTLED` of it do not count.

    Parameters
    ----------
    live : LiveDevice
        Whose sensors are read.
    call : callable
        Computes once and returns nanoseconds.
    seconds : float
        How long; a product that takes longer than all of it counts alone.
    """
    counted: list[int] = []
    with sample_power(live) as power:
        began = time.perf_counter()
        while (now := time.perf_counter() - began) < seconds or not counted:
            taken = call()
            if now >= SETTLED * seconds:
                counted.append(taken)
    settled = power.since(SETTLED * seconds)
    return Turn(tuple(counted), settled.clock_hz, settled.power_w)


def long_turns(
    live: Any, calls: Mapping[str, Callable[[], int]], rounds: int, seconds: float
) -> tuple[dict[str, list[float]], dict[str, Sensed]]:
    """Return everybody's times in seconds, A B A B, and what the sensors told of each.

    Parameters
    ----------
    live : LiveDevice
        The device.
    calls : mapping of str to callable
        By name.
    rounds : int
        Turns of everybody.
    seconds : float
        Of a turn.
    """
    turns: dict[str, list[Turn]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            turns[name].append(turn_of(live, call, seconds))
    times = {name: [ns * 1e-9 for one in of for ns in one.ns] for name, of in turns.items()}
    sensed = {
        name: Sensed(_median([t.clock_hz for t in of]), _median([t.power_w for t in of]))
        for name, of in turns.items()
    }
    return times, sensed


def energy_j(power_w: float | None, flops_per_second: float) -> float | None:
    """Return the device's energy for a multiply-add of real numbers, two operations, in joules."""
    return None if power_w is None else 2 * power_w / flops_per_second


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None
