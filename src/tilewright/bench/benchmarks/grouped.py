"""The public call on groups of products beside cuBLAS's grouped call and PyTorch's.

Launches are not held back, and host time counts, as in `tilewright.bench.benchmarks.calls`.
cuBLAS's `cublasGemmGroupedBatchedEx` is called in C with prepared arguments and addresses that are
on the device already; PyTorch's `_grouped_mm`, which takes products of one B each of equal sizes,
where a group is of such.  Replays of graphs that captured either call, ours and cuBLAS's, have no
host's part.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.bench.benchmarks.calls import WORKSPACE, interleaved
from tilewright.bench.call_arrays import Arrays, arrays_of, cupy_on
from tilewright.bench.peers import UnavailableError
from tilewright.bench.peers.cublas import Handle, blas_handle, grouped_kinds
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.serve.gemm import gemm
from tilewright.serve.grouped.serve import grouped_gemm

__all__ = ["BENCHMARK"]

Sizes = list[tuple[int, int, int]]


def groups(seed: int) -> dict[str, Sizes]:
    """Return m, n and k of the products of each group: experts' tokens, and sides drawn.

    All but the last are multiples of 8.
    """
    rng = np.random.default_rng(seed)
    tokens = [int(x) for x in np.clip(rng.lognormal(4.5, 1.2, 64), 1, 4096)]
    found: dict[str, Sizes] = {"64 experts, 2048 x 1536": [(m, 1536, 2048) for m in tokens]}
    for count, least, most in ((256, 16, 128), (64, 64, 512), (16, 512, 2048)):
        drawn = 2.0 ** rng.uniform(np.log2(least), np.log2(most), (count, 3))
        sides = (np.rint(drawn / 8) * 8).astype(int).tolist()
        found[f"{count} of {least} to {most}"] = [(m, n, k) for m, n, k in sides]
    found["64 odd of 64 to 512"] = [(m | 1, n | 1, k | 1) for m, n, k in found["64 of 64 to 512"]]
    return found


class Grouped(Benchmark):
    measures = "grouped_gemm on CuPy's arrays and PyTorch's"
    against = "cuBLAS's grouped call in C, a call of gemm a product, and PyTorch's grouped product"
    takes = "half a minute on an H100"
    options = {"precision": "s,d,bf16,fp16", "seed": "0"}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        cupy = cupy_on(asked.live)
        stream = cupy.cuda.Stream(non_blocking=True)
        handles = blas_handle(WORKSPACE), blas_handle(WORKSPACE, stream.ptr)
        for name in asked.precision.split(","):
            try:
                arrays = arrays_of(name)
            except UnavailableError as error:
                yield {"precision": name, "error": str(error)}
                continue
            for group, sizes in groups(asked.seed).items():
                yield {
                    "precision": name,
                    "group": group,
                    **_row(asked.seed, cupy, (handles, stream), arrays, sizes),
                }
                arrays.release()

    def line(self, row: Row) -> str:
        beside = ", ".join(
            f"{row[name] / row['us']:.2f} of {words}"
            for name, words in _PEERS.items()
            if name in row
        )
        return f"{row['precision']}, {row['group']}: {row['us']:.0f} us, {beside}"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        lines: list[list[Cell]] = [
            [
                row["precision"], row["group"], f"{row['flops'] / row['us'] / 1e6:.1f}",
                *(_ratio(row, name, "us") for name in _PEERS),
                *(f"{row[name]:.0f}" if name in row else "-" for name in ("us", "new_us")),
                f"{row['graph_us']:.0f}", _ratio(row, "cublas_graph_us", "graph_us"),
            ]
            for row in rows
        ]  # fmt: skip
        named = (
            *(f"of {x}" for x in _PEERS.values()), "us", "us, new results", "us in a graph",
            "of cuBLAS in a graph",
        )  # fmt: skip
        return ("precision", "group", "TFLOP/s", *named), lines


_PEERS = {"cublas_us": "cuBLAS", "torch_us": "PyTorch", "gemm_us": "gemm"}

# cuBLAS's handle for calls, and for those that a stream captures; that stream.
_Peer = tuple[tuple[Handle, Handle], Any]


def _ratio(row: Row, theirs: str, ours: str) -> str:
    return f"{row[theirs] / row[ours]:.2f}" if theirs in row else "-"


def _row(seed: int, cupy: Any, peer: _Peer, arrays: Arrays, sizes: Sizes) -> Row:
    rng = np.random.default_rng(seed)
    (handle, capturing), stream = peer
    a = [arrays.random(rng, (m, k), "C") for m, _, k in sizes]
    b = [arrays.random(rng, (k, n), "C") for _, n, k in sizes]
    ours, theirs = ([arrays.empty((m, n), "C") for m, n, _ in sizes] for _ in range(2))

    def each() -> None:
        for x, y, z in zip(a, b, ours, strict=True):
            gemm(x, y, z)

    def call() -> None:
        grouped_gemm(a, b, ours)

    def new() -> None:
        grouped_gemm(a, b)

    calls: dict[str, Callable[[], Any]] = {"us": call}
    lists = a, b, theirs
    theirs_call = _cublas(cupy, handle, arrays, sizes, lists)
    if theirs_call is not None and theirs_call() == 0:
        calls["cublas_us"] = theirs_call
    torch_call = _torch(arrays, a, b, sizes)
    if torch_call is not None:
        calls["torch_us"] = torch_call
    found = _times(cupy, calls)
    # Apart from the others, whose batches would be as few calls as these take long.
    found |= _times(cupy, {"gemm_us": each}) | _times(cupy, {"new_us": new})
    captured: dict[str, Callable[[], Any]] = {"graph_us": call}
    theirs_call = _cublas(cupy, capturing, arrays, sizes, lists)
    if "cublas_us" in calls and theirs_call is not None:
        captured["cublas_graph_us"] = theirs_call
    replays = {name: _captured(arrays, stream, one) for name, one in captured.items()}
    for x in (*ours, *theirs):  # what is compared is what replays have computed
        x[...] = 0
    found |= _times(cupy, {name: one for name, one in replays.items() if one is not None})
    flops = arrays.flops * sum(m * n * k for m, n, k in sizes)
    worst = 0.0
    if "cublas_graph_us" in found:
        worst = max(arrays.difference(x, y) for x, y in zip(ours, theirs, strict=True))
    return {"products": len(sizes), "flops": flops, "difference": worst, **found}


def _times(cupy: Any, calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return microseconds of calls, which take turns."""
    times = interleaved(cupy, list(calls.values()))
    return {name: ns / 1e3 for name, ns in zip(calls, times, strict=True)}


def _captured(arrays: Arrays, stream: Any, call: Callable[[], Any]) -> Callable[[], Any] | None:
    """Return what replays the graph of a call on CuPy's stream; None where its status is not 0."""
    with arrays.on_stream(stream):
        if call():  # else chosen, loaded, laid out
            return None
        stream.synchronize()
        stream.begin_capture()
        status = call()
        graph = stream.end_capture()
    return None if status else lambda: graph.launch(stream)


def _cublas(
    cupy: Any, handle: Handle, arrays: Arrays, sizes: Sizes, lists: tuple[list[Any], ...]
) -> Callable[[], int] | None:
    """Return cuBLAS's grouped call, a group a product; None where it has none."""
    kinds = grouped_kinds(arrays.letter)
    if kinds is None or not hasattr(handle.api, "cublasGemmGroupedBatchedEx"):
        return None
    data, sums, scalar = kinds
    count = len(sizes)
    a, b, c = ([arrays.address(x) for x in some] for some in lists)
    ints = ctypes.c_int * count
    none = ints(*[0] * count)
    m, n, k = (ints(*(one[at] for one in sizes)) for at in range(3))
    one, zero = np.full(count, 1, scalar), np.zeros(count, scalar)
    on_device = [cupy.asarray(np.array(x, np.uint64)) for x in (b, a, c)]  # C^T = B^T A^T
    at = [ctypes.c_void_p(x.data.ptr) for x in on_device]
    kind = ctypes.c_int(data)
    held = (ints(*[1] * count), one, zero, on_device)

    def call() -> int:
        return int(
            handle.api.cublasGemmGroupedBatchedEx(
                handle.handle, none, none, n, m, k, ctypes.c_void_p(one.ctypes.data), at[0], kind,
                n, at[1], kind, k, ctypes.c_void_p(zero.ctypes.data), at[2], kind, n, count,
                held[0], ctypes.c_int(sums),
            )
        )  # fmt: skip

    return call


def _torch(arrays: Arrays, a: list[Any], b: list[Any], sizes: Sizes) -> Callable[[], Any] | None:
    """Return PyTorch's grouped product of rows of one matrix; None where that is another thing."""
    torch = arrays.library
    multiply = getattr(torch, "_grouped_mm", None)
    if multiply is None or len({one[1:] for one in sizes}) > 1 or arrays.letter != "bf16":
        return None
    rows, weights = torch.cat(a), torch.stack(b)
    ends = torch.tensor([m for m, _, _ in sizes], device=rows.device).cumsum(0).to(torch.int32)
    return lambda: multiply(rows, weights, offs=ends)


BENCHMARK = Grouped()
