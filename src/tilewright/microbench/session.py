"""Several experiments on one device, one after the other, within a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.backend import LiveDevice
from tilewright.microbench import experiments
from tilewright.microbench.experiment import Experiment, Row
from tilewright.microbench.power import sample_power

__all__ = ["Result", "fitting", "run_experiments"]

# Shares of the time there is, about the seconds that each may want on an H100; the others'
# share is their own.  What one leaves goes to those after it.
_SHARES = {"peak": 3.0, "bandwidth": 20.0, "link": 15.0, "power": 12.0, "mixes": 40.0}
_OTHERS = 20.0
# Copies are timed by the host: a reading now and then does not disturb them.
_BETWEEN_READINGS = 0.1


@dataclass
class Result:
    """What an experiment found.

    Parameters
    ----------
    name, title : str
        The experiment's.
    rows : list of Row
        Its points.
    seconds : float
        How long it ran.
    clock_hz, power_w : float or None
        Medians of the device's sensors meanwhile.
    sensors : str
        Why they said nothing; empty if they did.
    error : str
        Why it ended early; empty if it did not.
    """

    name: str
    title: str
    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0
    clock_hz: float | None = None
    power_w: float | None = None
    sensors: str = ""
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        told = vars(self) | {"seconds": round(self.seconds, 3)}
        return {key: value for key, value in told.items() if key != "name"}


def fitting(device: LiveDevice, names: Sequence[str] = ()) -> list[Experiment]:
    """Return experiments by their names, or all that run on a device's backend.

    Raises
    ------
    ValueError
        If a name is unknown, or its experiment does not run on that backend.
    """
    known = experiments()
    for name in names:
        if name not in known:
            listed = ", ".join(sorted(known))
            raise ValueError(f"experiment={name!r} is unknown; use one of {listed}")
        if device.backend not in known[name].backends:
            backends = " or ".join(known[name].backends)
            raise ValueError(
                f"experiment={name!r} runs on {backends}, not on {device.id}; name another one"
            )
    chosen = [known[name] for name in dict.fromkeys(names)] or list(known.values())
    return sorted(
        (one for one in chosen if device.backend in one.backends), key=lambda e: _place(e.name)
    )


def _place(name: str) -> tuple[int, str]:
    """Return an experiment's place: quick ones, on which a device's file depends, come first."""
    order = tuple(_SHARES)
    return (order.index(name) if name in order else len(order)), name


def run_experiments(
    device: LiveDevice,
    chosen: Sequence[Experiment],
    seconds: float,
    done: Callable[[Result], None] = lambda _: None,
    started: Callable[[Result], None] = lambda _: None,
    emitted: Callable[[], None] = lambda: None,
) -> list[Result]:
    """Run experiments one by one; none of them can end the run.

    Parameters
    ----------
    device : LiveDevice
        Where.
    chosen : sequence of Experiment
        See `fitting`.
    seconds : float
        For all of them.
    done, started : callable
        Called after and before each experiment.
    emitted : callable
        Called after each row.

    Returns
    -------
    list of Result
        One each, in order.
    """
    end = time.perf_counter() + seconds
    found = []
    for position, experiment in enumerate(chosen):
        shares = [_SHARES.get(one.name, _OTHERS) for one in chosen[position:]]
        left = max(0.0, end - time.perf_counter())
        result = Result(experiment.name, experiment.title)
        started(result)
        _run_one(device, experiment, left * shares[0] / sum(shares), result, emitted)
        found.append(result)
        done(result)
    return found


def _run_one(
    device: LiveDevice,
    experiment: Experiment,
    seconds: float,
    result: Result,
    emitted: Callable[[], None],
) -> None:
    def emit(row: Row) -> None:
        result.rows.append(row)
        emitted()

    began = time.perf_counter()
    with sample_power(device, _BETWEEN_READINGS) as samples:
        try:
            experiment.run(device, emit, seconds)
        except Exception as problem:  # one experiment's fault must not cost the others' results
            lines = str(problem).splitlines() or [""]
            result.error = lines[0] or type(problem).__name__
    result.seconds = time.perf_counter() - began
    result.clock_hz, result.power_w = samples.clock_hz, samples.power_w
    result.sensors = samples.reason
