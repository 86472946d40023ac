"""Products of matrices in pageable memory that take most of a device's memory, or more.

In single precision the device is left 4 GiB of its memory; in double precision C is a mapped
file, on tmpfs where there is one.  Beside each call, in the same run, is the kernel alone on
matrices that are on the device.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.bench import host_matrices as host
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.bench.sizes import parse_sizes
from tilewright.precision import precision
from tilewright.serve.gemm import gemm

__all__ = ["BENCHMARK"]

# Where Linux has files in memory, and what single precision's calls may take of the device's.
_TMPFS, _LIMIT = Path("/dev/shm"), 4 << 30  # noqa: S108  # a folder in it is made


class LargeMatrices(Benchmark):
    measures = "products beyond a device's memory, or into a memory-mapped file"
    against = "the kernel alone"
    takes = "minutes, and 58 GB of memory for double precision at 49152"
    options = {"precision": "s", "size": "40000"}  # noqa: RUF012
    needs = "cuda"

    def rows(self, asked: Asked) -> Iterator[Row]:
        for name in asked.precision.split(","):
            for n, _, _ in parse_sizes(asked.size):
                yield _row(asked.live, name, n)

    def line(self, row: Row) -> str:
        return (
            f"{row['precision']} {row['size']} {row['how']}: {row['ms']:.0f} ms,"
            f" {row['of_kernel']:.2f} of the kernel's rate"
        )

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        names = ("precision", "size", "how", "ms", "kernel_ms", "of_kernel", "eta")
        heads = ("precision", "n", "how", "ms", "T_kernel", "T_kernel / total", "eta")
        return heads, [[row[name] for name in names] for row in rows]


def _row(live: Any, name: str, n: int) -> Row:
    letter, accuracy = host.arithmetic_of(name)
    dtype = precision(letter).dtype
    a, b = (np.empty((n, n), dtype) for _ in "ab")
    for seed, x in enumerate((a, b)):
        host.fill(x, seed)
    mapped = dtype.itemsize == 8
    limit = None if mapped else _LIMIT
    in_memory = _TMPFS.is_dir() and shutil.disk_usage(_TMPFS).free > n * n * dtype.itemsize
    with tempfile.TemporaryDirectory(dir=_TMPFS if in_memory else None) as folder:
        c: Any = np.empty((n, n), dtype)
        if mapped:
            c = np.asarray(np.memmap(Path(folder, "c"), dtype, "w+", shape=(n, n)))
        kernel = host.kernel_ms(live, (a, b, c), letter, accuracy, n, turns=1)
        small = gemm(a[:4096, :4096], b[:4096, :4096], accuracy=accuracy, device=live)  # loads
        assert small.shape == (4096, 4096)
        total = host.ms(
            lambda: gemm(a, b, c, accuracy=accuracy, device=live, max_device_memory=limit)
        )
        error = host.error(a, b, c)
    return {
        "precision": name, "size": n, "how": "into a mapped file" if mapped else "through 4 GiB",
        "ms": round(total, 1), "kernel_ms": round(kernel, 1), "of_kernel": round(kernel / total, 3),
        "eta": error,
    }  # fmt: skip


BENCHMARK = LargeMatrices()
