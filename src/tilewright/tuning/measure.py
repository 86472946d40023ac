"""How long does a kernel take?  Device events, random data, medians.

Kernels are measured on a `Workload`: one problem's matrices in device memory, kept
between candidates so that none pays for another's set-up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import GemmCall, Kernel, LiveDevice, Operand
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant
from tilewright.timeline import span
from tilewright.tuning.matrices import normal

__all__ = ["Workload", "interleaved", "random_matrix", "repeat"]

# Enough for a median; screening stops here, finalists go on in rounds.
REPETITIONS = 9

# Once a candidate has run for this long in all, its median is good enough to rank it.
ENOUGH_SECONDS = 3.0

# After so many runs a candidate whose fastest took so many times the best one's median is not run
# again: fewer runs say that the less surely.  Of one run no noise seen on a shared machine doubles
# the time; the fastest of five errs by less than finalists differ.
_RUNGS = {1: 2.0, 3: 1.2, 5: 1.05}


# Of candidates that are timed interleaved, however long they take.
_LEAST_ROUNDS = 3

# Elements drawn at most; longer matrices repeat them, as drawing a gigabyte takes seconds.  An odd
# number, so that columns of a power of two never repeat each other.
_DRAWN = 2**24 - 3


def random_matrix(rng: np.random.Generator, count: int, problem: Problem) -> NDArray[Any]:
    """Return `count` random elements: zeros would let power and clocks look better."""
    return np.resize(normal(rng, (min(count, _DRAWN),), problem.precision), count)


class Workload:
    """One problem's matrices on a device.

    Parameters
    ----------
    device : LiveDevice
        Where they live.
    problem : Problem
        Sizes, transposes and leading dimensions.
    memory : Mapping, optional
        Device memory for ``"a"``, ``"b"`` and ``"c"``, large enough and filled by the caller,
        whose it stays; drawn anew by default.

    Attributes
    ----------
    memory : dict
        Handles of ``"a"``, ``"b"`` and ``"c"``.
    elements : dict
        How many elements of A's type each takes, padding included.
    call : GemmCall
        What is computed.
    busy_ns : int
        For how long kernels ran on it.
    """

    def __init__(
        self, device: LiveDevice, problem: Problem, memory: Mapping[str, Any] | None = None
    ) -> None:
        self.device, self.problem = device, problem
        self.memory: dict[str, Any] = dict(memory or {})
        self._own = memory is None
        self.busy_ns = 0
        rng = np.random.default_rng(0)
        (a, b, c), of = problem.stored, problem.precision
        self.elements = {"a": a, "b": b, "c": -(-c * of.result_bytes // of.element_bytes)}
        if self._own:
            with span("random matrices"):
                for name, count in self.elements.items():
                    self.memory[name] = device.upload(random_matrix(rng, count, problem))
        x, y, z = (
            Operand(self.memory[name], 0, ld)
            for name, ld in zip("abc", (problem.lda, problem.ldb, problem.ldc), strict=True)
        )
        # beta = 0: C's old values would grow with every repetition.
        self.call = GemmCall(of, problem.m, problem.n, problem.k, 1, x, y, 0, z)

    def run(self, kernel: Kernel, stencil: Stencil, config: Config) -> int:
        """Run a kernel once and return its time in nanoseconds."""
        launch = stencil.launch(config, self.problem.m, self.problem.n, self.problem.k)
        arguments = stencil.arguments(config, Variant.of(self.problem), self.call)
        taken = self.device.launch_timed(kernel, launch, arguments).nanoseconds()
        self.busy_ns += taken
        return taken

    def first_run(self, kernel: Kernel, stencil: Stencil, config: Config) -> int:
        """Run a kernel once where that does not count, and return its time in nanoseconds."""
        return self.run(kernel, stencil, config)

    def close(self) -> None:
        """Give the matrices' memory back, if it was drawn here."""
        for memory in self.memory.values() if self._own else ():
            self.device.free(memory)
        self.memory.clear()


def repeat(
    workload: Workload,
    kernel: Kernel,
    stencil: Stencil,
    config: Config,
    *,
    best_ns: int | None = None,
) -> tuple[int, ...]:
    """Time a candidate with a warm cache, after one run that is not counted.

    Returns
    -------
    tuple of int
        `REPETITIONS` times in nanoseconds; fewer where they add up to `ENOUGH_SECONDS`, or
        the fastest of 1, 3 or 5 is too far from `best_ns`.
    """
    warm_up = workload.first_run(kernel, stencil, config)
    if warm_up > ENOUGH_SECONDS * 1e9:
        return (warm_up,)
    times: list[int] = []
    while len(times) < REPETITIONS and sum(times) < ENOUGH_SECONDS * 1e9:
        times.append(workload.run(kernel, stencil, config))
        if best_ns and min(times) > _RUNGS.get(len(times), math.inf) * best_ns:
            break
    return tuple(times)


def interleaved(
    workload: Workload, candidates: Sequence[tuple[Kernel, Stencil, Config]], seconds: float
) -> list[tuple[int, ...]]:
    """Time several kernels interleaved, A B C A B C, so that drift hits all alike.

    Returns
    -------
    list of tuple of int
        Times in nanoseconds, one tuple a candidate, all equally long: as many rounds as
        fit into `seconds`, and at least `_LEAST_ROUNDS`.
    """
    times: list[list[int]] = [[] for _ in candidates]
    for kernel, stencil, config in candidates:
        workload.first_run(kernel, stencil, config)
    started = time.perf_counter()
    while len(times[0]) < _LEAST_ROUNDS or time.perf_counter() - started < seconds:
        for row, (kernel, stencil, config) in zip(times, candidates, strict=True):
            row.append(workload.run(kernel, stencil, config))
    return [tuple(row) for row in times]
