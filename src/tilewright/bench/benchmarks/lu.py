"""`lu_factor` and `lu_solve` on CuPy's arrays beside cuSOLVER's getrf and getrs, by CuPy.

Each factors in place, in the storage order that it takes without a copy: ours row-major, cuSOLVER
column-major.  Times are of whole calls, by events on the stream that calls are made on, in turns;
the matrix is drawn anew for each.  The product that a factorisation is compared with has its sides.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from statistics import median
from typing import Any

import numpy as np

from tilewright.bench.call_arrays import cupy_on
from tilewright.bench.peers import UnavailableError
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.precision import precision
from tilewright.serve.gemm import gemm
from tilewright.serve.linear import lu_factor, lu_solve

__all__ = ["BENCHMARK"]

# Right-hand sides.
SIDES = (1, 256)

# The first turn warms up and does not count.
_TURNS = 6


class LU(Benchmark):
    measures = "LU factorisation and solution on CuPy's arrays, in place"
    against = "cuSOLVER by CuPy, and a product of the same size"
    takes = "a minute on an H100"
    options = {"precision": "s,d", "size": "1024,2048,4096,8192,16384"}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        cupy = cupy_on(asked.live)
        try:
            linalg = import_module("cupyx.scipy.linalg")
        except ImportError:
            raise UnavailableError("cupyx.scipy is not here; update CuPy") from None
        sizes = map(int, asked.size.split(","))
        for letter, n in itertools.product(asked.precision.split(","), sizes):
            yield {"precision": letter, "size": n, **_row(cupy, linalg, letter, n)}

    def line(self, row: Row) -> str:
        """Return the speed, and how it stands beside a product's and cuSOLVER's."""
        return (
            f"{row['precision']} {row['size']}: {row['tflops']:.1f} TFLOP/s,"
            f" {row['of_gemm']:.2f} of a product's, {row['ratio']:.2f} of cuSOLVER"
        )

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        solved = [f"solve for {sides}: its time / ours" for sides in SIDES]
        heads = ("precision", "n", "ms", "TFLOP/s", "of gemm's", "cuSOLVER's time / ours", *solved)
        return heads, [
            [row["precision"], row["size"], row["ms"], f"{row['tflops']:.1f}",
             f"{row['of_gemm']:.2f}", f"{row['ratio']:.2f}",
             *(f"{row['solve_ratios'][str(sides)]:.2f}" for sides in SIDES)] for row in rows
        ]  # fmt: skip


def _row(cupy: Any, linalg: Any, letter: str, n: int) -> Row:
    of = precision(letter)
    a = _drawn(cupy, of, (n, n))
    ours, theirs = a.copy(), cupy.asfortranarray(a)
    flops = of.flops / 3 * n**3

    def again(target: Any) -> None:
        target[...] = a

    ms = _in_turns(
        cupy,
        [lambda: lu_factor(ours, overwrite_a=True),
         lambda: linalg.lu_factor(theirs, overwrite_a=True, check_finite=False)],
        [lambda: again(ours), lambda: again(theirs)],
    )  # fmt: skip
    again(ours)
    again(theirs)
    factors = lu_factor(ours, overwrite_a=True)
    its = linalg.lu_factor(theirs, overwrite_a=True, check_finite=False)
    ratios = {}
    for sides in SIDES:
        b = _drawn(cupy, of, (n, sides))
        columns = cupy.asfortranarray(b)
        times = _in_turns(
            cupy,
            [partial(lu_solve, factors, b),
             partial(linalg.lu_solve, its, columns, check_finite=False)],
        )  # fmt: skip
        ratios[str(sides)] = round(times[1] / times[0], 4)
    product = _in_turns(cupy, [lambda: gemm(a, a, ours)])[0]
    return {
        "ms": round(ms[0], 3), "cusolver_ms": round(ms[1], 3), "ratio": round(ms[1] / ms[0], 4),
        "tflops": flops / ms[0] / 1e9, "gemm_ms": round(product, 3),
        "of_gemm": round(product / 3 / ms[0], 4), "solve_ratios": ratios,
    }  # fmt: skip


def _drawn(cupy: Any, of: Any, shape: tuple[int, int]) -> Any:
    """Return random numbers of a precision on the device."""
    rng = cupy.random.default_rng(0)
    drawn = rng.standard_normal((*shape, of.words), dtype=np.dtype(of.real_name))
    return drawn.view(of.dtype)[..., 0]


def _in_turns(
    cupy: Any, calls: Sequence[Callable[[], Any]], before: Sequence[Callable[[], Any]] = ()
) -> list[float]:
    """Return the medians of calls' times in milliseconds, each behind what is done before it."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(_TURNS):
        for number, call in enumerate(calls):
            if before:
                before[number]()
            begun, ended = cupy.cuda.Event(), cupy.cuda.Event()
            cupy.cuda.get_current_stream().synchronize()
            begun.record()
            call()
            ended.record()
            ended.synchronize()
            times[number].append(cupy.cuda.get_elapsed_time(begun, ended))
    return [median(taken[1:]) for taken in times]


BENCHMARK = LU()
