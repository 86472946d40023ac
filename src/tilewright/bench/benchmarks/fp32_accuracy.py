"""``accuracy="fp32"``: its errors beside IEEE single precision's, and what its guard decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.bench.fp32_data import Drawn, integers, normal, phi
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.bench.sizes import number
from tilewright.serve.decision import Decision
from tilewright.serve.gemm import gemm
from tilewright.serve.unproved import serve_unproved

__all__ = ["BENCHMARK"]

# What is compared: IEEE arithmetic on the device, every scheme alone, and the guarded choice.
ARITHMETICS = ("ieee", "fp16x3", "tf32x3", "bf16x6", "bf16x9", "fp32")

Array = NDArray[np.float32]
_SPIKED = "one entry of each row 2^40 above"

# Names, lengths of sums, and what draws A and B.
DATA: tuple[tuple[str, int, Drawn], ...] = (
    *((f"phi {spread:g}", 1024, phi(spread)) for spread in (0, 0.5, 1, 2, 4)),
    *(("normal", k, normal) for k in (64, 128, 1024, 4096)),
    *(("positive", k, lambda rng, shape: rng.random(shape)) for k in (128, 1024, 4096)),
    (_SPIKED, 1024, normal),
    *((f"integers of {bits} bits", 1024, integers(bits)) for bits in (8, 12, 16)),
)


class FP32Accuracy(Benchmark):
    measures = 'errors of accuracy="fp32", of each scheme alone, and the guard\'s decisions'
    against = "IEEE arithmetic on the device, NumPy's BLAS"
    takes = "half a minute; without tensor cores schemes run on a model of them"
    options = {"size": "48"}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        side = number(asked.size)
        for name, k, draw in DATA:
            rng = np.random.default_rng(k)
            a, b = (np.asarray(draw(rng, shape), np.float32) for shape in ((side, k), (k, side)))
            if name == _SPIKED:
                a[np.arange(side), rng.integers(0, k, side)] *= 2.0**40
            row: dict[str, Any] = {"data": name, "k": k, "side": side, "failed": {}}
            row["errors"] = {"numpy": _errors(a @ b, a, b)}
            for arithmetic in ARITHMETICS:
                told = Decision()
                try:
                    with serve_unproved():
                        c = gemm(a, b, accuracy=arithmetic, report=told, device=asked.live)
                except (ValueError, RuntimeError) as error:  # the others go on
                    row["failed"][arithmetic] = str(error).splitlines()[0]
                    continue
                row["errors"][arithmetic] = _errors(c, a, b)
                if arithmetic == "fp32":
                    row["guard"] = told.as_dict()
            yield row

    def line(self, row: Row) -> str:
        served = row.get("guard", {}).get("variant", "-")
        return f"{row['data']}, k={row['k']}: served by {served}"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        """Return eta of everybody, a line for each kind of data."""
        names = ("numpy", *ARITHMETICS)
        lines: list[list[Cell]] = []
        for row in rows:
            etas = (row["errors"].get(name, {}).get("eta") for name in names)
            cells = (None if eta is None else f"{eta:.1e}" for eta in etas)
            lines.append([row["data"], row["k"], *cells, row.get("guard", {}).get("variant")])
        return ("eta of", "k", *names, "served by"), lines


def _errors(c: Array, a: Array, b: Array) -> dict[str, float]:
    x, y = a.astype(np.float64), b.astype(np.float64)
    right = x @ y
    off = np.abs(c - right)
    return {
        "eta": float(np.max(off / (np.abs(x) @ np.abs(y)))),
        "median_relative": float(np.median(off / np.maximum(np.abs(right), np.finfo(float).tiny))),
    }


BENCHMARK = FP32Accuracy()
