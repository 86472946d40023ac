"""SGEMM on multiply-add units: rungs, what `tilewright.gemm` runs, and libraries on one problem."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.backend import BackendError, Kernel, LiveDevice
from tilewright.bench.bounded import bound_of
from tilewright.bench.ladder.machine_code import machine_code
from tilewright.bench.ladder.oracle import Oracle
from tilewright.bench.ladder.race import (
    Contender,
    Ladder,
    Observer,
    Result,
    first_line,
    race,
    with_errors,
)
from tilewright.bench.ladder.record import climb_record
from tilewright.bench.ladder.rungs import RUNGS
from tilewright.bench.peers import Peer
from tilewright.bench.peers import peer as find_peer
from tilewright.bench.sweep import Call, our_call, with_transfers
from tilewright.portfolio import Choice
from tilewright.problem import Problem
from tilewright.serve.kernels import ready
from tilewright.stencil import Variant
from tilewright.tuning.measure import Workload
from tilewright.tuning.verify import WrongResultError, error_bound, screen

__all__ = ["LADDER", "TUNED", "climb", "rung_contenders", "tuned_contender"]

TUNED = "v8_tuned"

# A transfer of a large C takes tenths of a second, and every rung pays for the same one.
TOTAL_ROUNDS = 3


def _problem(m: int, n: int, k: int) -> Problem:
    """Return SGEMM NN, operands exchanged."""
    return Problem(n, m, k, "s")  # type: ignore[arg-type]


def _peer(name: str, live: LiveDevice) -> Peer:
    """Return a library that has SGEMM."""
    found = find_peer(name, live)
    found.check(_problem(1, 1, 1))
    return found


def rung_contenders(live: LiveDevice) -> Iterator[Contender]:
    """Yield every rung, compiled and checked for a device; one that fails with its reason."""
    for rung in RUNGS:
        yield _checked(live, Result(rung.name, rung.title, rung.idea), Choice(rung, rung.config))


def tuned_contender(live: LiveDevice, problem: Problem) -> Contender:
    """Return what `tilewright.gemm` would run, compiled and checked; rung 8."""
    chosen, kernel = ready(live, problem)
    where = f"tuned on {chosen.tuned_on}" if chosen.tuned_on else "default constants, not tuned"
    constants = "found by search" if chosen.tuned_on else "by default; --tune searches for better"
    what = (inspect.getdoc(type(chosen.stencil)) or "").partition("\n")[0].rstrip(".")
    idea = f"What tilewright.gemm serves here. {what}; constants {constants}."
    told = Result(TUNED, f"{chosen.stencil.name} stencil, {where}", idea)
    return _checked(live, told, chosen, kernel)


def _checked(
    live: LiveDevice, told: Result, choice: Choice, kernel: Kernel | None = None
) -> Contender:
    stencil, config, variant = choice.stencil, choice.config, Variant.of(_problem(1, 1, 1))
    told = replace(told, config={"stencil": config.stencil, **config})
    try:
        source = stencil.source(config, variant, live.dialect)
        kernel = kernel or live.compile(source)
        screen(live, kernel, stencil, config, variant)
    except (ValueError, BackendError, WrongResultError) as problem:
        return Contender(replace(told, reason=first_line(problem)), choice)
    threads = stencil.resources(config, variant).threads
    code = machine_code(live, kernel, threads, source.dynamic_shared_bytes)
    return Contender(replace(told, code=code), choice, kernel)


class _Bench:
    """One problem's matrices on the device and on the host, and the right answer.

    Row-major C = A B, m x n x k, is the column-major problem n x m x k whose first operand is
    B: the workload's "a" holds our B.
    """

    def __init__(self, live: LiveDevice, problem: Problem) -> None:
        self.live, self.problem = live, problem
        self.workload = Workload(live, problem)
        rows, columns, depth = problem.n, problem.m, problem.k
        a, b = np.empty((rows, depth), "f4"), np.empty((depth, columns), "f4")
        live.download(self.workload.memory["a"], b)
        live.download(self.workload.memory["b"], a)
        self.oracle = Oracle(a, b)
        self.c = np.empty((rows, columns), "f4")
        # One for all: each would have host arrays of its own.
        self._call: Call = lambda: 0
        self._with_transfers = with_transfers(self.workload, lambda: self._call())

    def judged(self, result: Result, call: Call) -> Result:
        """Return a result with its errors and total times; what is not written counts as NaN."""
        self.live.write(self.workload.memory["c"], np.full_like(self.c, np.nan))
        call()
        self.live.download(self.workload.memory["c"], self.c)
        most = error_bound(self.problem.k, self.problem.precision.unit_roundoff, False)
        result = with_errors(result, self.oracle.errors(self.c), most)
        self._call = call
        totals = [self._with_transfers() * 1e-9 for _ in range(TOTAL_ROUNDS)]
        return replace(result, total_seconds=totals)


def climb(
    live: LiveDevice,
    problem: Problem,
    ours: Sequence[Contender],
    peers: Sequence[Peer],
    rounds: int,
    observer: Observer = lambda name: None,
) -> list[Result]:
    """Measure contenders and peers on one problem: errors, interleaved kernel times, total times.

    Parameters
    ----------
    live : LiveDevice
        Where.
    problem : Problem
        SGEMM NN, column-major.
    ours : sequence of Contender
        From `rung_contenders` and `tuned_contender`.
    peers : sequence of Peer
        Libraries to compare with; those on the host compute with their own matrices, so that
        they have neither errors nor transfers here.
    rounds : int
        Turns of all.
    observer : callable
        Called with each contender's and peer's name before it is judged.
    """
    bench = _Bench(live, problem)
    load, apart = bench.workload, {one.name for one in peers if one.on_host}

    def judged(result: Result, call: Call) -> Result:
        return result if result.name in apart else bench.judged(result, call)

    try:
        return race(
            ours, peers, lambda one: our_call(load, one.rung, one.kernel),
            lambda one: one.prepare(load), judged, rounds, observer,
            shared=live.spec.kind == "cpu",
        )  # fmt: skip
    finally:
        load.close()


def _record(
    live: LiveDevice,
    problem: Problem,
    rungs: Sequence[Contender],
    peers: Sequence[Peer],
    rounds: int,
    observer: Observer,
) -> dict[str, Any]:
    ours = [*rungs, tuned_contender(live, problem)]
    results = climb(live, problem, ours, peers, rounds, observer)
    return climb_record(problem, bound_of(live, problem), results, [one.name for one in peers])


LADDER = Ladder(
    gpu_sizes="1024,8192x8192x1024,12288x12288x1024",  # the RTX 4070 report's
    cpu_sizes="128,256",  # what PoCL does in seconds
    cpu_peer="numpy",
    count=len(RUNGS),  # and the tuned one, which is another for each problem
    peer=_peer,
    problem=_problem,
    contenders=rung_contenders,
    climb=_record,
)
