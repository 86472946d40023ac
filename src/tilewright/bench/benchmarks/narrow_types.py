"""Calls of ``tw.gemm`` on 16- and 8-bit PyTorch tensors beside PyTorch's own (cuBLAS)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.bench.peers import UnavailableError
from tilewright.bench.registry import Asked, Cell, Measured, Row
from tilewright.bench.sizes import parse_sizes
from tilewright.bench.summary import quartiles
from tilewright.bench.sweep import OURS, in_turns
from tilewright.library.gemm import gemm

__all__ = ["BENCHMARK"]

KINDS = ("bfloat16", "float16", "int8")
ROUNDS = 15


class NarrowTypes(Measured):
    """See the module."""

    measures = "calls on bfloat16, float16 and int8 tensors, host time included"
    against = "torch.mm, torch._int_mm (cuBLAS)"
    takes = "half a minute on an H100 once kernels are compiled"
    options = {"trans": "NN,NT,TN,TT", "size": "512:8192"}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        """Yield a row for each type, transpose and size."""
        torch = _torch(asked)
        cases = [text.strip().upper() for text in asked.trans.split(",")]
        for (size, _, _), kind, trans in itertools.product(parse_sizes(asked.size), KINDS, cases):
            about = {"problem": f"{kind} {trans} {size}", "kind": kind, "trans": trans,
                     "size": [size] * 3}  # fmt: skip
            try:
                yield about | _times(torch, kind, trans, size)
            except (ValueError, RuntimeError) as error:  # the others go on
                yield about | {"error": f"{about['problem']}: {error}".splitlines()[0]}

    def line(self, row: Row) -> str:
        """Return rates and their ratio."""
        return ": ".join([row["problem"], " / ".join(map(str, _cells(row)))])

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        """Return a line for each row."""
        lines: list[list[Cell]] = [[row["problem"], *_cells(row)] for row in rows]
        return ("problem", "ours, TFLOP/s", "PyTorch", "ratio"), lines


def _cells(row: Row) -> list[Cell]:
    ours, theirs = (row["flops_per_second"].get(name) for name in (OURS, "torch"))
    if theirs is None:
        return [f"{ours / 1e12:.1f}", None, None]
    return [f"{ours / 1e12:.1f}", f"{theirs / 1e12:.1f}", f"{ours / theirs:.3f}"]


def _torch(asked: Asked) -> Any:
    """Return PyTorch where it has the device."""
    if asked.live.backend != "cuda":
        raise UnavailableError(f"PyTorch's tensors are not on {asked.live.id}; use cuda:0")
    try:
        import torch
    except ImportError:
        raise UnavailableError("torch is not installed; pip install torch") from None
    return torch


def _integers(torch: Any, size: int, kind: str) -> Any:
    """Return a square of integers, whose products are exact in every one of the types."""
    drawn = torch.randint(-3, 4, (size, size), device="cuda", dtype=torch.int8)
    return drawn.to(getattr(torch, kind))


def _random(torch: Any, size: int, kind: str) -> Any:
    """Return a square of random numbers: others take less power, and so less time."""
    if kind == "int8":
        return torch.randint(-128, 128, (size, size), device="cuda", dtype=torch.int8)
    return torch.randn((size, size), device="cuda").to(getattr(torch, kind))


def _times(torch: Any, kind: str, trans: str, size: int) -> dict[str, Any]:
    """Return both libraries' times of a product, once the results are known to be equal."""
    a, b = (_integers(torch, size, kind) for _ in "ab")
    x, y = (v if t == "N" else v.T for v, t in zip((a, b), trans, strict=True))
    c = torch.empty((size, size), device="cuda", dtype=torch.int32 if kind == "int8" else a.dtype)
    calls: dict[str, Callable[[], Any]] = {
        OURS: lambda: gemm(a, b, c, trans_a=trans[0], trans_b=trans[1]),
        "torch": (lambda: torch._int_mm(x, y)) if kind == "int8" else lambda: torch.mm(x, y, out=c),
    }
    calls[OURS]()
    right = (x.double() @ y.double()).to(torch.float32).to(c.dtype)
    if not torch.equal(c, right):
        raise ValueError(f"{int((c != right).sum())} of {c.numel()} results are wrong")
    missing = {}
    a.copy_(_random(torch, size, kind))
    b.copy_(_random(torch, size, kind))
    try:
        calls["torch"]()
    except RuntimeError as error:  # int8 in some transposes
        missing["torch"] = str(error).splitlines()[0]
        del calls["torch"]

    def timed(call: Callable[[], Any]) -> Callable[[], int]:
        def run() -> int:
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            first.record()
            call()
            last.record()
            last.synchronize()
            return int(first.elapsed_time(last) * 1e6)

        return run

    both = {name: timed(call) for name, call in calls.items()}
    for call in both.values():
        call()
    taken, _ = in_turns((both, {}), ROUNDS, lambda: None, shared=False)
    seconds = {name: quartiles(times) for name, times in taken.items()}
    return {
        "times": "quartiles",
        "seconds": seconds,
        "flops_per_second": {name: 2 * size**3 / of[1] for name, of in seconds.items()},
        "missing": missing,
    }


BENCHMARK = NarrowTypes()
