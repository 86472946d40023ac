"""What ladders do alike: contenders and libraries interleaved, each judged first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import BackendError, LiveDevice
from tilewright.bench.peers import UnavailableError
from tilewright.bench.peers.cublas import CuBLAS
from tilewright.bench.sweep import Call, interleaved_calls
from tilewright.problem import Problem
from tilewright.tuning.verify import WrongResultError

__all__ = ["Contender", "Ladder", "Matrices", "Observer", "Result", "cublas_alone", "first_line",
           "race", "refuse_others", "with_errors"]  # fmt: skip

Observer = Callable[[str], None]


@dataclass(frozen=True)
class Result:
    """One contender or library on one problem; times are in seconds, of all rounds.

    Parameters
    ----------
    name, title, idea : str
        Who; what is new, in a few words; why that should help, in one sentence.
    seconds : list of float
        Of the kernel alone, interleaved with all others.
    total_seconds : list of float
        Of copying A and B to the device, the kernel, and copying C back, on the host's clock.
    max_error, eta : float or None
        max |C' - AB| and that over (|A||B|), element by element, on the same random data.
    reason : str
        Why there are no times.
    config : dict
        Stencil and constants, for ours.
    code : Mapping or None
        What `machine_code` says of ours.
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
    code: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Contender:
    """A kernel of ours, compiled and checked on small problems for one device.

    Parameters
    ----------
    told : Result
        What every result of it begins with; with a reason there is no kernel.
    rung : object
        What launches it.
    kernel : Kernel
        Of that device.
    """

    told: Result
    rung: Any
    kernel: Any = None


@dataclass(frozen=True)
class Ladder:
    """One ladder.

    Parameters
    ----------
    gpu_sizes, cpu_sizes : str
        Row-major sizes that it is climbed on by default.
    cpu_peer : str
        Beside whom where cuBLAS is not; empty for nobody.
    count : int
        Rungs that are compiled once for all sizes.
    peer : callable
        From name and device to a library.
    problem : callable
        From row-major m, n and k to the column-major problem.
    contenders : callable
        From a device to its `count` rungs.
    climb : callable
        From device, problem, rungs, libraries, rounds and observer to one problem's record.
    """

    gpu_sizes: str
    cpu_sizes: str
    cpu_peer: str
    count: int
    peer: Callable[[str, LiveDevice], Any]
    problem: Callable[[int, int, int], Problem]
    contenders: Callable[[LiveDevice], Iterable[Contender]]
    climb: Callable[
        [LiveDevice, Problem, Sequence[Contender], Sequence[Any], int, Observer], dict[str, Any]
    ]


class Matrices:
    """One problem's matrices on a device, the library's and the rungs'.

    Attributes
    ----------
    memory : list
        Of the operands and of C.
    c : ndarray
        C on the host.
    """

    live: LiveDevice
    memory: list[Any]
    c: NDArray[Any]

    def result(self, call: Call) -> NDArray[Any]:
        """Return C as a call leaves it; what it does not write is NaN."""
        self.live.write(self.memory[2], np.full_like(self.c, np.nan))
        call()
        self.live.download(self.memory[2], self.c)
        return self.c

    def close(self) -> None:
        """Give the memory back."""
        for memory in self.memory:
            self.live.free(memory)


def cublas_alone(name: str, live: LiveDevice) -> CuBLAS:
    """Return cuBLAS, which computes with the rungs' memory: no other library does."""
    if name != "cublas":
        raise ValueError(f"peer={name!r} is not of this ladder; use cublas")
    return CuBLAS(live)


def first_line(problem: BaseException) -> str:
    """Return the first line of what went wrong."""
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0]


def refuse_others(
    name: str, sizes: tuple[int, int, int], found: NDArray[Any], expected: NDArray[Any]
) -> None:
    """Compare a rung's product with the right one; NaN stands where nothing is to be written.

    Raises
    ------
    WrongResultError
        Naming the rung, the problem and the first wrong element.
    """
    wrong = np.argwhere((found != expected) & ~(np.isnan(found) & np.isnan(expected)))
    if len(wrong):
        i, j = wrong[0]
        problem = "x".join(map(str, sizes))
        raise WrongResultError(
            f"{name} {problem}: C[{i},{j}] is {found[i, j]:g}, not {expected[i, j]:g}"
        )


def with_errors(result: Result, errors: tuple[float, float], most: float) -> Result:
    """Return a result with its largest error and eta.

    Raises
    ------
    WrongResultError
        If eta is above `most`.
    """
    largest, eta = errors
    if not eta <= most:
        raise WrongResultError(f"eta is {eta:.2e}, at most {most:.2e} is right")
    return replace(result, max_error=largest, eta=eta)


def race(
    ours: Sequence[Contender],
    peers: Sequence[Any],
    our_call: Callable[[Contender], Call],
    library_call: Callable[[Any], Call],
    judged: Callable[[Result, Call], Result],
    rounds: int,
    observer: Observer,
    *,
    shared: bool,
) -> list[Result]:
    """Return everybody's result, libraries last; who fails has a reason and no times.

    Parameters
    ----------
    ours : sequence of Contender
        Those with a reason do not take part.
    peers : sequence of Peer
        Libraries.
    our_call, library_call : callable
        Return the call of a contender, and of a library.
    judged : callable
        Returns a result with errors, by running a call.
    rounds : int
        Turns of all.
    observer : callable
        Called with each name before it is judged.
    shared : bool
        See `interleaved_calls`.
    """
    calls: dict[str, Call] = {}
    results: list[Result] = []
    prepared = [(one.told, partial(our_call, one)) for one in ours]
    prepared += [(Result(one.name, one.version, ""), partial(library_call, one)) for one in peers]
    for result, prepare in prepared:
        observer(result.name)
        if not result.reason:
            try:
                call = prepare()
                result = judged(result, call)
                calls[result.name] = call
            except (BackendError, UnavailableError, WrongResultError) as problem:
                result = replace(result, reason=first_line(problem))
        results.append(result)
    for call in calls.values():
        call()
        call()
    times = interleaved_calls(calls, rounds, shared=shared)
    return [replace(one, seconds=times.get(one.name, [])) for one in results]
