"""Products of matrices in the host's memory beside what they cannot be faster than.

Beside each call, in the same run: the kernel alone on matrices that are on the device (T_kernel);
the link, A and B copied there while C is copied back, in pinned memory (T_comm, the longer of both
directions at once), and its rate in each direction alone and of both together; the sum of T_kernel
and T_comm, as Nakasato (2010) has it in equations 3 to 5; and their maximum, which is what
overlapping leaves.  cuBLASXt is the peer, in the better of two block sizes, with pages pinned by it
where they are pageable.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from tilewright.bench import host_matrices as host
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.bench.sizes import parse_sizes
from tilewright.precision import precision
from tilewright.serve.gemm import gemm

__all__ = ["BENCHMARK"]

MEMORY = ("pinned", "pageable")


class Transfers(Benchmark):
    measures = "products of matrices in the host's memory, beside link and kernel"
    against = "cuBLASXt"
    takes = "a minute for 8192 and 16384"
    options = {"precision": "s,d,fp32", "size": "8192,16384"}  # noqa: RUF012
    needs = "cuda"

    def rows(self, asked: Asked) -> Iterator[Row]:
        for name in asked.precision.split(","):
            for n, _, _ in parse_sizes(asked.size):
                with ExitStack() as stack:
                    yield from _rows(asked.live, stack, name, n)

    def line(self, row: Row) -> str:
        return (
            f"{row['precision']} {row['size']} {row['memory']}: {row['ms']:.1f} ms,"
            f" {row['of_longest']:.2f} of max(T_comm, T_kernel), cuBLASXt {row['xt_ms']}"
        )

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        names = ("precision", "size", "memory", "ms", "kernel_ms", "link_ms", "of_longest", "xt_ms")
        heads = ("precision", "n", "memory", "ms", "T_kernel", "T_comm", "total / max", "cuBLASXt")
        return heads, [[row[name] for name in names] for row in rows]


def _rows(live: Any, stack: ExitStack, name: str, n: int) -> Iterator[Row]:
    letter, accuracy = host.arithmetic_of(name)
    pinned = host.drawn(live, stack, n, precision(letter).dtype)
    link, rates = host.link_ms([live], pinned), host.link_rates(live, pinned)
    kernel = host.kernel_ms(live, pinned, letter, accuracy, n)
    for memory in MEMORY:
        a, b, c = pinned if memory == "pinned" else [np.array(x) for x in pinned]
        c.fill(np.nan)
        call = partial(gemm, a, b, c, accuracy=accuracy, device=live)
        call()
        error = host.error(a, b, c)
        total = statistics.median(host.ms(call) for _ in range(host.TURNS))
        pins = memory == "pageable"
        peer = host.cublas_xt(letter, a, b, c, pins) if accuracy == "ieee" else None
        yield {
            "precision": name, "size": n, "memory": memory, "ms": round(total, 2),
            "kernel_ms": round(kernel, 2), "link_ms": round(link, 2),
            "sum_ms": round(link + kernel, 2), "of_longest": round(total / max(link, kernel), 3),
            "xt_ms": None if peer is None else round(peer, 2), "eta": error, **rates,
        }  # fmt: skip


BENCHMARK = Transfers()
