"""What a warm call costs the host: ``tw.gemm`` with ``c`` given, over random kinds of calls.

A few calls in a row are timed on an idle device, whose queue takes them all, so that the host never
waits for it; calls of all kinds come one after the other in an order that is drawn anew for each
round, CuPy's ``matmul`` (of bfloat16 PyTorch's ``mm``) behind each on arrays of its own that lie in
rows without gaps, which is what it takes at once.  A call's cost is the median of its rounds.  How
many launches its plan has is counted in a CUDA graph.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.backend.cuda.device import device_at
from tilewright.backend.cuda.functions import CAPTURE_RELAXED, GRAPH_NODE_KERNEL
from tilewright.bench.call_arrays import Arrays, arrays_of, cupy_on, operands, public_call
from tilewright.bench.call_cases import Case
from tilewright.bench.peers import UnavailableError
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.problem import Trans

__all__ = ["BENCHMARK", "drawn_kinds", "percentile_lines"]

# Of each call, interleaved: enough for a median, a few seconds in all.
_ROUNDS = 21

# In a row: the first of them wakes an idle device, which takes longer than a call (on an H100 each
# of eight took 8.5 us in the median, one alone 17); a queue has room for hundreds of launches.
_IN_A_ROW = 8

# Sides of a call, log-uniform, and its most multiply-adds: milliseconds of the device at most, a
# few gigabytes of arrays, and routes of several launches among them.
_LONGEST, _MOST = 2048, 2**31

# Elements between lines besides the shortest leading dimension; odd ones are not aligned.
_PADS = (0, 0, 0, 1, 8)


@dataclass
class _Timed:
    """A call with its peer's, and what the host spent on both, in nanoseconds."""

    about: dict[str, Any]
    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    ours_ns: list[int] = field(default_factory=list)
    theirs_ns: list[int] = field(default_factory=list)


class HostCost(Benchmark):
    measures = "microseconds of the host a warm call, random shapes, layouts and types"
    against = "CuPy's matmul(out=); PyTorch's mm in bfloat16"
    takes = "half a minute for 500 calls"
    # precision: see `tilewright.bench.call_arrays`; calls are divided among them.
    options = {"precision": "s,d,c,z,fp32,bf16", "seed": "0", "count": "500"}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        """Yield a row for each call, once all have been timed."""
        cupy = cupy_on(asked.live)
        known: dict[str, Arrays] = {}
        for name in asked.precision.split(","):
            try:
                known[name] = arrays_of(name)
            except UnavailableError as error:
                yield {"precision": name, "error": str(error)}
                continue
            if not known[name].letter:
                raise ValueError(f"precision={name!r} has no peer here; leave it out")
        rng = np.random.default_rng(asked.seed)
        kinds = drawn_kinds(asked.seed, asked.count, list(known))
        calls = [_made(cupy, known[name], name, case, pads, rng) for name, case, pads in kinds]
        _time(cupy, calls, rng)
        for one in calls:
            yield one.about | {
                "host_us": float(np.median(one.ours_ns)) / 1e3,
                "most_host_us": max(one.ours_ns) / 1e3,
                "peer_host_us": float(np.median(one.theirs_ns)) / 1e3,
            }

    def line(self, row: Row) -> str:
        return (
            f"{row['precision']} {row['trans']} {row['size']}, {row['launches']} launches:"
            f" {row['host_us']:.2f} us, peer {row['peer_host_us']:.2f}"
        )

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        lines: list[list[Cell]] = [[*line] for line in percentile_lines(rows)]
        heads = ("launches", "calls", "us, median", "99 %", "most", "peer, median", "peer, 99 %")
        return heads, lines


def percentile_lines(rows: Sequence[Row]) -> list[list[str]]:
    """Return launches, calls, and microseconds of both, of rows by their launches."""
    lines = []
    for launches in sorted({row["launches"] for row in rows}):
        mine = [row for row in rows if row["launches"] == launches]
        ours, theirs = ([row[key] for row in mine] for key in ("host_us", "peer_host_us"))
        cells = [np.median(ours), np.percentile(ours, 99), max(ours)]
        cells += [np.median(theirs), np.percentile(theirs, 99)]
        lines.append([str(launches), str(len(mine)), *(f"{one:.1f}" for one in cells)])
    return lines


def drawn_kinds(
    seed: int, count: int, names: Sequence[str]
) -> list[tuple[str, Case, tuple[int, int, int]]]:
    """Return precisions, products, and how much longer than need be the lines of A, B, C are."""
    rng = np.random.default_rng(seed)
    found: list[tuple[str, Case, tuple[int, int, int]]] = []
    while names and len(found) < count:
        name = names[len(found) % len(names)]
        m, n, k = (round(x) for x in np.exp(rng.uniform(0, math.log(_LONGEST), 3)))
        letters = "NTC"[: 3 if name in ("c", "z") else 2]
        op_a, op_b = (Trans(letters[rng.integers(len(letters))]) for _ in "ab")
        order = "FC"[rng.integers(2)]
        pad_a, pad_b, pad_c = (_PADS[rng.integers(len(_PADS))] for _ in "abc")
        if m * n * k <= _MOST:
            found.append((name, ((m, n, k), (op_a, op_b), order), (pad_a, pad_b, pad_c)))
    return found


def _made(
    cupy: Any, arrays: Arrays, name: str, case: Case, pads: tuple[int, int, int], rng: Any
) -> _Timed:
    """Return a call that was made before, as was its peer's."""
    (m, n, k), ops, order = case
    a, b = operands(arrays, rng, case, pads[:2])
    c = arrays.empty((m, n), order, pads[2])
    ours = public_call(arrays, case, a, b, c)
    x, y = arrays.contiguous(a, ops[0]), arrays.contiguous(b, ops[1])
    theirs = arrays.peer(x, y, arrays.empty((m, n), "C"))
    for call in (ours, theirs, ours, theirs):
        call()
    about = {
        "precision": name, "trans": "".join(ops), "order": order, "size": [m, n, k],
        "pads": list(pads), "launches": _launches(cupy, arrays, ours),
    }  # fmt: skip
    return _Timed(about, ours, theirs)


def _launches(cupy: Any, arrays: Arrays, call: Callable[[], Any]) -> int:
    """Return how many kernels a call launches; captured it takes the plan that it has otherwise."""
    live = device_at(cupy.cuda.Device().id)
    api = live.api
    stream = cupy.cuda.Stream(non_blocking=True)
    live.check(api.cuStreamBeginCapture(stream.ptr, CAPTURE_RELAXED), "capturing")
    try:
        with arrays.on_stream(stream):
            call()
    finally:
        graph = live.check(api.cuStreamEndCapture(stream.ptr), "capturing")
    try:
        many = ctypes.c_size_t()
        at = ctypes.byref(many)  # without room for any it says how many there are
        live.check(api.cuGraphGetNodes(graph, None, at), "counting launches")
        nodes = (ctypes.c_void_p * many.value)()
        live.check(api.cuGraphGetNodes(graph, nodes, at), "counting launches")
        kinds = [live.check(api.cuGraphNodeGetType(one), "counting launches") for one in nodes]
    finally:
        live.check(api.cuGraphDestroy(graph), "destroying a graph")
    return sum(one == GRAPH_NODE_KERNEL for one in kinds)


def _time(cupy: Any, calls: Sequence[_Timed], rng: Any) -> None:
    """Time every call once a round."""
    wait, clock = cupy.cuda.Device().synchronize, time.perf_counter_ns

    def spent(call: Callable[[], Any]) -> int:
        wait()
        started = clock()
        for _ in range(_IN_A_ROW):
            call()
        return (clock() - started) // _IN_A_ROW

    for round_of in range(_ROUNDS + 1):
        for at in rng.permutation(len(calls)):
            one = calls[at]
            ours, theirs = spent(one.ours), spent(one.theirs)
            if round_of:  # the first one finds caches of the host as other work left them
                one.ours_ns.append(ours)
                one.theirs_ns.append(theirs)
    wait()


BENCHMARK = HostCost()
