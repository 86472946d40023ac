"""Calls repeated until clock and power have settled: what a library leaves of the clock.

Rates of large products depend on the clock, and that on power: on what toggles in units, shared
memory and the L2.  A row has our call's rate, clock and power, and the peer's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.bench.benchmarks.calls import WORKSPACE
from tilewright.bench.call_arrays import arrays_of, cupy_on, operands, public_call
from tilewright.bench.call_cases import Case
from tilewright.bench.peers import UnavailableError
from tilewright.bench.peers.cublas import Handle, blas_handle, prepared
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.microbench.power import sample_power
from tilewright.problem import Trans

__all__ = ["BENCHMARK"]

# Seconds of a load, of which the second half counts, and of calls that are waited for together.
_LOAD, _BATCH = 1.0, 0.02


class Sustained(Benchmark):
    measures = "rate, clock and power of calls that are repeated for a second"
    against = "cuBLAS in C, of FP8 cuBLASLt through PyTorch"
    takes = "two seconds a precision and size on an H100"
    # Row-major A B^T, which all of them take as it lies.
    options = {"precision": "s,d,bf16,tf32,e4m3", "size": "8192"}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        cupy = cupy_on(asked.live)
        peer = blas_handle(WORKSPACE)
        for name in asked.precision.split(","):
            for n in map(int, asked.size.split(",")):
                try:
                    yield {
                        "precision": name,
                        "size": [n] * 3,
                        **_row(asked.live, cupy, peer, name, n),
                    }
                except UnavailableError as error:
                    yield {"precision": name, "error": str(error)}

    def line(self, row: Row) -> str:
        who = (
            f"{row[one]['flops_per_second'] / 1e12:.1f} TFLOP/s at {row[one]['mhz'] or 0:.0f} MHz"
            for one in ("tilewright", "peer")
        )
        return f"{row['precision']} {row['size'][0]}: {', '.join(who)}"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        lines: list[list[Cell]] = []
        for row in rows:
            mine, other = row["tilewright"], row["peer"]
            lines.append([
                row["precision"], row["size"][0],
                *(f"{one['flops_per_second'] / 1e12:.1f}" for one in (mine, other)),
                *(f"{one['mhz']:.0f}" if one["mhz"] else "-" for one in (mine, other)),
                *(f"{one['watts']:.0f}" if one["watts"] else "-" for one in (mine, other)),
                mine["held_by"] or "nothing",
            ])  # fmt: skip
        return (
            "precision", "m=n=k", "TFLOP/s", "the library's", "MHz", "the library's", "W",
            "the library's", "held down by",
        ), lines  # fmt: skip


def _row(live: LiveDevice, cupy: Any, peer: Handle, name: str, n: int) -> Row:
    arrays = arrays_of(name)
    case: Case = ((n, n, n), (Trans.N, Trans.T), "C")
    a, b = operands(arrays, np.random.default_rng(0), case)
    ours = arrays.empty((n, n), "C")
    if arrays.letter:
        theirs = arrays.empty((n, n), "C")
        addresses = [arrays.address(x) for x in (a, b, theirs)]
        other: Callable[[], Any] = prepared(peer, arrays.letter, *case, addresses)
    else:
        other = next(iter(arrays.lt(case, a, b).values()))
    flops = arrays.flops * n**3
    calls = {"tilewright": public_call(arrays, case, a, b, ours), "peer": other}
    found = {who: _load(live, cupy, call, flops) for who, call in calls.items()}
    arrays.release()
    return found


def _load(live: LiveDevice, cupy: Any, call: Callable[[], Any], flops: int) -> dict[str, Any]:
    """Return rate, clock and power of the second half of a load."""
    wait = cupy.cuda.Device().synchronize
    call()
    wait()
    started = time.perf_counter()
    call()
    wait()
    count = max(1, int(_BATCH / (time.perf_counter() - started)))
    with sample_power(live) as samples:
        began = time.perf_counter()
        half = calls = 0.0
        while (now := time.perf_counter() - began) < _LOAD:
            if now > _LOAD / 2 and not half:
                half, calls = now, 0
            for _ in range(count):
                call()
            wait()
            calls += count
        taken = time.perf_counter() - began - half
    settled = samples.since(half)
    clock = settled.clock_hz
    return {
        "flops_per_second": flops * calls / taken,
        "mhz": None if clock is None else clock / 1e6,
        "watts": settled.power_w,
        "held_by": settled.reasons,
    }


BENCHMARK = Sustained()
