"""What ``accuracy="fp32"`` promises of errors, on thousands of drawn and adversarial products.

Two kinds of products.  *Guarded*: small ones, sent to the tensor cores whatever time they take, so
that nothing but the guard stands between them and IEEE arithmetic.  *As served*: of sizes that are
served so by default, where a device has tensor cores that are proved.

Errors are against double precision, which is exact enough: k 2^-53 against 2^-24.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.bench.benchmarks.calls import WORKSPACE
from tilewright.bench.call_arrays import Arrays, cupy_on
from tilewright.bench.fp32_data import DRAWN, NOT_FINITE
from tilewright.bench.peers.cublas import Handle, blas_handle, prepared
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.problem import Trans
from tilewright.serve.decision import Decision
from tilewright.serve.gemm import gemm
from tilewright.serve.routes.split.product import is_proved
from tilewright.serve.routes.split.promise import FLOOR, error_bound
from tilewright.serve.unproved import serve_unproved
from tilewright.stencil.split import SCHEMES

__all__ = ["BENCHMARK"]

# Guarded ones: few layouts, each of them many times, so that most calls are warm.
_SIDES = ((32, 32), (40, 48), (64, 64), (96, 33))
_LENGTHS = (64, 96, 128, 131, 256, 515, 1024, 2048, 4096)
# Long sums are drawn a few times: most of their time is the drawing.
_LONG, _LONG_SIDE = (2**14, 2**16, 2**18), 32
_LONG_DATA = ("normal", "positive", "exponential", "A times its transpose")

# As served: results of so few tiles that SGEMM divides k, and of more.
_SERVED = (
    (1024, 1024, 1024), (1024, 1024, 4096), (1024, 1024, 8192), (1024, 512, 16384),
    (1536, 1536, 4096), (2048, 2048, 4096),
)  # fmt: skip
_SERVED_DATA = (
    "normal", "positive", "exponential", "rows of one sign", "rows of one number",
    "A times its transpose", "phi 1", "a term above all, last",
)  # fmt: skip

# Single precision's smallest number.
_LEAST = 2.0**-149

# Besides the floor that is promised: how many would not keep to a lower one.
_LOWER = tuple(2.0**-bits for bits in (20, 21, 22, 23))


@dataclass
class _Judge:
    """Arrays and products of a device, and the SGEMM that ours is compared with."""

    live: LiveDevice
    arrays: Arrays | None = None
    handle: Handle | None = None

    @classmethod
    def on(cls, live: LiveDevice) -> _Judge:
        """Return cuBLAS's on a CUDA device, elsewhere the device's own in IEEE arithmetic."""
        if live.backend != "cuda":
            return cls(live)
        cupy_on(live)
        return cls(live, Arrays("s"), blas_handle(WORKSPACE))

    @property
    def library(self) -> Any:
        """CuPy, or NumPy."""
        return np if self.arrays is None else self.arrays.library

    def sgemm(self, a: Any, b: Any) -> Any:
        """Return the peer's product."""
        if self.arrays is None or self.handle is None:
            return gemm(a, b, device=self.live)
        (m, k), n = a.shape, b.shape[1]
        c = self.library.empty((m, n), np.float32)
        places = [self.arrays.address(x) for x in (a, b, c)]
        call = prepared(self.handle, "s", (m, n, k), (Trans.N, Trans.N), "C", places)
        if call():
            raise RuntimeError(f"cublas refused {m} x {n} x {k}")
        return c

    def fp32(self, a: Any, b: Any, told: Decision) -> Any:
        """Return our product; arrays of the host's memory go to this device."""
        where = self.live if self.library is np else None
        return gemm(a, b, accuracy="fp32", report=told, device=where)

    def etas(self, a: Any, b: Any, products: Sequence[Any]) -> list[float]:
        """Return max |C' - AB| / (|A| |B|) of products; where |A| |B| is 0, C has to be.

        Without what rounding products and the result to subnormal numbers loses.
        """
        of = self.library
        x, y = a.astype(np.float64), b.astype(np.float64)
        right, size = x @ y, abs(x) @ abs(y)
        size, lost = of.where(size > 0, size, 1.0), (a.shape[1] + 1) * _LEAST
        return [float(((abs(c - right) - lost).clip(0) / size).max()) for c in products]


@dataclass
class _Tally:
    """What cases of one kind of data came to."""

    data: str
    served: bool = False
    cases: int = 0
    violations: int = 0
    beyond_bound: int = 0
    above: Counter[str] = field(default_factory=Counter)
    routes: Counter[str] = field(default_factory=Counter)
    worst: dict[str, Any] = field(default_factory=dict)
    share: float = 0.0

    def add(self, judge: _Judge, a: Any, b: Any, case: dict[str, Any]) -> None:
        """Multiply, and judge what was not left to IEEE arithmetic."""
        told = Decision()
        with nullcontext() if self.served else serve_unproved():
            c = judge.fp32(a, b, told)
        self.cases += 1
        self.routes[told.variant] += 1
        if self.data == NOT_FINITE:
            self.violations += told.variant != "ieee"
            return
        if told.variant == "ieee":
            return
        ours, theirs = judge.etas(a, b, (c, judge.sgemm(a, b)))
        self.violations += not ours <= max(theirs, FLOOR)  # NaN is one
        m, n, k = case["m"], case["n"], case["k"]
        bound = error_bound(SCHEMES[told.variant], m, n, k, judge.live.spec)
        self.beyond_bound += not ours <= bound
        for floor in _LOWER:
            self.above[f"2^{math.log2(floor):.0f}"] += not ours <= max(theirs, floor)
        share = ours / max(theirs, FLOOR)
        if share >= self.share:
            self.share = share
            self.worst = {**case, "eta": ours, "peer_eta": theirs, "route": told.variant}

    def row(self) -> dict[str, Any]:
        return {
            "data": self.data, "as_served": self.served, "cases": self.cases,
            "violations": self.violations, "beyond_bound": self.beyond_bound,
            "routes": dict(self.routes), "above_a_lower_floor": dict(self.above),
            "worst": self.worst, "worst_share": self.share,
        }  # fmt: skip


class FP32Promise(Benchmark):
    measures = 'whether accuracy="fp32" keeps its promise of errors, and what its guard decides'
    against = "cuBLAS SGEMM; elsewhere the device's own"
    takes = "a minute or two on an H100; without tensor cores give a --count of some hundred"
    options = {"count": "12000", "seed": "0"}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        judge = _Judge.on(asked.live)
        each = -(-asked.count // len(DRAWN))
        for number, data in enumerate(DRAWN):
            tally = _Tally(data)
            for case in range(each):
                m, n = _SIDES[case % len(_SIDES)]
                k = _LENGTHS[case // len(_SIDES) % len(_LENGTHS)]
                _judge(judge, tally, (m, n, k), (asked.seed, number, case))
            yield tally.row()
        if each >= len(_LENGTHS) * len(_SIDES):  # where it is in earnest
            sides = [(_LONG_SIDE, _LONG_SIDE, k) for k in _LONG]
            yield from _some(judge, _LONG_DATA, sides, asked.seed, served=False)
        if is_proved(asked.live, SCHEMES["fp16x3"]):
            yield from _some(judge, _SERVED_DATA, _SERVED, asked.seed, served=True)

    def line(self, row: Row) -> str:
        kept = row["cases"] - row["violations"]
        return f"{_name(row)}: {kept} of {row['cases']} kept, {_routes(row)}"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        """Return a line for each kind of data, and one of all."""
        floors = [f"2^{math.log2(floor):.0f}" for floor in _LOWER]
        lines: list[list[Cell]] = []
        for row in rows:
            worst = row["worst"]
            at = f"{worst['m']} x {worst['n']} x {worst['k']}" if worst else None
            etas = [f"{worst[x]:.1e}" if worst else None for x in ("eta", "peer_eta")]
            above = [row["above_a_lower_floor"].get(floor, 0) for floor in floors]
            lines.append([
                _name(row), row["cases"], _routes(row), row["violations"], row["beyond_bound"],
                *above, *etas, at,
            ])  # fmt: skip
        counted = (1, *range(3, 5 + len(floors)))
        sums = [sum(int(line[i] or 0) for line in lines) for i in counted]
        lines.append(["all", sums[0], None, *sums[1:], None, None, None])
        return (
            "data", "cases", "served by", "violations", "beyond the bound",
            *(f"above {floor}" for floor in floors), "worst eta", "SGEMM's", "at",
        ), lines  # fmt: skip


def _some(
    judge: _Judge, names: Sequence[str], sizes: Sequence[tuple[int, int, int]], seed: int, *,
    served: bool,
) -> Iterator[Row]:  # fmt: skip
    for number, data in enumerate(names):
        tally = _Tally(data, served)
        for case, size in enumerate(sizes):
            _judge(judge, tally, size, (seed, 1000 + number, case))
        yield tally.row()


def _judge(judge: _Judge, tally: _Tally, size: tuple[int, int, int], seed: tuple[int, ...]) -> None:
    """Draw one case, by its seed, and add it."""
    m, n, k = size
    rng = np.random.default_rng(seed)
    pair = DRAWN[tally.data](rng, m, n, k)
    a, b = (judge.library.asarray(np.ascontiguousarray(x, np.float32)) for x in pair)
    tally.add(judge, a, b, {"m": m, "n": n, "k": k, "seed": list(seed)})


def _name(row: Row) -> str:
    return f"{row['data']}{', as served' if row['as_served'] else ''}"


def _routes(row: Row) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(row["routes"].items()))


BENCHMARK = FP32Promise()
