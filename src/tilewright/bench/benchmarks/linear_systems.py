"""`lu_factor` and `lu_solve` on NumPy's arrays beside LAPACK's, by SciPy.

Both in turns, and the fastest of each counts, by the processor time of this process: other programs
do not count in it, but BLAS's threads do where they wait for one another, so give BLAS one
(``OPENBLAS_NUM_THREADS=1``).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from tilewright.bench.peers import UnavailableError
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.bench.sizes import parse_sizes
from tilewright.precision import precision
from tilewright.serve.linear import lu_factor, lu_solve
from tilewright.tuning.matrices import normal

__all__ = ["BENCHMARK"]

# Right-hand sides.
SIDES = (1, 16, 256)

# Each takes so many turns at least, and more while all of them take less than this.
TURNS, TURNS_SECONDS = 3, 1.0


class LinearSystems(Benchmark):
    measures = "LU factorisation and solution on NumPy's arrays"
    against = "LAPACK by SciPy"
    takes = "a minute on one core"
    options = {"precision": "d", "size": "500,1000,2000,4000"}  # noqa: RUF012
    needs = "cpu"

    def rows(self, asked: Asked) -> Iterator[Row]:
        """Yield a row for each factorisation, and for each number of right-hand sides."""
        try:
            from scipy import linalg as lapack
        except ImportError:
            raise UnavailableError("SciPy is not here; pip install scipy") from None
        for letter, (n, _, _) in itertools.product(
            asked.precision.split(","), parse_sizes(asked.size)
        ):
            rng, of = np.random.default_rng(0), precision(letter)
            a, b = normal(rng, (n, n), of), normal(rng, (n, max(SIDES)), of)
            ours, theirs = partial(lu_factor, a, device=asked.live), partial(lapack.lu_factor, a)
            yield _row(letter, n, 0, ours, theirs)
            mine, other = ours(), theirs()
            for sides in SIDES:
                right = b[:, :sides].copy()
                yield _row(
                    letter, n, sides, partial(lu_solve, mine, right, device=asked.live),
                    partial(lapack.lu_solve, other, right),
                )  # fmt: skip

    def line(self, row: Row) -> str:
        return f"{row['precision']} {row['size']} {_what(row)}: {row['ratio']:.2f} of LAPACK"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        return ("precision", "n", "", "ms", "LAPACK's", "its time / ours"), [
            [row["precision"], row["size"], _what(row), row["ms"], row["lapack_ms"],
             f"{row['ratio']:.2f}"] for row in rows
        ]  # fmt: skip


def _what(row: Row) -> str:
    return f"solve, {row['sides']} sides" if row["sides"] else "factor"


def _row(
    letter: str, n: int, sides: int, ours: Callable[[], Any], theirs: Callable[[], Any]
) -> Row:
    times: list[list[int]] = [[], []]
    until = time.perf_counter() + TURNS_SECONDS
    while len(times[0]) < TURNS or time.perf_counter() < until:
        for call, taken in zip((ours, theirs), times, strict=True):
            started = time.process_time_ns()
            call()
            taken.append(time.process_time_ns() - started)
    mine, other = (min(taken) / 1e6 for taken in times)
    return {
        "precision": letter, "size": n, "sides": sides, "ms": round(mine, 3),
        "lapack_ms": round(other, 3), "ratio": round(other / mine, 4),
    }  # fmt: skip


BENCHMARK = LinearSystems()
