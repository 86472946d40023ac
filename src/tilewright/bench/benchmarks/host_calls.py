"""The public call on NumPy's arrays beside ``numpy.matmul``, of random shapes.

Both are given row-major arrays and a C to fill.  NumPy has views for transposes and a copy for a
conjugate, as whoever has no other library writes it.  Batches of calls are interleaved, and the
fastest of each count, by the processor time of this process: other programs do not count in it, but
BLAS's threads do where they wait for one another, so give BLAS one (``OPENBLAS_NUM_THREADS=1``).
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.bench.call_cases import drawn_sides
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.bench.sizes import parse_cases
from tilewright.precision import precision
from tilewright.serve.gemm import gemm

__all__ = ["BENCHMARK"]

# The longest side, and the most operations (2 m n k): a second of a core.
MOST = (4096, 2**36)

# A batch takes 1 ms or one call, and as many rounds as fit in this follow, but three at least.
BATCH_NS, ROUNDS_NS = 1_000_000, 50_000_000

# What Python itself takes is the larger part of shorter calls.
LONG_US = 20


class HostCalls(Benchmark):
    measures = "the public call on NumPy's arrays, random shapes from 1 to 4096"
    against = "numpy.matmul"
    takes = "two minutes for 300 shapes on one core"
    options = {"precision": "s,d,c,z", "trans": "all", "seed": "0", "count": "75"}  # noqa: RUF012
    needs = "cpu"

    def rows(self, asked: Asked) -> Iterator[Row]:
        """Yield a row for each shape, each transpose as often as the others."""
        cases = parse_cases(asked.precision, asked.trans)
        for at, (_, group) in enumerate(itertools.groupby(cases, key=lambda case: case[0])):
            # Other shapes for each precision: so many more are seen.
            sides = drawn_sides(asked.seed + at, asked.count, MOST)
            rng = np.random.default_rng(asked.seed)
            for shape, case in zip(sides, itertools.cycle(list(group)), strict=False):
                yield _row(asked.live, rng, shape, case)

    def line(self, row: Row) -> str:
        size = "x".join(map(str, row["size"]))
        return f"{row['precision']} {row['trans']} {size}: {row['ratio']:.2f} of NumPy"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        """Return how ratios of times stand, a line a precision and one of all."""
        named = {name: [row for row in rows if row["precision"] == name] for name in "sdcz"}
        lines: list[list[Cell]] = []
        for name, mine in {**named, "all": list(rows)}.items():
            if mine:
                short = [row["us"] - row["numpy_us"] for row in mine if row["numpy_us"] <= LONG_US]
                long = [row["ratio"] for row in mine if row["numpy_us"] > LONG_US]
                lines.append([
                    name, len(mine), _mean([row["ratio"] for row in mine]),
                    f"{statistics.median(short):.1f}" if short else "", len(long), _mean(long),
                    f"{min(long, default=math.nan):.2f}", sum(x < 0.9 for x in long),
                ])  # fmt: skip
        return (
            "precision", "shapes", "geometric mean", f"up to {LONG_US} us: more us",
            f"beyond {LONG_US} us: shapes", "geometric mean", "least", "below 0.9",
        ), lines  # fmt: skip


def _mean(ratios: Sequence[float]) -> str:
    return f"{statistics.geometric_mean(ratios):.3f}" if ratios else ""


def _row(live: Any, rng: Any, shape: tuple[int, int, int], case: tuple[str, str, str]) -> Row:
    (m, n, k), (letter, op_a, op_b) = shape, case
    of = precision(letter)

    def matrix(rows: int, columns: int, op: str) -> NDArray[Any]:
        x = rng.uniform(-1, 1, (*((rows, columns) if op == "N" else (columns, rows)), of.words))
        made: NDArray[Any] = x.astype(of.real_name).view(of.dtype)[..., 0]
        return np.ascontiguousarray(made)

    def seen(x: NDArray[Any], op: str) -> NDArray[Any]:
        x = x.conj() if op == "C" else x
        return x if op == "N" else x.T

    a, b = matrix(m, k, op_a), matrix(k, n, op_b)
    ours, theirs = np.empty((m, n), of.dtype), np.empty((m, n), of.dtype)
    mine, others = _interleaved(
        lambda: gemm(a, b, ours, trans_a=op_a, trans_b=op_b, device=live),
        lambda: np.matmul(seen(a, op_a), seen(b, op_b), out=theirs),
    )
    most = float(np.abs(theirs).max())
    return {
        "precision": letter, "trans": f"{op_a}{op_b}", "size": [m, n, k],
        "us": round(mine / 1e3, 2), "numpy_us": round(others / 1e3, 2),
        "ratio": round(others / mine, 4),
        "difference": float(np.abs(ours - theirs).max()) / most if most else 0.0,
    }  # fmt: skip


def _interleaved(*calls: Callable[[], Any]) -> list[float]:
    """Return the least nanoseconds a call, of interleaved batches."""

    def batch(call: Callable[[], Any], count: int) -> float:
        started = time.process_time_ns()
        for _ in range(count):
            call()
        return (time.process_time_ns() - started) / count

    for call in calls:  # chosen and compiled
        batch(call, 1)
    slowest = max(1.0, *(batch(call, 1) for call in calls))
    count = max(1, int(BATCH_NS / slowest))
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(max(3, int(ROUNDS_NS / (count * slowest)))):
        for call, taken in zip(calls, times, strict=True):
            taken.append(batch(call, count))
    return [min(taken) for taken in times]


BENCHMARK = HostCalls()
