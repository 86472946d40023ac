"""The public call on arrays of a GPU beside cuBLAS called in C, host time and all.

Nothing is held back: a batch of calls is enqueued as fast as the caller can, and its time is what
the host's clock says until the device has ended.  cuBLAS is called with arguments prepared
beforehand, in its default math mode, with its own workspace and with one of 64 MiB; the faster
counts.  Batches are interleaved.  FP8 is compared with cuBLASLt through PyTorch's ``_scaled_mm``,
with sums promoted, as ours are, and with ``use_fast_accum``; the ratio is that of the former.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import geometric_mean, median
from typing import Any

import numpy as np

from tilewright.bench.call_arrays import Arrays, arrays_of, cupy_on, operands, public_call
from tilewright.bench.call_cases import Case, cases_of, kind_of
from tilewright.bench.errors import etas_of
from tilewright.bench.peers import UnavailableError
from tilewright.bench.peers.cublas import Handle, blas_handle, prepared
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.bench.summary import etas_beside, flatness, losses
from tilewright.precision import PRECISIONS, precision

__all__ = [
    "BATCH_NS",
    "BENCHMARK",
    "MOST_CALLS",
    "ROUNDS",
    "WORKSPACE",
    "interleaved",
    "ratio_table",
]

# The fastest caller's batch takes about so long, so that the clock and the last wait count little:
# 2 ms; no more calls than half of what a stream queues, and rounds enough for a median.
BATCH_NS, MOST_CALLS, ROUNDS = 2_000_000, 500, 5

# What cuBLAS's documentation asks for on Hopper is 32 MiB; more was faster in some cases.
WORKSPACE = 64 * 2**20

Call = Callable[[], Any]


class Calls(Benchmark):
    measures = "the public call on CuPy's arrays and PyTorch's, launches not held back"
    against = "cuBLAS in C with prepared arguments, the better of two workspaces"
    takes = "a minute for 100 shapes of a precision on an H100"
    # precision: see `tilewright.bench.call_arrays`; size and trans: `tilewright.bench.call_cases`.
    options = {  # noqa: RUF012
        "precision": "s", "trans": "", "size": "random", "seed": "0", "count": "100",
    }  # fmt: skip

    def rows(self, asked: Asked) -> Iterator[Row]:
        names = asked.precision.split(",")
        cases = {
            name: cases_of(asked.size, name, asked.trans, asked.seed, asked.count) for name in names
        }
        cupy = cupy_on(asked.live)
        peers = [blas_handle(0), blas_handle(WORKSPACE)]
        for name in names:
            rng = np.random.default_rng(asked.seed + 2)
            try:
                arrays = arrays_of(name)
            except UnavailableError as error:
                yield {"precision": name, "error": str(error)}
                continue
            for case in cases[name]:
                about = {"shapes": kind_of(asked.size), "precision": name}
                yield {**about, **_row(cupy, peers, arrays, case, rng)}
            arrays.release()

    def line(self, row: Row) -> str:
        what = f"{row['precision']} {row['trans']} {row['size']}"
        if "ratio" not in row:
            return f"{what}: {row['flops'] / row['us'] / 1e6:.2f} TFLOP/s"
        errors = f", eta {row['eta']:.1e} beside {row['cublas_eta']:.1e}" if "eta" in row else ""
        return f"{what}: {row['ratio']:.2f} of cuBLAS{errors}"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        """Return a line a precision; of cliffs a line a side, of flat ones a line a transpose."""
        kind = rows[0]["shapes"] if rows else ""
        if kind == "cliffs":
            return _cliff_table(rows)
        return _flat_table(rows) if kind == "flat" else ratio_table(rows)


def ratio_table(rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
    """Return how rows with a ratio of times stand, a line a precision."""
    lines: list[list[Cell]] = []
    rows = [row for row in rows if "ratio" in row]
    for name in dict.fromkeys(row["precision"] for row in rows):
        mine = [row for row in rows if row["precision"] == name]
        ratios = sorted(row["ratio"] for row in mine)
        long = [row["ratio"] for row in mine if row["us"] * row["ratio"] > 20]
        pairs = [(row["eta"], row["cublas_eta"]) for row in mine if "eta" in row]
        etas = etas_beside(pairs)
        lines.append([
            name, len(mine), f"{geometric_mean(ratios):.3f}", f"{median(ratios):.2f}",
            f"{geometric_mean(long):.3f}" if long else "-",
            f"{100 * sum(x < 0.9 for x in ratios) / len(ratios):.0f}",
            f"{min(long, default=math.nan):.2f}", f"{ratios[0]:.2f}",
            f"{etas['eta_geometric_mean']:.2f}" if etas else "-",
            f"{100 * etas['eta_larger'] / len(pairs):.0f}" if etas else "-",
            etas.get("eta_twice", "-"), f"{etas['eta_most']:.2f}" if etas else "-",
        ])  # fmt: skip
    return (
        "precision", "shapes", "geometric mean", "median", "mean beyond 20 us", "% below 0.9",
        "least beyond 20 us", "least", "eta: mean of ratios", "% larger", "over twice", "most",
    ), lines  # fmt: skip


def _cliff_table(rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
    """Return what one more than a multiple loses, least and most of the transposes."""
    lines: list[list[Cell]] = []
    for (name, side), lost in losses(rows).items():
        cells = [f"{100 * min(of):.1f} to {100 * max(of):.1f}" for of in zip(*lost, strict=True)]
        more = sum(ours > theirs for ours, theirs in lost)
        lines.append([name, side + 1, *cells, f"{more} of {len(lost)}"])
    return ("precision", "side", "% lost", "% cuBLAS loses", "we lose more"), lines


def _flat_table(rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
    """Return by how much rates vary."""
    lines: list[list[Cell]] = [
        [name, trans, of.sides, f"{of.least / 1e12:.2f}", f"{of.most / 1e12:.2f}",
         f"{100 * of.varies:.1f}", of.least_at]
        for (name, trans), of in flatness(rows).items()
    ]  # fmt: skip
    heads = ("precision", "trans", "sides", "least, TFLOP/s", "most", "varies by, %", "least at")
    return heads, lines


def _row(cupy: Any, peers: Sequence[Handle], arrays: Arrays, case: Case, rng: Any) -> Row:
    (m, n, k), ops, order = case
    a, b = operands(arrays, rng, case)
    ours = arrays.empty((m, n), order)
    calls: list[Call] = [public_call(arrays, case, a, b, ours)]
    found = {
        "trans": "".join(ops), "order": order, "size": [m, n, k], "flops": arrays.flops * m * n * k,
    }  # fmt: skip
    if not arrays.letter:
        lt = arrays.lt(case, a, b)
        times = [ns / 1e3 for ns in interleaved(cupy, [*calls, *lt.values()])]
        found |= {"us": times[0], **dict(zip(lt, times[1:], strict=True))}
        return found | ({"ratio": times[1] / times[0]} if lt else {})
    theirs = arrays.empty((m, n), order)
    addresses = [arrays.address(x) for x in (a, b, theirs)]
    calls += [prepared(one, arrays.letter, *case, addresses) for one in peers]
    if any(call() for call in calls[1:]):  # integers in most transposes
        us = interleaved(cupy, calls[:1])[0] / 1e3
        return found | {"us": us, "missing": {"cublas": f"refuses {arrays.letter} {case[0]}"}}
    times = interleaved(cupy, calls)
    if arrays.letter in PRECISIONS:
        etas = etas_of(a, b, ops, (ours, theirs), precision(arrays.letter))
        found |= {"eta": etas[0], "cublas_eta": etas[1]}
    return found | {
        "us": times[0] / 1e3, "cublas_us": min(times[1:]) / 1e3, "cublas_own_us": times[1] / 1e3,
        "ratio": min(times[1:]) / times[0], "difference": arrays.difference(ours, theirs),
    }  # fmt: skip


def interleaved(cupy: Any, calls: Sequence[Call]) -> list[float]:
    """Return the median nanoseconds a call, batches interleaved."""
    wait = cupy.cuda.Device().synchronize  # whatever library's stream

    def batch(call: Call, count: int) -> float:
        wait()
        started = time.perf_counter_ns()
        for _ in range(count):
            call()
        wait()
        return (time.perf_counter_ns() - started) / count

    for call in calls:  # chosen, loaded, laid out
        batch(call, 1)
    shortest = min(batch(call, 2) for call in calls)
    count = max(1, min(MOST_CALLS, round(BATCH_NS / shortest)))
    rounds = ROUNDS if count > 1 else 3
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, mine in zip(calls, times, strict=True):
            mine.append(batch(call, count))
    return [median(mine) for mine in times]


BENCHMARK = Calls()
