"""From rung to rung: compile, check, measure and explain each on one problem."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tilewright.backend import BackendError, Kernel, LiveDevice
from tilewright.bench.ladder.machine_code import MachineCode, machine_code
from tilewright.bench.ladder.oracle import Oracle
from tilewright.bench.ladder.rungs import RUNGS
from tilewright.bench.peers import Peer, UnavailableError
from tilewright.bench.sweep import Call, in_turns, our_call, with_transfers
from tilewright.library.kernels import ready
from tilewright.portfolio import Choice
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant
from tilewright.tuning.measure import Workload
from tilewright.tuning.verify import WrongResultError, error_bound, screen

__all__ = [
    "TUNED",
    "Contender",
    "Result",
    "climb",
    "first_line",
    "rung_contenders",
    "tuned_contender",
]

TUNED = "v8_tuned"

# A transfer of a large C takes tenths of a second, and every rung pays for the same one.
TOTAL_ROUNDS = 3


@dataclass(frozen=True)
class Contender:
    """A kernel of ours that takes part: a rung, or what `tilewright.gemm` would run.

    Parameters
    ----------
    name, title, idea : str
        As of a `Rung`.
    stencil : Stencil
        What launches it.
    config : Config
        With which constants.
    kernel : Kernel or None
        Compiled, checked on ragged integer problems; None if that failed.
    reason : str
        Why there is no kernel.
    code : MachineCode or None
        What its machine code says, where that can be read.
    """

    name: str
    title: str
    idea: str
    stencil: Stencil
    config: Config
    kernel: Kernel | None = None
    reason: str = ""
    code: MachineCode | None = None


@dataclass(frozen=True)
class Result:
    """One contender or peer on one problem; times are in seconds, of all rounds.

    Parameters
    ----------
    name, title, idea : str
        Who.
    seconds : list of float
        Of the kernel alone, in turns with all others.
    total_seconds : list of float
        Of copying A and B to the device, the kernel, and copying C back, on the host's clock.
    max_error, eta : float or None
        max |C' - AB| and that over (|A||B|), element by element, on the same random data.
    reason : str
        Why there are no times.
    config : dict
        Stencil and constants, for ours.
    code : MachineCode or None
        As of `Contender`.
    """

    name: str
    title: str
    idea: str
    seconds: list[float] = field(default_factory=list)
    total_seconds: list[float] = field(default_factory=list)
    max_error: float | None = None
    eta: float | None = None
    reason: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    code: MachineCode | None = None


def rung_contenders(live: LiveDevice) -> Iterator[Contender]:
    """Yield every rung, compiled and checked for a device; one that fails with its reason."""
    variant = Variant.of(Problem(1, 1, 1))
    for rung in RUNGS:
        one = Contender(rung.name, rung.title, rung.idea, rung, rung.config)
        yield _checked(live, variant, one)


def tuned_contender(live: LiveDevice, problem: Problem) -> Contender:
    """Return what `tilewright.gemm` would run, compiled and checked; rung 8."""
    chosen, kernel = ready(live, problem)
    where = f"tuned on {chosen.tuned_on}" if chosen.tuned_on else "default constants, not tuned"
    constants = "found by search" if chosen.tuned_on else "by default; --tune searches for better"
    what = (inspect.getdoc(type(chosen.stencil)) or "").partition("\n")[0].rstrip(".")
    one = Contender(
        TUNED,
        f"{chosen.stencil.name} stencil, {where}",
        f"What tilewright.gemm serves here. {what}; constants {constants}.",
        chosen.stencil,
        chosen.twin,
    )
    return _checked(live, Variant.of(problem), one, kernel)


def _checked(
    live: LiveDevice, variant: Variant, one: Contender, kernel: Kernel | None = None
) -> Contender:
    try:
        source = one.stencil.source(one.config, variant, live.dialect)
        kernel = kernel or live.compile(source)
        screen(live, kernel, one.stencil, one.config, variant)
    except (ValueError, BackendError, WrongResultError) as problem:
        return replace(one, reason=first_line(problem))
    threads = one.stencil.resources(one.config, variant).threads
    return replace(
        one, kernel=kernel, code=machine_code(live, kernel, threads, source.dynamic_shared_bytes)
    )


def first_line(problem: BaseException) -> str:
    """Return the first line of what went wrong."""
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0]


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

    def errors(self, call: Call) -> tuple[float, float]:
        """Return a call's errors; what it does not write counts as NaN."""
        self.live.write(self.workload.memory["c"], np.full_like(self.c, np.nan))
        call()
        self.live.download(self.workload.memory["c"], self.c)
        return self.oracle.errors(self.c)

    def totals(self, call: Call) -> list[float]:
        """Return the seconds of a call with its transfers, several times."""
        self._call = call
        return [self._with_transfers() * 1e-9 for _ in range(TOTAL_ROUNDS)]

    def judged(self, result: Result, call: Call) -> Result:
        """Return a result with its errors and total times, or the reason against it."""
        try:
            largest, eta = self.errors(call)
            most = error_bound(self.problem.k, self.problem.precision.unit_roundoff, False)
            if not eta <= most:
                raise WrongResultError(f"eta is {eta:.2e}, at most {most:.2e} is right")
            totals = self.totals(call)
        except (BackendError, UnavailableError, WrongResultError) as problem:
            return replace(result, reason=first_line(problem))
        return replace(result, max_error=largest, eta=eta, total_seconds=totals)


def climb(
    live: LiveDevice,
    problem: Problem,
    ours: Sequence[Contender],
    peers: Sequence[Peer],
    rounds: int,
    observer: Callable[[str], None] = lambda name: None,
) -> list[Result]:
    """Measure contenders and peers on one problem: errors, kernel times in turns, total times.

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
    try:
        return _climbed(bench, ours, peers, rounds, observer)
    finally:
        bench.workload.close()


def _climbed(
    bench: _Bench,
    ours: Sequence[Contender],
    peers: Sequence[Peer],
    rounds: int,
    observer: Callable[[str], None],
) -> list[Result]:
    calls: dict[str, Call] = {}
    results: dict[str, Result] = {}
    for one in ours:
        observer(one.name)
        config = {"stencil": one.config.stencil, **one.config}
        result = Result(
            one.name, one.title, one.idea, reason=one.reason, config=config, code=one.code
        )
        if one.kernel is not None:
            calls[one.name] = our_call(bench.workload, Choice(one.stencil, one.config), one.kernel)
            result = bench.judged(result, calls[one.name])
        results[one.name] = result
    for other in peers:
        observer(other.name)
        result = Result(other.name, other.version, "")
        try:
            calls[other.name] = other.prepare(bench.workload)
        except UnavailableError as reason:
            result = replace(result, reason=first_line(reason))
        else:
            if not other.on_host:
                result = bench.judged(result, calls[other.name])
        results[other.name] = result
    right = {name: call for name, call in calls.items() if not results[name].reason}
    for call in right.values():
        call()
        call()
    shared = bench.live.spec.kind == "cpu"
    times, _ = in_turns((right, {}), rounds, lambda: None, shared)
    return [replace(one, seconds=times.get(name, [])) for name, one in results.items()]
