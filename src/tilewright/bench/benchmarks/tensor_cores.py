"""Squares on Hopper's tensor cores: the served kernel of each arithmetic beside cuBLAS's own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from tilewright.bench.bounded import bound_of, bound_record
from tilewright.bench.peers import UnavailableError
from tilewright.bench.peers.formats import CuBLASFormats
from tilewright.bench.registry import Asked, Cell, Measured, Row
from tilewright.bench.sizes import parse_sizes
from tilewright.bench.summary import quartiles
from tilewright.bench.sweep import OURS, Call, in_turns
from tilewright.bench.tensor.accuracy import errors
from tilewright.bench.tensor.cases import Case
from tilewright.bench.tensor.products import Matrices, Sample
from tilewright.library.matrix_units import config_for
from tilewright.problem import Problem

__all__ = ["BENCHMARK"]

# fp16x3 is what ``accuracy="fp32"`` runs where its guard lets it, splitting and guard included.
ARITHMETICS = ("bf16", "f16", "tf32", "fp16x3")
ROUNDS = 15
# Sides of the matrices that are drawn; larger ones repeat them.
_DRAWN = 4096
# Rows and columns of C whose errors are compared.
_ROWS, _COLUMNS = 64, 64


class TensorCores(Measured):
    """See the module."""

    measures = "squares in bfloat16, float16, TF32 and float32 from float16 parts; their errors"
    against = "cuBLAS in the same format; its SGEMM for float32"
    takes = "two minutes on an H100 once kernels are compiled"
    options = {"trans": "NN,NT,TN,TT", "size": "1024:16384"}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        """Yield a row for each arithmetic, transpose and size."""
        if asked.live.backend != "cuda":
            raise UnavailableError(f"tensor cores are not timed on {asked.live.id}; use cuda:0")
        peer = CuBLASFormats(asked.live)
        cases = [text.strip().upper() for text in asked.trans.split(",")]
        for size, _, _ in parse_sizes(asked.size):
            rng = np.random.default_rng(0)
            drawn = [rng.standard_normal((min(size, _DRAWN),) * 2, np.float32) for _ in "ab"]
            matrices = Matrices(asked.live, Problem(size, size, size, "s"), drawn[0], drawn[1])  # type: ignore[arg-type]
            try:
                for name, trans in itertools.product(ARITHMETICS, cases):
                    yield _row(matrices, Case(name, trans), size, peer)
            finally:
                matrices.close()

    def line(self, row: Row) -> str:
        """Return rates and their ratio."""
        ours, theirs = (row["flops_per_second"][name] / 1e12 for name in (OURS, "cublas"))
        return f"{row['problem']}: {ours:.1f} / {theirs:.1f} TFLOP/s ({ours / theirs:.2f}x)"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        """Return a line for each row."""
        lines: list[list[Cell]] = []
        for row in rows:
            ours, theirs = (row["flops_per_second"][name] for name in (OURS, "cublas"))
            cells = [f"{ours / 1e12:.1f}", f"{theirs / 1e12:.1f}", f"{ours / theirs:.3f}"]
            etas = [f"{row['errors'][name]['eta']:.1e}" for name in (OURS, "cublas")]
            lines.append([row["problem"], *cells, *etas])
        return ("problem", "ours, TFLOP/s", "cuBLAS", "ratio", "eta", "cuBLAS's"), lines


def _row(matrices: Matrices, case: Case, size: int, peer: CuBLASFormats) -> Row:
    matrices.turn(case.trans)
    about = {
        "problem": f"{case} {size}", "arithmetic": case.arithmetic, "trans": case.trans,
        "size": [size] * 3,
    }  # fmt: skip
    try:
        calls: dict[str, Call] = {
            OURS: _ours(matrices, case, size),
            "cublas": matrices.theirs(case, peer),
        }
        rng = np.random.default_rng(1)
        sample: Sample = rng.integers(0, size, _ROWS), rng.integers(0, size, _COLUMNS)
        exact = matrices.exact(case.peer, sample)
        found = {
            name: errors(matrices.picked(call, case.result, sample), exact, picked=True)
            for name, call in calls.items()
        }
        taken, _ = in_turns((calls, {}), ROUNDS, lambda: None, shared=False)
    except Exception as error:  # the others go on
        if getattr(matrices.live, "lost", None):
            raise
        return about | {"error": f"{about['problem']}: {error}".splitlines()[0]}
    seconds = {name: quartiles(times) for name, times in taken.items()}
    limit = bound_of(matrices.live, matrices.problem, arithmetic=case.bound)
    return about | {
        "times": "quartiles",
        "seconds": seconds,
        "flops_per_second": {name: 2 * size**3 / of[1] for name, of in seconds.items()},
        "errors": found,
        "bound": bound_record(limit),
    }


def _ours(matrices: Matrices, case: Case, size: int) -> Call:
    """Return what the library would launch for a case."""
    if case.peer == "s" and case.arithmetic != "tf32":
        return matrices.guarded()
    promote = case.scheme.promote_k if case.scheme else 0
    spec = matrices.live.spec
    return matrices.ours(case, config_for(case.variant, spec, size, size, size, promote))


BENCHMARK = TensorCores()
