"""Double precision from residues: rungs of the whole route, and cuBLAS DGEMM, on one problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import BackendError, GemmCall, Kernel, LiveDevice, Operand
from tilewright.bench.bounded import bound_of
from tilewright.bench.ladder.machine_code import machine_code
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
from tilewright.bench.ladder.rungs import rung_text
from tilewright.bench.peers.cublas import CuBLAS
from tilewright.bench.sweep import Call
from tilewright.bounds import Bound
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.serve.kernels import kernel_of
from tilewright.serve.routes.residues.chain import CORE, Chain
from tilewright.serve.routes.residues.cuts import Cut
from tilewright.serve.scratch import Scratch
from tilewright.serve.steps import Step
from tilewright.serve.tensor_cores import has_wgmma, source_of, wgmma
from tilewright.space import Config
from tilewright.stencil import Launch, Source
from tilewright.stencil.residues.sources import REPORT_WORDS, Passes
from tilewright.stencil.wgmma import Arithmetic, Parts, TensorCall, TensorVariant
from tilewright.tuning.verify import WrongResultError

__all__ = ["LADDER", "NAME", "RUNGS", "contenders", "residue_problem"]

NAME = "DGEMM from residues, C = A B"

# Sums in 32 bits, as libraries return them.
_WORDS = TensorVariant(precision("s"), Trans.T, Trans.N, arithmetic=Arithmetic("int8", "int32"))

# Sizes with edges; of integers, whose products are exact.
_CHECKS = ((70, 300, 100), (260, 270, 333))
_LARGEST = 2**20

# Elements of C that are compared with sums of 64 bits: so many rows of so many columns.
_SAMPLES = 64


class _Unguarded(Chain):
    """Rung 4, the fewest moduli whatever operands are: without a bound, without another kernel."""

    def _choice(self, report: Any) -> Iterator[Step]:
        """Yield what scales sides; the first element of a bound is below any limit."""
        first, bounds = list(super()._choice(report)), 2
        yield from first[: -bounds * len(self._tiles)]
        kernel, _, arguments = first[-1]
        one, few = np.int64(1), Passes(1, 1, self.problem.k).judge_launch
        infinite = np.float32(np.inf)
        of_bound, decided = arguments[2:10], arguments[12:]
        yield kernel, few, (one, one, *of_bound, infinite, one, *decided)

    def steps(self, report: Any) -> Iterator[Step]:
        """Yield all launches; no native kernel is behind them."""
        yield from self.by_residues(report)


class _Clusters(_Unguarded):
    """Rung 3: a launch a modulus, of clusters whose blocks share tiles."""

    _apart = True


class _EachModulus(_Clusters):
    """Rung 2: a launch a modulus, whose kernel stores residues, of blocks alone."""

    @property
    def _config(self) -> Config:
        return super()._config.replace(cluster_m=1, cluster_n=1)


class _Words(_EachModulus):
    """Rung 1: a launch a modulus, whose sums another pass reads and reduces."""

    def _multiplied(self, of_a: Any, of_b: Any, k: int, to: Any) -> Iterator[Step]:
        (a, b), (rows, columns), ld = self._planes, self._whole, self._steps[0] // self.cut.m
        m, n = of_a.size, of_b.size
        config = wgmma().starts(_WORDS, self.live.spec)[0].replace(cluster_m=1, cluster_n=1)
        words = self.space.need("words", 4 * rows * columns)
        reduce = Source(rung_text(self.live.dialect, "residues/reduce.cl"), {}, "reduce")
        table = self.decision + 4 * REPORT_WORDS
        reduced = Launch((-(-rows * columns // 1024), 1), (256, 1))
        for z in range(self._passes.moduli.first):
            step_a, step_b, step_c = (z * step for step in self._steps)
            call = TensorCall(
                m, n, k, 1, Parts(a, step_a, ld), Parts(b, step_b, ld), 0, Operand(words, 0, rows)
            )
            yield self._step(
                source_of(config, _WORDS), wgmma().launch(config, m, n, k),
                *wgmma().arguments(config, _WORDS, call),
            )  # fmt: skip
            yield self._step(
                reduce, reduced, words, to + step_c, np.int64(rows * columns), table + 8 * z
            )


@dataclass(frozen=True)
class ResidueRung:
    """One step of the ladder: name, title and idea as of `Result`, and the chain of launches."""

    name: str
    title: str
    idea: str
    chain: type[Chain]


RUNGS = (
    ResidueRung(
        "r1_words", "a product a modulus, sums in memory",
        "Products modulo 14 numbers are int8 products; a pass reduces their 32-bit sums.", _Words,
    ),
    ResidueRung(
        "r2_epilogue", "reduction in the epilogue",
        "Sums are reduced in registers and stored as bytes: a quarter, and read by none.",
        _EachModulus,
    ),
    ResidueRung(
        "r3_clusters", "clusters and multicast",
        "Two blocks of a cluster share a tile of an operand, which L2 is asked for once.",
        _Clusters,
    ),
    ResidueRung(
        "r4_one_launch", "all moduli in one launch",
        "Blocks go on to the next modulus as they end, so that one tail is left of 14.",
        _Unguarded,
    ),
    ResidueRung(
        "r5_guarded", "a bound in FP8 chooses the moduli",
        "What gemm serves: no fewer moduli than the operands need, or the native kernel.", Chain,
    ),
)  # fmt: skip


def residue_problem(m: int, n: int, k: int) -> Problem:
    """Return the column-major problem of a row-major C = A B, m x n x k."""
    return Problem(n, m, k, "d")  # type: ignore[arg-type]


class _Matrices(Matrices):
    """One problem's matrices on the device; the row-major A is the kernels' B."""

    def __init__(self, live: LiveDevice, a: NDArray[Any], b: NDArray[Any]) -> None:
        self.live, self.a, self.b = live, a, b
        self.problem = residue_problem(a.shape[0], b.shape[1], a.shape[1])
        self.c = np.full((a.shape[0], b.shape[1]), np.nan)
        self.memory = [live.upload(x) for x in (b, a, self.c)]
        self.room: Any = Scratch(live)  # of what routes take, no rung asks for `zero`

    def call(self, rung: ResidueRung) -> Call:
        """Return a function that computes the product once and returns nanoseconds."""
        p, live = self.problem, self.live
        of_a, of_b, of_c = (
            Operand(memory, 0, ld)
            for memory, ld in zip(self.memory, (p.lda, p.ldb, p.ldc), strict=True)
        )
        call = GemmCall(p.precision, p.m, p.n, p.k, 1, of_a, of_b, 0, of_c)
        chain = rung.chain(live, self.room, p, call, Cut(p.m, p.n, p.k), False)
        made: Any = live
        steps = [made.prepare(*step) for step in chain.steps(None)]

        def enqueue() -> None:
            for one in steps:
                one.enqueue(made.stream)

        return lambda: made.between_events(enqueue, held=len(steps)).nanoseconds()

    def library_call(self, peer: CuBLAS) -> Call:
        return peer.timed(self.problem, "d", self.memory)

    def close(self) -> None:
        self.room.close()
        super().close()


def contenders(live: LiveDevice) -> Iterator[Contender]:
    """Yield every rung, compiled and checked on small products of integers."""
    for rung in RUNGS:
        told = Result(rung.name, rung.title, rung.idea)
        try:
            if not has_wgmma(live):
                raise BackendError(f"{live.id} has no wgmma; rungs are CUDA, for sm_90a")
            for check in _CHECKS:
                _exact(live, rung, *check)
            kernel, config = _main_kernel(live, rung)
            threads = wgmma().resources(config, CORE).threads
            shared = kernel.handle.dynamic_shared_bytes
            told = replace(told, config=dict(config))
            yield Contender(replace(told, code=machine_code(live, kernel, threads, shared)), rung)
        except (ValueError, BackendError, WrongResultError) as problem:
            yield Contender(replace(told, reason=first_line(problem)), rung)


def _main_kernel(live: LiveDevice, rung: ResidueRung) -> tuple[Kernel, Config]:
    variant = _WORDS if rung.chain is _Words else CORE
    config = wgmma().starts(variant, live.spec)[0]
    if issubclass(rung.chain, _EachModulus):
        config = config.replace(cluster_m=1, cluster_n=1)
    return kernel_of(live, source_of(config, variant)), config


def _exact(live: LiveDevice, rung: ResidueRung, m: int, n: int, k: int) -> None:
    """Compare a product of integers bit for bit.

    Raises
    ------
    WrongResultError
        Naming the first wrong element and the problem.
    """
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-_LARGEST, _LARGEST, shape).astype(float) for shape in ((m, k), (k, n)))
    matrices = _Matrices(live, a, b)
    try:
        found = matrices.result(matrices.call(rung))
    finally:
        matrices.close()
    refuse_others(rung.name, (m, n, k), found, a @ b)


def _climb(
    live: LiveDevice,
    problem: Problem,
    rungs: Sequence[Contender],
    peers: Sequence[CuBLAS],
    rounds: int,
    observer: Observer,
) -> dict[str, Any]:
    """Measure rungs and peers on one problem: errors of samples, and interleaved times."""
    rng, p = np.random.default_rng(0), problem
    a, b = rng.standard_normal((p.n, p.k)), rng.standard_normal((p.k, p.m))
    rows, columns = (rng.integers(0, side, _SAMPLES) for side in (p.n, p.m))
    x, y = a[rows], b[:, columns]
    exact, size = x.astype(np.longdouble) @ y.astype(np.longdouble), abs(x) @ abs(y)
    matrices = _Matrices(live, a, b)

    def judged(result: Result, call: Call) -> Result:
        off = abs(matrices.result(call)[np.ix_(rows, columns)] - exact)
        errors = float(off.max()), float((off / size).max())
        return with_errors(result, errors, (2 * sqrt(p.k) - 1) * 2.0**-53)

    try:
        results = race(
            rungs, peers, lambda one: matrices.call(one.rung), matrices.library_call, judged,
            rounds, observer, shared=False,
        )  # fmt: skip
    finally:
        matrices.close()
    limit: Bound | str = f"no bound: {live.id} has no wgmma"
    if has_wgmma(live):
        limit = bound_of(live, problem, warm_cache=False, accuracy="fp64")
    return climb_record(problem, limit, results, [one.name for one in peers], NAME)


LADDER = Ladder(
    gpu_sizes="2048,4096,8192",
    cpu_sizes="64",
    cpu_peer="",
    count=len(RUNGS),
    peer=cublas_alone,
    problem=residue_problem,
    contenders=contenders,
    climb=_climb,
)
