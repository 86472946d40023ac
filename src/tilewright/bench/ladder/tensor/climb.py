"""BF16 on Hopper's tensor cores: rungs, the tensor-core stencil, and cuBLAS on one problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import BackendError, Kernel, LiveDevice
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.bench.bounded import bound_of
from tilewright.bench.ladder.machine_code import machine_code
from tilewright.bench.ladder.oracle import Oracle
from tilewright.bench.ladder.race import (
    Contender,
    Ladder,
    Matrices,
    Observer,
    Result,
    cublas_alone,
    first_line,
    race,
    refuse_others,
    with_errors,
)
from tilewright.bench.ladder.record import climb_record
from tilewright.bench.ladder.tensor.rungs import ALIGNED, TENSOR_RUNGS, TensorRung, stencil_rung
from tilewright.bench.peers.cublas import CuBLAS
from tilewright.bench.sweep import Call
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.tuning.verify import WrongResultError, error_bound

__all__ = ["LADDER", "NAME", "climb_tensor", "rounded", "tensor_contenders", "tensor_problem",
           "widened"]  # fmt: skip

NAME = "BF16 GEMM, C = A B^T in FP32"

# Tensor cores drop what lies below the largest term's last bits, which
# costs up to two bits of a correctly rounded sum.
_ROUNDOFF = 4 * 2.0**-24
# Sizes that meet every edge, with a padding of leading dimensions; k also below one step.
_CHECKS = ((64, 256, 64, 0), (70, 300, 100, 0), (260, 270, 200, 8), (1, 1, 1, 8))
_LARGEST = 4  # of the integers in checks: all sums are exact


def tensor_problem(m: int, n: int, k: int) -> Problem:
    """Return the column-major problem of a row-major C = A B^T, m x n x k."""
    ld = -(-k // ALIGNED) * ALIGNED
    return Problem(n, m, k, "s", Trans.T, Trans.N, ld, ld)  # type: ignore[arg-type]


def rounded(values: NDArray[Any]) -> NDArray[Any]:
    """Return the bits of bfloat16, ties to even; NaN stays NaN."""
    bits = values.astype(np.float32).view(np.uint32)
    nearest = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16
    return np.where(np.isnan(values), 0x7FFF, nearest).astype(np.uint16)


def widened(stored: NDArray[Any]) -> NDArray[Any]:
    """Return the float32 numbers of bfloat16 bits."""
    return (stored.astype(np.uint32) << 16).view(np.float32)


def tensor_contenders(live: LiveDevice) -> Iterator[Contender]:
    """Yield every rung, compiled and checked on small products of integers; the stencil last."""
    for rung in (*TENSOR_RUNGS, stencil_rung(architecture_spec("sm_90a"))):
        told = Result(rung.name, rung.title, rung.idea, config=dict(rung.constants))
        try:
            if live.dialect != "cuda":
                raise BackendError(f"{live.id} has no wgmma; rungs are CUDA, for sm_90a")
            kernel = live.compile(rung.source())
            for check in _CHECKS:
                _exact(live, rung, kernel, *check)
            code = machine_code(live, kernel, rung.threads, rung.shared_bytes)
            yield Contender(replace(told, code=code), rung, kernel)
        except (ValueError, BackendError, WrongResultError) as problem:
            yield Contender(replace(told, reason=first_line(problem)), rung)


class _Matrices(Matrices):
    """One problem's matrices on the device; rows padded by NaN."""

    def __init__(self, live: LiveDevice, p: Problem, a: NDArray[Any], b: NDArray[Any]) -> None:
        self.live, self.problem = live, p
        self.c = np.full((p.n, p.ldc), np.nan, np.float32)
        self.memory = [live.upload(self._padded(x)) for x in (a, b)]
        self.memory.append(live.upload(self.c))

    def _padded(self, stored: NDArray[Any]) -> NDArray[Any]:
        rows, k = stored.shape
        whole = np.zeros((rows, self.problem.lda), np.float32)
        whole[:, k:] = np.nan
        kept = rounded(whole)
        kept[:, :k] = stored
        return kept

    def call(self, rung: TensorRung, kernel: Kernel) -> Call:
        """Return a function that computes the product once and returns nanoseconds."""
        p, (a, b, c) = self.problem, self.memory
        sizes = (p.n, p.m, p.k)
        arguments = rung.arguments(sizes, a, p.lda, b, p.ldb, c, p.ldc)
        launch = rung.launch(p.n, p.m)
        return lambda: self.live.launch_timed(kernel, launch, arguments).nanoseconds()

    def library_call(self, peer: CuBLAS) -> Call:
        """Return the same by a library: operands exchanged."""
        a, b, c = self.memory
        return peer.timed(self.problem, "bf16 to float32", (b, a, c))


def _exact(
    live: LiveDevice, rung: TensorRung, kernel: Kernel, m: int, n: int, k: int, padding: int
) -> None:
    """Compare a product of small integers bit for bit.

    Raises
    ------
    WrongResultError
        Naming the first wrong element and the problem.
    """
    rng = np.random.default_rng(m + n + k)
    a, b = (rng.integers(-_LARGEST, _LARGEST + 1, (rows, k)).astype(np.float32) for rows in (m, n))
    p = tensor_problem(m, n, k)
    p = replace(p, lda=p.lda + padding, ldb=p.ldb + padding, ldc=p.ldc + padding)
    matrices = _Matrices(live, p, rounded(a), rounded(b))
    try:
        found = matrices.result(matrices.call(rung, kernel))
    finally:
        matrices.close()
    expected = np.full_like(found, np.nan)
    expected[:, :n] = a @ b.T
    refuse_others(rung.name, (m, n, k), found, expected)


def climb_tensor(
    live: LiveDevice,
    problem: Problem,
    ours: Sequence[Contender],
    peers: Sequence[CuBLAS],
    rounds: int,
    observer: Observer = lambda name: None,
) -> list[Result]:
    """Measure contenders and peers on one problem: errors, and interleaved kernel times.

    Parameters
    ----------
    live : LiveDevice
        Where.
    problem : Problem
        From `tensor_problem`.
    ours : sequence of Contender
        From `tensor_contenders`.
    peers : sequence of CuBLAS
        Libraries; they compute with the same memory.
    rounds : int
        Turns of all.
    observer : callable
        Called with each contender's and peer's name before it is judged.
    """
    rng = np.random.default_rng(0)
    p = problem
    a, b = (rounded(rng.standard_normal((rows, p.k), np.float32)) for rows in (p.n, p.m))
    oracle = Oracle(widened(a), np.ascontiguousarray(widened(b).T))
    matrices = _Matrices(live, p, a, b)

    def judged(result: Result, call: Call) -> Result:
        errors = oracle.errors(matrices.result(call)[:, : p.m])
        return with_errors(result, errors, error_bound(p.k, _ROUNDOFF, False))

    try:
        return race(
            ours, peers, lambda one: matrices.call(one.rung, one.kernel), matrices.library_call,
            judged, rounds, observer, shared=False,
        )  # fmt: skip
    finally:
        matrices.close()


def _record(
    live: LiveDevice,
    problem: Problem,
    rungs: Sequence[Contender],
    peers: Sequence[CuBLAS],
    rounds: int,
    observer: Observer,
) -> dict[str, Any]:
    results = climb_tensor(live, problem, rungs, peers, rounds, observer)
    limit = bound_of(live, replace(problem, precision=precision("bf16")))
    return climb_record(problem, limit, results, [one.name for one in peers], NAME)


LADDER = Ladder(
    gpu_sizes="2048,4096,8192",
    cpu_sizes="128,256",
    cpu_peer="",
    count=len(TENSOR_RUNGS) + 1,
    peer=cublas_alone,
    problem=tensor_problem,
    contenders=tensor_contenders,
    climb=_record,
)
