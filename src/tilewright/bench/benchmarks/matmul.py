"""`tilewright.matmul` beside `torch.matmul`: batches of odd sides, and heads of attention.

Heads lie beside each other in memory, as a projection of tokens leaves them, so that their two
dimensions are not one::

    queries, keys, values    [sequences, tokens, heads, d], seen as [sequences, heads, tokens, d]
    scores                   queries @ keys^T
    context                  scores @ values

Both make new results; launches are not held back, and host time counts, as in
`tilewright.bench.benchmarks.calls`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilewright.bench.benchmarks.calls import interleaved
from tilewright.bench.call_arrays import cupy_on
from tilewright.bench.peers import UnavailableError
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.serve.matmul import matmul

__all__ = ["BENCHMARK", "by_product"]

# Products, m, n and k; sequences, heads, tokens and d.
_BATCHES = ((64, 77, 64, 77), (256, 33, 33, 33), (96, 197, 64, 197), (32, 513, 513, 513))
_HEADS = ((8, 16, 197, 64), (32, 12, 128, 64), (8, 16, 512, 64), (2, 32, 2048, 128))

# PyTorch's type, and ours of accuracy, by precision.
_TYPES = {
    "bf16": ("bfloat16", "ieee"), "fp16": ("float16", "ieee"), "s": ("float32", "ieee"),
    "tf32": ("float32", "tf32"), "d": ("float64", "ieee"),
}  # fmt: skip


class Matmul(Benchmark):
    measures = "tilewright.matmul on batches of odd sides, and on heads of attention"
    against = "torch.matmul"
    takes = "half a minute on an H100"
    options = {"precision": "bf16,s,tf32", "seed": "0"}  # noqa: RUF012
    needs = "cuda"

    def rows(self, asked: Asked) -> Iterator[Row]:
        try:
            import torch
        except ImportError:
            raise UnavailableError("PyTorch is not here; pip install torch") from None
        cupy = cupy_on(asked.live)
        where = torch.device("cuda", getattr(asked.live, "ordinal"))  # noqa: B009  # CUDA's
        before = torch.backends.cuda.matmul.allow_tf32
        for name in asked.precision.split(","):
            if name not in _TYPES:
                yield {"precision": name, "error": f"use one of {', '.join(_TYPES)}"}
                continue
            dtype, accuracy = _TYPES[name]
            torch.manual_seed(asked.seed)
            torch.backends.cuda.matmul.allow_tf32 = accuracy == "tf32"
            try:
                for about, x, y in _products(torch, where, getattr(torch, dtype)):
                    yield {"precision": name, **about, **_times(cupy, torch, x, y, accuracy)}
            finally:
                torch.backends.cuda.matmul.allow_tf32 = before

    def line(self, row: Row) -> str:
        return (
            f"{row['precision']}, {_named(row)}: {row['us']:.0f} us,"
            f" {row['torch_us'] / row['us']:.2f} of PyTorch"
        )

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        lines: list[list[Cell]] = [[row["precision"], _named(row), *_cells(row)] for row in rows]
        return ("precision", "product", "us", "of PyTorch", "differ by"), lines


def by_product(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return a line for each product, with microseconds and ratios of all precisions."""
    names = list(dict.fromkeys(str(row["precision"]) for row in rows))
    found: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        found.setdefault(_named(row), {})[str(row["precision"])] = _cells(row)[:2]
    lines = [
        [product, *(cell for name in names for cell in cells.get(name, ["-", "-"]))]
        for product, cells in found.items()
    ]
    return names, lines


def _named(row: Row) -> str:
    return f"{row['kind']} {' x '.join(map(str, row['shape']))}"


def _cells(row: Row) -> list[str]:
    ratio = row["torch_us"] / row["us"]
    return [f"{row['us']:.0f}", f"{ratio:.2f}", f"{row['difference']:.0e}"]


def _products(torch: Any, where: Any, dtype: Any) -> Iterator[tuple[Row, Any, Any]]:
    """Yield what a product is called, and its operands."""

    def drawn(*shape: int) -> Any:
        return torch.randn(shape, device=where).to(dtype)

    for count, m, n, k in _BATCHES:
        yield {"kind": "batch", "shape": [count, m, n, k]}, drawn(count, m, k), drawn(count, k, n)
    for sequences, heads, tokens, d in _HEADS:
        shape = [sequences, heads, tokens, d]
        queries, keys, values = (
            drawn(sequences, tokens, heads, d).permute(0, 2, 1, 3) for _ in range(3)
        )
        yield {"kind": "scores", "shape": shape}, queries, keys.mT
        scores = torch.softmax(torch.randn(*shape[:3], tokens, device=where), -1).to(dtype)
        yield {"kind": "context", "shape": shape}, scores, values


def _times(cupy: Any, torch: Any, x: Any, y: Any, accuracy: str) -> Row:
    made, theirs = matmul(x, y, accuracy=accuracy), torch.matmul(x, y)
    apart = (made.double() - theirs.double()).abs().max() / theirs.double().abs().max()
    calls = (lambda: matmul(x, y, accuracy=accuracy), lambda: torch.matmul(x, y))
    ours, other = interleaved(cupy, calls)
    return {
        "us": ours / 1e3, "torch_us": other / 1e3, "difference": float(apart),
        "torch": torch.__version__,
    }  # fmt: skip


BENCHMARK = Matmul()
