"""What a warm call costs the host: ``tw.gemm`` and CuPy's ``matmul`` on the same small arrays."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.bench.peers import UnavailableError
from tilewright.bench.registry import Asked, Cell, Measured, Row
from tilewright.bench.sizes import number, parse_cases
from tilewright.library.gemm import gemm
from tilewright.precision import precision

__all__ = ["BENCHMARK"]

# Fewer launches than a CUDA stream queues (1024): more would wait for the device.
CALLS, BATCHES = 200, 50


class HostCost(Measured):
    """See the module."""

    measures = "microseconds of the host a warm call, the device's work not included"
    against = "CuPy's matmul"
    takes = "ten seconds a precision"
    options = {"precision": "s", "size": "64"}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        """Yield a row for each way to call."""
        if asked.live.backend != "cuda":
            raise UnavailableError(f"CuPy's arrays are not on {asked.live.id}; use cuda:0")
        try:
            import cupy
        except ImportError:
            raise UnavailableError("cupy is not installed; pip install cupy-cuda13x") from None
        size = number(asked.size)
        for letter, *_ in parse_cases(asked.precision, "NN"):
            taken = _alternating(cupy, _calls(cupy, size, letter))
            for name, microseconds in taken.items():
                yield {"precision": letter, "size": size, "call": name, "calls": CALLS * BATCHES,
                       "microseconds": statistics.median(microseconds),
                       "least_microseconds": min(microseconds)}  # fmt: skip

    def line(self, row: Row) -> str:
        """Return the cost of a call."""
        return f"{row['precision']} {row['call']}: {row['microseconds']:.2f} us"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        """Return a line for each row."""
        lines: list[list[Cell]] = [
            [row["precision"], row["call"], f"{row['microseconds']:.2f}",
             f"{row['least_microseconds']:.2f}"]
            for row in rows
        ]  # fmt: skip
        return ("precision", "call", "us, median of batches", "us, least"), lines


def _calls(cupy: Any, size: int, letter: str) -> dict[str, Callable[[], Any]]:
    """Return what is compared: with a result to write to, and with a new one."""
    dtype = precision(letter).dtype
    rng = np.random.default_rng(0)
    a, b, c = (cupy.asarray(rng.standard_normal((size, size)).astype(dtype)) for _ in range(3))
    return {
        "tilewright, c given": lambda: gemm(a, b, c),
        "cupy, out given": lambda: cupy.matmul(a, b, out=c),
        "tilewright, c new": lambda: gemm(a, b),
        "cupy, result new": lambda: cupy.matmul(a, b),
        "tilewright, alpha and beta": lambda: gemm(a, b, c, alpha=0.5, beta=0.5),
    }


def _alternating(cupy: Any, calls: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Return microseconds a call of each batch, batches in turns."""

    def batch(call: Callable[[], Any]) -> float:
        cupy.cuda.Device().synchronize()  # nobody waits for the device while the clock runs
        started = time.perf_counter()
        for _ in range(CALLS):
            call()
        return (time.perf_counter() - started) / CALLS * 1e6

    for call in calls.values():
        batch(call)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(BATCHES):
        for name, call in calls.items():
            times[name].append(batch(call))
    return times


BENCHMARK = HostCost()
