"""The process of a sweep that has the GPU: it checks kernels bit for bit, and times them.

Every product is computed twice over: once of small integers, of which every order of summation
gives the same bits, compared on the device with what NumPy computes; and of random numbers, timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from statistics import median
from typing import Any

import numpy as np

from sweep_cases import Case, case_of
from tilewright.backend import DeviceLostError
from tilewright.backend.cuda.device import device_at
from tilewright.bench.peers.cublas import CuBLAS
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Launch, Source
from tilewright.tuning.matrices import apply, integers
from tilewright.tuning.measure import Workload, random_matrix, repeat

__all__ = ["Answer", "Timer", "serve"]

# How much slower than the best a first run ends a config's timing on a shape.
HOPELESS = 3.0

# Compares a result with what is right, and leaves NaN where the next one goes.
_DIFFER = """
extern "C" __global__ void differ(const REAL *right, REAL *got, long long count, int *wrong)
{
    int found = 0;
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x; at < count; at += step) {
        found += !(got[at] == right[at]);
        got[at] = (REAL)0 / (REAL)0;
    }
    if (found)
        atomicAdd(wrong, found);
}
"""
_DIFFER_LAUNCH = Launch((1056, 1), (256, 1))

Answer = dict[str, Any]
"""Of a config: `status`, `reason`, `results` (times and whether it was right, by shape), and the
`seconds` that the process took, of which the device ran `kernels`; `last` where it took the device
from the process."""


class Timer:
    """Checks and times configs of several cases on the same matrices.

    Parameters
    ----------
    cases : sequence of Case
        What is recorded; all of one precision.
    """

    def __init__(self, cases: Sequence[Case]) -> None:
        self.live, self.cases = device_at(0), cases
        of = cases[0].problems[0].precision
        problems = [problem for asked in cases for problem in asked.problems]
        rng = np.random.default_rng(7)
        most = {
            "a": max(p.m * p.k for p in problems),
            "b": max(p.k * p.n for p in problems),
            "c": max(p.m * p.n for p in problems),
        }
        whole = {name: integers(rng, most[name], 1, of)[:, 0] for name in "ab"}
        self.result = self.live.upload(np.full(most["c"], np.nan, of.dtype))
        self.random, self.whole = (
            {"a": a, "b": b, "c": self.result}
            for a, b in (
                [self.live.upload(random_matrix(rng, most[name], problems[0])) for name in "ab"],
                [self.live.upload(whole[name]) for name in "ab"],
            )
        )
        self.right = {p: self.live.upload(_product(whole, p)) for p in problems}
        self.works = {p: Workload(self.live, p, self.random) for p in problems}
        self.checks = {p: Workload(self.live, p, self.whole) for p in problems}
        self.wrong = self.live.upload(np.zeros(1, np.int32))
        defines = {"REAL": "float" if of.real_bytes == 4 else "double"}
        self.differ = self.live.compile(Source(_DIFFER, defines, "differ"))
        self.numbers = 2 if of.is_complex else 1
        self.best: dict[Problem, float] = {}
        self.compared_ns = 0

    def wrong_numbers(self, problem: Problem) -> int:
        """Return in how many numbers the last result of integers is not the product."""
        count = np.int64(problem.m * problem.n * self.numbers)
        told = np.zeros(1, np.int32)
        self.live.write(self.wrong, told)
        arguments = (self.right[problem], self.result, count, self.wrong)
        event = self.live.launch_timed(self.differ, _DIFFER_LAUNCH, arguments)
        self.compared_ns += event.nanoseconds()
        self.live.download(self.wrong, told)
        return int(told[0])

    def take(self, case: int, config: Config) -> Answer:
        """Check and time a config on every shape of its case."""
        asked, results = self.cases[case], []
        began, before = time.perf_counter(), self._busy_ns()
        status, reason, source, last = "ok", "", None, False
        try:
            for problem in asked.problems:
                wanted = asked.source(config, problem)
                if wanted != source:
                    source, kernel = wanted, self.live.compile(wanted)
                self.checks[problem].run(kernel, asked.family, config)
                right = not self.wrong_numbers(problem)
                results.append((self._times(problem, kernel, asked.family, config), right))
                if right:
                    found = median(results[-1][0])
                    self.best[problem] = min(found, self.best.get(problem, found))
        except Exception as error:
            status, reason = "launch_error", f"{type(error).__name__}: {error}"
            last = isinstance(error, DeviceLostError)
        seconds, kernels = time.perf_counter() - began, 1e-9 * (self._busy_ns() - before)
        return {"status": status, "reason": reason, "results": results, "seconds": seconds,
                "kernels": kernels, "last": last}  # fmt: skip

    def _times(self, problem: Problem, kernel: Any, family: Any, config: Config) -> list[int]:
        first = self.works[problem].run(kernel, family, config)
        if first > HOPELESS * self.best.get(problem, first):
            return [first]
        return list(repeat(self.works[problem], kernel, family, config))

    def _busy_ns(self) -> int:
        every = (*self.works.values(), *self.checks.values())
        return self.compared_ns + sum(work.busy_ns for work in every)

    def race(self, case: int, configs: Sequence[Config], seconds: float) -> Answer:
        """Time configs on the first shape of a case in turns, cuBLAS among them."""
        asked = self.cases[case]
        problem = asked.problems[0]
        work = self.works[problem]
        peer = CuBLAS(self.live)
        kernels = [self.live.compile(asked.source(config, problem)) for config in configs]
        runs: list[Callable[[], int]] = [
            partial(work.run, kernel, asked.family, config)
            for kernel, config in zip(kernels, configs, strict=True)
        ]
        runs.append(peer.prepare(work))
        times: list[list[int]] = [[] for _ in runs]
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            for run, row in zip(runs, times, strict=True):
                row.append(run())
        return {"configs": [dict(config) for config in configs], "times_ns": times[:-1],
                "cublas_ns": times[-1], "cublas": peer.version}  # fmt: skip


def _product(host: dict[str, Any], problem: Problem) -> Any:
    """Return the product of integers, column by column: exact in every order."""
    m, n, k = problem.m, problem.n, problem.k

    def laid(name: str, rows: int, columns: int, transposed: bool) -> Any:
        shape = (columns, rows) if transposed else (rows, columns)
        return host[name][: prod(shape)].reshape(shape, order="F")

    a = laid("a", m, k, problem.trans_a.transposed)
    b = laid("b", k, n, problem.trans_b.transposed)
    right = apply(problem.trans_a, a) @ apply(problem.trans_b, b)
    return np.ascontiguousarray(right.T).reshape(-1)


def serve(keys: Sequence[tuple[str, str, bool]], pipe: Any) -> None:
    """Answer requests from a pipe, in their order, until there is none."""
    timer = Timer([case_of(*key) for key in keys])
    pipe.send("ready")
    while (request := pipe.recv()) is not None:
        action, *arguments = request
        answer = getattr(timer, action)(*arguments)
        pipe.send(answer)
        if answer.get("last"):  # what comes behind would fail here, too
            return
