"""Rank-k updates of the public calls beside cuBLAS's and our own products, host time and all.

The lower triangle of a square C in columns, op(A) as large as C.  Nothing is held back, as of
`tilewright.bench.benchmarks.calls`.  Complex matrices are updated by `herk`, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import geometric_mean
from typing import Any

import numpy as np

from tilewright.bench.benchmarks.calls import WORKSPACE, interleaved
from tilewright.bench.call_arrays import Arrays, arrays_of, cupy_on, operands
from tilewright.bench.peers import UnavailableError
from tilewright.bench.peers.cublas import Handle, blas_handle, prepared_update
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.precision import PRECISIONS
from tilewright.problem import Trans
from tilewright.serve.gemm import gemm
from tilewright.serve.syrk import herk, syrk

__all__ = ["BENCHMARK"]


class RankK(Benchmark):
    measures = "syrk and herk on CuPy's arrays and PyTorch's, launches not held back"
    against = "gemm of the same product, and cuBLAS's in C with prepared arguments"
    takes = "a minute on an H100"
    # precision: see `tilewright.bench.call_arrays`; size: sides of C, k as long.
    options = {  # noqa: RUF012
        "precision": "s,d,c,z,bf16,fp32,fp64,fp64-z,e", "trans": "N,T",
        "size": "1024,2048,4096,8192,16384",
    }  # fmt: skip

    def rows(self, asked: Asked) -> Iterator[Row]:
        cupy = cupy_on(asked.live)
        peers = [blas_handle(0), blas_handle(WORKSPACE)]
        rng = np.random.default_rng(0)
        for name in asked.precision.split(","):
            try:
                arrays = arrays_of(name)
            except UnavailableError as error:
                yield {"precision": name, "error": str(error)}
                continue
            for n in map(int, asked.size.split(",")):
                for letter in asked.trans.split(","):
                    for hermitian in (False, True)[: 1 + (arrays.flops == 8)]:
                        op = Trans.C if hermitian and letter != "N" else Trans.parse(letter)
                        yield _row(cupy, peers, name, arrays, n, op, hermitian, rng)
            arrays.release()

    def line(self, row: Row) -> str:
        what = f"{row['precision']} {row['update']} {row['trans']} {row['size'][0]}"
        beside = f", {row['ratio']:.2f} of cuBLAS" if "ratio" in row else ""
        return f"{what}: {row['of_gemm']:.2f} of gemm{beside}"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        lines: list[list[Cell]] = []
        kinds = dict.fromkeys((row["precision"], row["update"], row["size"][0]) for row in rows)
        for kind in kinds:
            mine = [
                row for row in rows if (row["precision"], row["update"], row["size"][0]) == kind
            ]
            ratios = [row["ratio"] for row in mine if "ratio" in row]
            lines.append([
                *kind, f"{geometric_mean(row['flops'] / row['us'] / 1e6 for row in mine):.1f}",
                f"{geometric_mean(row['of_gemm'] for row in mine):.2f}",
                f"{geometric_mean(ratios):.2f}" if ratios else "-",
            ])  # fmt: skip
        heads = ("precision", "update", "n = k", "TFLOP/s", "gemm's time / ours", "cuBLAS's")
        return heads, lines


def _row(
    cupy: Any, peers: Sequence[Handle], name: str, arrays: Arrays, n: int, op: Trans,
    hermitian: bool, rng: Any,
) -> Row:  # fmt: skip
    other = (Trans.C if hermitian else Trans.T) if op == Trans.N else Trans.N
    a, _ = operands(arrays, rng, ((n, n, n), (op, other), "F"))
    c, whole, theirs = (arrays.empty((n, n), "F") for _ in range(3))
    update = herk if hermitian else syrk
    options: dict[str, Any] = arrays.options
    calls: list[Callable[[], Any]] = [
        lambda: update(a, c, trans=op.value, **options),
        lambda: gemm(a, a, whole, trans_a=op.value, trans_b=other.value, **options),
    ]
    if arrays.letter in PRECISIONS:
        addresses = arrays.address(a), arrays.address(theirs)
        calls += [
            prepared_update(one, arrays.letter, n, n, op, addresses, hermitian=hermitian)
            for one in peers
        ]
    times = interleaved(cupy, calls)
    found = {
        "precision": name, "update": update.__name__, "trans": op.value, "size": [n, n],
        "flops": arrays.flops * n * (n + 1) // 2 * n, "us": times[0] / 1e3,
        "gemm_us": times[1] / 1e3, "of_gemm": times[1] / times[0],
        "difference": arrays.difference(_lower(arrays, c), _lower(arrays, whole)),
    }  # fmt: skip
    if len(times) == 2:
        return found
    least = min(times[2:])
    return found | {"cublas_us": least / 1e3, "ratio": least / times[0]}


def _lower(arrays: Arrays, x: Any) -> Any:
    """Return the triangle that is computed, zeros beside it; of pairs the high words."""
    return arrays.library.tril(getattr(x, "hi", x))


BENCHMARK = RankK()
