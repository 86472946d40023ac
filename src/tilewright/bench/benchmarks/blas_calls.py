"""BLAS's calls with NumPy's matrices, computed on the device, beside the host's BLAS on all cores.

Ours are calls of the library that ``tilewright run`` preloads, every one of them served there; the
peer is ``numpy.matmul``.  Memory is pageable on both sides; batches of calls are taken in turns,
and the median call counts.  The first of ours after the host's is counted apart: threads of
OpenBLAS are still busy then.  From these rows come the rates by which the library decides whom it
serves (``tilewright_blas.c``).
"""

from __future__ import annotations

import ctypes
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.bench.host_matrices import ms as _ms
from tilewright.bench.peers import UnavailableError
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.bench.sizes import parse_sizes
from tilewright.export.compiling import CompilerError
from tilewright.precision import precision

__all__ = ["BENCHMARK", "cblas_call", "served_library"]

_ROW_MAJOR, _AS_IT_IS = 101, 111  # of cblas.h

# Batches of each, their milliseconds, and the seconds before ours: threads of OpenBLAS wait
# actively for work for 2^27 cycles, and take the cores from what copies.
_ROUNDS, _BATCH_MS, _REST = 3, 30, 0.1


class BlasCalls(Benchmark):
    measures = "BLAS's calls with matrices in the host's memory, computed on the device"
    against = "numpy.matmul on all cores"
    takes = "a minute on 16 cores"
    options = {  # noqa: RUF012
        "precision": "s,d,c,z",
        "size": "256:4096:*1.4142,2048x2048x64,4096x4096x128,4096x64x4096,8192x512x8192",
    }  # fmt: skip
    needs = "cuda"

    def rows(self, asked: Asked) -> Iterator[Row]:
        library = served_library(asked.live.id)
        for letter in asked.precision.split(","):
            for size in parse_sizes(asked.size):
                yield _row(library, letter, size)

    def line(self, row: Row) -> str:
        size = "x".join(map(str, row["size"]))
        return (
            f"{row['precision']} {size}: {row['ms']:.3f} ms, host {row['host_ms']:.3f},"
            f" {row['ratio']:.2f}"
        )

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        names = ("precision", "size", "cores", "ms", "after_host_ms", "host_ms", "ratio")
        return names, [
            ["x".join(map(str, row[name])) if name == "size" else row[name] for name in names]
            for row in rows
        ]


def served_library(device: str) -> ctypes.CDLL:
    """Return the preloaded library, which computes all that it is given on the device."""
    from tilewright.export.preload import preloaded_library

    os.environ["TILEWRIGHT_BLAS_LEAST"] = "0"
    try:
        return ctypes.CDLL(str(preloaded_library(device)))
    except CompilerError as error:
        raise UnavailableError(str(error)) from None


def _row(library: ctypes.CDLL, letter: str, size: tuple[int, int, int]) -> Row:
    (m, n, k), of = size, precision(letter)
    rng = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> Any:
        x = rng.uniform(-1, 1, (rows, columns, of.words)).astype(of.real_name)
        return x.view(of.dtype)[..., 0]

    a, b = matrix(m, k), matrix(k, n)
    ours, theirs = np.empty((m, n), of.dtype), np.empty((m, n), of.dtype)
    mine = cblas_call(library, letter, a, b, ours)
    ms, after_host_ms, host_ms = _timed(mine, lambda: np.matmul(a, b, out=theirs))
    return {
        "precision": letter, "size": [m, n, k], "cores": len(os.sched_getaffinity(0)),
        "ms": round(ms, 4), "after_host_ms": round(after_host_ms, 4),
        "host_ms": round(host_ms, 4), "ratio": round(host_ms / ms, 3),
        "difference": float(np.abs(ours - theirs).max() / np.abs(theirs).max()),
    }  # fmt: skip


def cblas_call(library: ctypes.CDLL, letter: str, a: Any, b: Any, c: Any) -> Callable[[], Any]:
    """Return a call of CBLAS's name for C <- A B."""
    real = {"s": ctypes.c_float, "d": ctypes.c_double}.get(letter)
    values = [np.array([x], a.dtype) for x in (1, 0)]
    alpha, beta = (
        ctypes.c_void_p(x.ctypes.data) if real is None else real(x[0].item()) for x in values
    )
    address_a, address_b, address_c = (ctypes.c_void_p(x.ctypes.data) for x in (a, b, c))
    (m, k), n = a.shape, b.shape[1]
    function = library[f"cblas_{letter}gemm"]

    def call(held: Any = (values, a, b, c)) -> None:
        function(
            _ROW_MAJOR, _AS_IT_IS, _AS_IT_IS, m, n, k, alpha, address_a, k, address_b, n, beta,
            address_c, n,
        )  # fmt: skip

    return call


def _timed(ours: Callable[[], Any], theirs: Callable[[], Any]) -> tuple[float, float, float]:
    """Return median milliseconds: of ours, of ours right after theirs, of theirs."""
    mine, after, others = list[float](), list[float](), list[float]()
    for call in (ours, theirs):
        call()  # loads, and makes, what later ones find
    for _ in range(_ROUNDS):
        others += _batch(theirs)
        after.append(_ms(ours))
        time.sleep(_REST)
        mine += _batch(ours)
    return statistics.median(mine), statistics.median(after), statistics.median(others)


def _batch(call: Callable[[], Any]) -> list[float]:
    """Return the milliseconds of calls, one at least."""
    times = [_ms(call)]
    while sum(times) < _BATCH_MS:
        times.append(_ms(call))
    return times


BENCHMARK = BlasCalls()
