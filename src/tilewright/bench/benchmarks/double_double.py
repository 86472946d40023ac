"""Double-double products by residues beside the kernels that these replace: times and errors."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import numpy as np

from tilewright.bench.call_arrays import cupy_on
from tilewright.bench.peers import UnavailableError
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.bench.sizes import number
from tilewright.double_double import error_of_product
from tilewright.precision import precision
from tilewright.serve.decision import Decision
from tilewright.serve.double_double import DoubleDouble
from tilewright.serve.gemm import gemm
from tilewright.serve.tensor_cores import has_wgmma
from tilewright.serve.unproved import serve_unproved

__all__ = ["BENCHMARK", "WAYS"]

# Residues are not for so little memory: the kernel serves.
WAYS: dict[str, dict[str, Any]] = {
    "residues": {"accuracy": "accurate"}, "kernel": {"accuracy": "accurate", "max_workspace": 1},
    "fast": {"accuracy": "fast"},
}  # fmt: skip

# (U - 1/2) exp(phi N), U uniform, N standard normal; "positive" is U.
_DATA = ("phi 0.5", "phi 0", "phi 1", "phi 2", "phi 4", "positive")

# Rows and columns whose errors are known exactly; the device's memory and time for more are few.
_EXACT = 40
_ERRORS_UP_TO = 4096

# Calls whose median counts, unless one takes a second.
_CALLS, _LONG = 5, 1.0


class DoubleDoubleCalls(Benchmark):
    measures = "double-double calls by residues, their errors, their bound, and how many moduli"
    against = "the accurate and the fast kernel"
    takes = "five minutes, most of it in kernels at 8192"
    options = {"precision": "e,w", "size": "512,1024,2048,4096,8192", "seed": "0"}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        """Yield a row for each precision, size and kind of data; times with the first of these."""
        if not has_wgmma(asked.live):
            raise UnavailableError(
                f"residues have no tensor cores on {asked.live.id}; use a CUDA device with Hopper's"
            )
        is_cuda = asked.live.backend == "cuda"
        library: Any = cupy_on(asked.live) if is_cuda else np
        draw = library.random.default_rng(asked.seed)
        where = {} if is_cuda else {"device": asked.live}
        for letter in asked.precision.split(","):
            for side in map(number, asked.size.split(",")):
                for data in _DATA[: len(_DATA) if side <= _ERRORS_UP_TO else 1]:
                    a, b = (_drawn(library, draw, data, side, letter == "w") for _ in "ab")
                    timed = data == _DATA[0]
                    yield {
                        "precision": letter, "side": side, "data": data,
                        **_measured(a, b, where, is_cuda, timed),
                    }  # fmt: skip

    def line(self, row: Row) -> str:
        what = f"{row['precision']} {row['data']}, {row['side']}"
        served = f"{row['guard']['moduli']} moduli" if row["guard"]["moduli"] else "the kernel"
        rates = ", ".join(f"{who} {x / 1e12:.2f} TFLOP/s" for who, x in _rates(row).items())
        return f"{what}: served by {served}; {rates}" if rates else f"{what}: served by {served}"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        """Return eta and rates of each way, a line for each row."""
        lines: list[list[Cell]] = []
        for row in rows:
            rates = _rates(row)
            etas = (f"{row['eta'][who]:.1e}" for who in WAYS)
            cells = (f"{rates[who] / 1e12:.2f}" if who in rates else None for who in WAYS)
            lines.append(
                [row["precision"], row["side"], row["data"], row["guard"]["moduli"], *etas, *cells]
            )
        heads = (f"eta, {who}" for who in WAYS), (f"TFLOP/s, {who}" for who in WAYS)
        return ("precision", "m, n, k", "data", "moduli", *heads[0], *heads[1]), lines


def _rates(row: Row) -> dict[str, float]:
    """Return operations a second of each way that was timed."""
    flops = precision(row["precision"]).flops * row["side"] ** 3
    return {who: flops / seconds for who, seconds in row.get("seconds", {}).items()}


def _drawn(library: Any, draw: Any, data: str, side: int, is_complex: bool) -> DoubleDouble:
    """Return a square matrix with filled low words."""
    words = library.empty((side, side, 1 + is_complex, 2))
    for part in range(1 + is_complex):
        high = draw.random((side, side))
        if data != "positive":
            high -= 0.5
            high *= library.exp(float(data.split()[1]) * draw.standard_normal((side, side)))
        words[..., part, 0] = high
        words[..., part, 1] = high * (draw.random((side, side)) - 0.5) * 2.0**-53
    return DoubleDouble.of_words(words if is_complex else words[..., 0, :], is_complex)


def _measured(
    a: DoubleDouble, b: DoubleDouble, where: dict[str, Any], is_cuda: bool, timed: bool
) -> dict[str, Any]:
    """Return errors of all ways and what the guard decided, and times if they are wanted."""
    told = Decision()
    c = gemm(a, b, **where)
    etas, seconds = {}, {}
    with serve_unproved():
        for who, options in WAYS.items():
            report = told if who == "residues" else None

            def call(options: Any = options, report: Any = report) -> None:
                gemm(a, b, c, **options, report=report, **where)

            call()
            etas[who] = _eta(a, b, c)
            if timed:
                seconds[who] = _seconds(call, is_cuda)
    found: dict[str, Any] = {"eta": etas, "guard": {"moduli": 0, **told.as_dict()}}
    return found | ({"seconds": seconds} if timed else {})


def _eta(a: DoubleDouble, b: DoubleDouble, c: DoubleDouble) -> float:
    """Return the largest error over |A| |B|, of rows and columns across the product."""
    m, n = c.shape
    rows, columns = slice(0, m, max(1, m // _EXACT)), slice(0, n, max(1, n // _EXACT))
    parts = a.words[rows], b.words[:, columns], c.words[rows, columns]
    error, size = error_of_product(*(_structured(x, a.is_complex) for x in (parts[2], *parts[:2])))
    return float((error / size).max())


def _structured(words: Any, is_complex: bool) -> Any:
    """Return words as NumPy's structured array."""
    there = DoubleDouble.of_words(words, is_complex).copy().on_host()
    return there.words.reshape(*there.shape, -1).view(there.dtype)[..., 0]


def _seconds(call: Any, is_cuda: bool) -> float:
    """Return the median seconds of some calls, each waited for."""
    times: list[float] = []
    while len(times) < (1 if times and times[0] > _LONG else _CALLS):
        started = time.perf_counter()
        call()
        if is_cuda:
            import cupy

            cupy.cuda.Device().synchronize()
        times.append(time.perf_counter() - started)
    return median(times)


BENCHMARK = DoubleDoubleCalls()
