"""Sweeps over problems: ours and the peers' interleaved, in one process, on one device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from tilewright.backend import Kernel, LiveDevice
from tilewright.bench.cold import ColdCache
from tilewright.bench.errors import sampled_errors
from tilewright.bench.peers import Peer, UnavailableError
from tilewright.portfolio import Choice
from tilewright.problem import Problem
from tilewright.serve.calls import Wanted, launch
from tilewright.serve.kernels import ready
from tilewright.serve.routes.realigned import Way, way_of
from tilewright.timeline import span
from tilewright.tuning.measure import Workload
from tilewright.tuning.noise import OutsideLoad, noise

__all__ = [
    "OURS",
    "SPIN_SECONDS",
    "Call",
    "Method",
    "Row",
    "interleaved_calls",
    "our_call",
    "sweep",
    "way_call",
    "with_transfers",
]

# Turns of A B A B: an odd number, so that the median is a time that was measured.
ROUNDS = 15

# Our name among the peers.
OURS = "tilewright"

# OpenBLAS's threads spin before they sleep, on the cores that a CPU device needs: 50 ms
# after a product they still do on a 2.7 GHz Xeon.
SPIN_SECONDS = 0.25

Call = Callable[[], int]

_TRANSFERS = " with transfers"  # behind a name


@dataclass(frozen=True)
class Method:
    """How times are taken.

    Parameters
    ----------
    rounds : int
        Turns of everybody.
    cache : {"warm", "cold"}
        Whether caches hold what the last product left, or are filled with something else
        before each that counts.
    transfers : bool
        Whether products are also timed with A and B copied there and C copied back.
    errors : bool
        Whether everybody's errors are compared besides, in some rows and columns of C.

    Raises
    ------
    ValueError
        If `cache` is neither.
    """

    rounds: int = ROUNDS
    cache: Literal["warm", "cold"] = "warm"
    transfers: bool = False
    errors: bool = False

    def __post_init__(self) -> None:
        if self.cache not in ("warm", "cold"):
            raise ValueError(f"cache={self.cache!r} is unknown; use warm or cold")


@dataclass(frozen=True)
class Row:
    """One problem on one device.

    Parameters
    ----------
    problem : Problem
        What was computed.
    seconds : dict
        For ``"tilewright"`` and each peer, the times of all rounds.
    choice : Choice
        Our stencil and config, and the problem it won; none for a default.
    missing : dict
        Why a peer has no times.
    total_seconds : dict
        As `seconds`, with transfers; empty where they were not asked for.
    copies : tuple of str
        Operands that are copied before (`tilewright.serve.routes.realigned`), within our times.
    errors : dict
        See `bench.errors`, of everybody on the device's own matrices; empty if not asked for.
    noise : tuple of str
        What makes the times doubtful, a line each.
    """

    problem: Problem
    seconds: dict[str, list[float]]
    choice: Choice
    missing: dict[str, str] = field(default_factory=dict)
    total_seconds: dict[str, list[float]] = field(default_factory=dict)
    copies: tuple[str, ...] = ()
    errors: dict[str, dict[str, float]] = field(default_factory=dict)
    noise: tuple[str, ...] = ()

    @property
    def config(self) -> dict[str, Any]:
        """Stencil and values of our config."""
        return {"stencil": self.choice.config.stencil, **self.choice.config}

    @property
    def tuned_on(self) -> str:
        """The problem our config won; empty for a default."""
        return self.choice.tuned_on

    def rate(self, name: str, *, transfers: bool = False) -> float | None:
        """Return FLOP/s at the median time, or None if there is none."""
        taken = (self.total_seconds if transfers else self.seconds).get(name)
        return self.problem.flops / float(np.median(taken)) if taken else None


def sweep(
    live: LiveDevice,
    problems: Sequence[Problem],
    peers: Sequence[Peer],
    method: Method = Method(),  # frozen
) -> Iterator[Row]:
    """Measure problem after problem on random data.

    Each problem's matrices are made once and used by everybody; ours and the peers' calls
    are interleaved, so that clocks and neighbours disturb all alike.  On a CPU device each
    call that counts follows one that does not: it wakes the library's threads.
    """
    with _cold(live, peers, method) as flush:
        for problem in problems:
            with span(str(problem)):
                workload = Workload(live, problem)
                try:
                    yield _measure(live, problem, workload, peers, method, flush)
                finally:
                    workload.close()


@contextmanager
def _cold(
    live: LiveDevice, peers: Sequence[Peer], method: Method
) -> Iterator[Callable[[], object]]:
    """Yield what is called right before each product that counts."""
    if method.cache == "warm":
        yield lambda: None
        return
    cache = ColdCache(live, host=any(one.on_host for one in peers))
    try:
        yield cache.flush
    finally:
        cache.close()


def our_call(workload: Workload, choice: Choice, kernel: Kernel) -> Call:
    """Return a function that computes the workload's product once with our kernel.

    It waits and returns nanoseconds, by the device's clock on a GPU; beside peers on the
    host's clock, ours is on it too.
    """
    live, config, family = workload.device, choice.config, choice.stencil
    shared = live.spec.kind == "cpu"

    def run() -> int:
        started = time.perf_counter_ns()
        taken = workload.run(kernel, family, config)
        return time.perf_counter_ns() - started if shared else taken

    return run


def way_call(workload: Workload, way: Way) -> Call:
    """Return `our_call` of what serves a way, copies of operands and all."""
    live = workload.device
    if not way.copies:
        return our_call(workload, *ready(live, way.problem, way.aligned))
    wanted = Wanted(workload.problem, workload.call, exchanged=False)
    return lambda: launch(live, wanted, timed=True).nanoseconds()


def with_transfers(workload: Workload, call: Call) -> Call:
    """Return a call that copies A and B from the host first and C back at the end.

    Plain blocking copies from and to NumPy arrays, by the host's clock: what a program
    pays that keeps its matrices on the host.  C is not copied there, as beta is 0.
    """
    live, dtype = workload.device, workload.problem.precision.dtype
    host = {name: np.empty(count, dtype) for name, count in workload.elements.items()}
    for name, array in host.items():
        live.download(workload.memory[name], array)

    def run() -> int:
        started = time.perf_counter_ns()
        for name in "ab":
            live.write(workload.memory[name], host[name])
        call()
        live.download(workload.memory["c"], host["c"])
        return time.perf_counter_ns() - started

    return run


def _measure(
    live: LiveDevice,
    problem: Problem,
    workload: Workload,
    peers: Sequence[Peer],
    method: Method,
    flush: Callable[[], object],
) -> Row:
    way = way_of(live, problem, workload.call)
    choice, _ = ready(live, way.problem, way.aligned)
    calls: dict[str, Call] = {OURS: way_call(workload, way)}
    missing: dict[str, str] = {}
    for one in peers:
        try:
            one.check(problem)
            calls[one.name] = one.prepare(workload)
        except UnavailableError as reason:
            missing[one.name] = str(reason)
    on_host = {one.name for one in peers if one.on_host}  # in matrices of their own
    totals: dict[str, Call] = {}
    if method.transfers:
        totals = {
            f"{name}{_TRANSFERS}": call if name in on_host else with_transfers(workload, call)
            for name, call in calls.items()
        }
    with span("warm up"):
        for call in (*calls.values(), *totals.values()):
            call()
            call()
    copies = tuple(way.copies)
    compared = {name: call for name, call in calls.items() if name not in on_host}
    errors = sampled_errors(workload, compared) if method.errors else {}
    shared = live.spec.kind == "cpu"
    others = OutsideLoad() if shared else None  # the host's cores have no part in a GPU's times
    times = interleaved_calls(calls | totals, method.rounds, flush=flush, shared=shared)
    seconds = {name: times[name] for name in calls}
    total_seconds = {name.removesuffix(_TRANSFERS): times[name] for name in totals}
    doubts = tuple(noise(seconds, others.share() if others is not None else None))
    return Row(problem, seconds, choice, missing, total_seconds, copies, errors, doubts)


def interleaved_calls(
    calls: Mapping[str, Call],
    rounds: int,
    *,
    flush: Callable[[], object] = lambda: None,
    shared: bool = False,
) -> dict[str, list[float]]:
    """Return everybody's times, A B A B, in seconds.

    Parameters
    ----------
    calls : mapping of str to callable
        By name; each computes once, waits and returns nanoseconds.
    rounds : int
        Turns of all.
    flush : callable
        Called right before each call that counts.
    shared : bool
        Whether the device computes on the host's cores: each call that counts then follows
        one that wakes its library's threads, and the next waits until they sleep.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            if shared:
                with span(f"{name}, not counted"):
                    call()
            flush()
            with span(name):
                times[name].append(call() * 1e-9)
            if shared and len(calls) > 1:
                with span("let threads sleep"):
                    time.sleep(SPIN_SECONDS)
    return times
