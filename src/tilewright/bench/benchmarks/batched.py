"""The public call on arrays of three dimensions beside cuBLAS's strided-batched call in C.

Launches are not held back, and host time counts, as in `tilewright.bench.benchmarks.calls`.  A
batch has as many products as fill the device: operands and result take 256 MB together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.bench.benchmarks.calls import WORKSPACE, interleaved
from tilewright.bench.call_arrays import Arrays, arrays_of, cupy_on
from tilewright.bench.peers import UnavailableError
from tilewright.bench.peers.cublas import Handle, blas_handle, prepared_batch
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.serve.bound import bound
from tilewright.serve.gemm import gemm

__all__ = ["BENCHMARK"]

# Of A, B and C: five times what an H100's last cache holds.
_BYTES = 256e6


class Batched(Benchmark):
    measures = "the public call on three-dimensional arrays of CuPy and PyTorch"
    against = (
        "cuBLAS's gemmStridedBatched in C with prepared arguments, the better of two workspaces"
    )
    takes = "half a minute on an H100"
    options = {"precision": "s,d,c,z,bf16", "size": "16,32,64,128,256,512", "seed": "0"}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        cupy = cupy_on(asked.live)
        peers = [blas_handle(0), blas_handle(WORKSPACE)]
        for name in asked.precision.split(","):
            try:
                arrays = arrays_of(name)
            except UnavailableError as error:
                yield {"precision": name, "error": str(error)}
                continue
            for size in map(int, asked.size.split(",")):
                yield {"precision": name, **_row(asked, cupy, peers, arrays, size)}
                arrays.release()

    def line(self, row: Row) -> str:
        part = f", {100 * row['of_bound']:.0f} % of the bound" if "of_bound" in row else ""
        return (
            f"{row['precision']} {row['batch']} * {row['size'][0]}: {row['us']:.0f} us,"
            f" {row['ratio']:.2f} of cuBLAS{part}"
        )

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        lines: list[list[Cell]] = [
            [
                row["precision"], row["size"][0], row["batch"],
                f"{row['flops'] / row['us'] / 1e6:.2f}", f"{row['ratio']:.2f}",
                f"{100 * row['of_bound']:.0f}" if "of_bound" in row else "-",
                row.get("limit", "-"),
            ]
            for row in rows
        ]  # fmt: skip
        return ("precision", "m=n=k", "batch", "TFLOP/s", "of cuBLAS", "% of bound", "by"), lines


def _row(asked: Asked, cupy: Any, peers: Sequence[Handle], arrays: Arrays, size: int) -> Row:
    of = precision(arrays.letter)
    batch = max(2, int(_BYTES / (3 * size * size * of.element_bytes)))
    rng = np.random.default_rng(asked.seed)
    shape = batch, size, size
    a, b = (arrays.random(rng, (batch * size, size), "C").reshape(shape) for _ in "ab")
    ours, theirs = (arrays.empty((batch * size, size), "C").reshape(shape) for _ in "ab")
    addresses = [arrays.address(x) for x in (a, b, theirs)]
    options: dict[str, Any] = arrays.options
    calls: list[Callable[[], Any]] = [lambda: gemm(a, b, ours, **options)]
    calls += [prepared_batch(one, arrays.letter, (size,) * 3, batch, addresses) for one in peers]
    if any(call() for call in calls[1:]):
        return {"size": list(shape[1:]), "batch": batch, "error": "cuBLAS refuses it"}
    times = interleaved(cupy, calls)
    flops = arrays.flops * batch * size**3
    found = {
        "size": [size] * 3, "batch": batch, "flops": flops, "us": times[0] / 1e3,
        "cublas_us": min(times[1:]) / 1e3, "ratio": min(times[1:]) / times[0],
        "difference": arrays.difference(ours, theirs),
    }  # fmt: skip
    problem = Problem(size, size, size, of, batch=batch)
    most = bound(problem, asked.live, reads_c=False)
    if not most.known:
        return found
    return found | {"of_bound": flops / times[0] * 1e9 / most.limit, "limit": most.limiting.name}


BENCHMARK = Batched()
