"""SGEMM on multiply-add units: rungs, what `tilewright.gemm` runs, and libraries on one problem."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tilewright.backend import BackendError, Kernel, LiveDevice
from tilewright.bench.errors import Sample
from tilewright.bench.ladder.machine_code import machine_code
from tilewright.bench.ladder.record import Result
from tilewright.bench.ladder.rungs import RUNGS
from tilewright.bench.peers import Peer, UnavailableError
from tilewright.bench.peers import peer as find_peer
from tilewright.bench.sweep import Call, interleaved_calls, our_call, with_transfers
from tilewright.portfolio import Choice
from tilewright.problem import Problem
from tilewright.serve.kernels import ready
from tilewright.stencil import Variant
from tilewright.tuning.measure import Workload
from tilewright.tuning.verify import WrongResultError, error_bound, screen

__all__ = ["TUNED", "climb", "ladder_peer", "ladder_problem", "rung_contenders", "tuned_contender"]

TUNED = "v8_tuned"

# A transfer of a large C takes tenths of a second, and every rung pays for the same one.
TOTAL_ROUNDS = 3

Observer = Callable[[str], None]


@dataclass(frozen=True)
class Contender:
    """A kernel of ours, compiled and checked on small problems for one device.

    Parameters
    ----------
    told : Result
        What every result of it begins with; with a reason there is no kernel.
    rung : Choice
        What launches it.
    kernel : Kernel
        Of that device.
    """

    told: Result
    rung: Choice
    kernel: Any = None


def ladder_problem(m: int, n: int, k: int) -> Problem:
    """Return the column-major problem of a row-major SGEMM NN: operands exchanged."""
    return Problem(n, m, k, "s")  # type: ignore[arg-type]


def ladder_peer(name: str, live: LiveDevice) -> Peer:
    """Return a library that has SGEMM."""
    found = find_peer(name, live)
    found.check(ladder_problem(1, 1, 1))
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
    stencil, config, variant = choice.stencil, choice.config, Variant.of(ladder_problem(1, 1, 1))
    told = replace(told, config={"stencil": config.stencil, **config})
    try:
        source = stencil.source(config, variant, live.dialect)
        kernel = kernel or live.compile(source)
        screen(live, kernel, stencil, config, variant)
    except (ValueError, BackendError, WrongResultError) as problem:
        return Contender(replace(told, reason=_first_line(problem)), choice)
    threads = stencil.resources(config, variant).threads
    code = machine_code(live, kernel, threads, source.dynamic_shared_bytes)
    return Contender(replace(told, code=code), choice, kernel)


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
        From `rung_contenders` and `tuned_contender`; those with a reason are passed over.
    peers : sequence of Peer
        Libraries to compare with; those on the host compute with their own matrices, so that
        they have neither errors nor transfers here.
    rounds : int
        Turns of all.
    observer : callable
        Called with each contender's and peer's name before it is judged.

    Returns
    -------
    list of Result
        In order; who fails has a reason and no times.
    """
    load = Workload(live, problem)
    try:
        sample = Sample(load)
        entries: list[tuple[Result, Callable[[], Call]]] = [
            (one.told, partial(our_call, load, one.rung, one.kernel)) for one in ours
        ]
        entries += [
            (Result(one.name, one.version, ""), partial(one.prepare, load)) for one in peers
        ]
        apart = {one.name for one in peers if one.on_host}
        calls: dict[str, Call] = {}
        results: list[Result] = []
        for result, prepare in entries:
            observer(result.name)
            if not result.reason:
                try:
                    call = prepare()
                    if result.name not in apart:
                        result = _judged(load, sample, result, call)
                    calls[result.name] = call
                except (BackendError, UnavailableError, WrongResultError) as error:
                    result = replace(result, reason=_first_line(error))
            results.append(result)
        for call in calls.values():
            call()
            call()
        times = interleaved_calls(calls, rounds, shared=live.spec.kind == "cpu")
    finally:
        load.close()
    return [replace(one, seconds=times.get(one.name, [])) for one in results]


def _judged(load: Workload, sample: Sample, result: Result, call: Call) -> Result:
    """Return a result with its error and total times.

    Raises
    ------
    WrongResultError
        If the error is above what rounding explains; what is not written counts as NaN.
    """
    eta, of = sample.errors_of(call)["eta"], load.problem
    most = error_bound(of.k, of.precision.unit_roundoff, False)
    if not eta <= most:
        raise WrongResultError(f"eta is {eta:.2e}, at most {most:.2e} is right")
    carried = with_transfers(load, call)
    return replace(result, eta=eta, total_seconds=[carried() * 1e-9 for _ in range(TOTAL_ROUNDS)])


def _first_line(problem: BaseException) -> str:
    """Return the first line of what went wrong."""
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0]
