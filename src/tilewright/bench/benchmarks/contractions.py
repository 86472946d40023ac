"""A contraction of quantum chemistry in double precision, with PyTorch's products and with ours.

Coupled cluster's particle-particle ladder, its dearest term, iterated as in CCD: amplitudes ``t``
of pairs of electrons, integrals ``v`` of pairs of virtual orbitals, denominators ``d``::

    t[ab, ij]  <-  (g[ab, ij] + sum over c, d of  v[ab, cd] t[cd, ij]) / d[ab, ij]

float64 as for molecules, complex128 as for solids, all of an iteration by the host's clock, some of
either kind in turns; ours by `tilewright.torch.matmul` with ``accuracy="fp64"``.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.bench.peers import UnavailableError
from tilewright.bench.registry import Asked, Benchmark, Cell, Row

__all__ = ["BENCHMARK", "HEADS", "in_turns", "lines"]

# Of either kind, in turns, after one that warms up; and iterations in a turn.
_TURNS, _ITERATIONS = 5, 3

# Virtual and occupied orbitals, and multiplications and additions of real numbers for each element.
_CASES = (("float64", 128, 64, 2), ("complex128", 112, 56, 8))


class Contractions(Benchmark):
    measures = "iterations of coupled cluster's ladder in float64 and complex128"
    against = "PyTorch"
    takes = "ten seconds on an H100"
    options = {"seed": "0"}  # noqa: RUF012
    needs = "cuda"

    def rows(self, asked: Asked) -> Iterator[Row]:
        try:
            import torch

            from tilewright.torch import matmul
        except ImportError:
            raise UnavailableError("PyTorch is not here; pip install torch") from None
        where = torch.device("cuda", getattr(asked.live, "ordinal"))  # noqa: B009  # CUDA's
        kinds = {"torch": contextlib.nullcontext, "ours": lambda: matmul(accuracy="fp64")}
        for dtype, virtual, occupied, flops in _CASES:
            torch.manual_seed(asked.seed)
            torch.cuda.empty_cache()
            with where:
                begin, step = _ladder(torch, getattr(torch, dtype), virtual**2, occupied**2)
            row: dict[str, Any] = {"dtype": dtype, "virtual": virtual, "occupied": occupied}
            row |= {"flops": flops * virtual**4 * occupied**2, "torch": torch.__version__}

            def ladder(t: Any = begin, step: Callable[[Any], Any] = step) -> Any:
                for _ in range(_ITERATIONS):
                    t = step(t)
                return t

            found, made = in_turns(torch, ladder, _ITERATIONS, kinds)
            apart, size = (x.abs().max() for x in (made["ours"] - made["torch"], made["torch"]))
            yield row | found | {"difference": float(apart / size)}

    def line(self, row: Row) -> str:
        return (
            f"{row['dtype']}: {row['ours_ms']:.1f} ms, PyTorch {row['torch_ms']:.1f};"
            f" amplitudes differ by {row['difference']:.1e}"
        )

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        return HEADS, [[*line] for line in lines(rows)]


HEADS = ("orbitals", "iteration, ms", "PyTorch's, ms", "ratio", "amplitudes differ by")


def lines(rows: Sequence[Row]) -> list[list[str]]:
    """Return a line for each type."""
    return [
        [
            f"{row['dtype']}, {row['virtual']} virtual, {row['occupied']} occupied",
            f"{row['ours_ms']:.1f}", f"{row['torch_ms']:.1f}",
            f"{row['torch_ms'] / row['ours_ms']:.2f}", f"{row['difference']:.1e}",
        ] for row in rows
    ]  # fmt: skip


def _ladder(torch: Any, dtype: Any, pairs: int, electrons: int) -> tuple[Any, Callable[[Any], Any]]:
    """Return first amplitudes and an iteration, which takes and returns them."""
    scale = 0.3 / pairs**0.5  # it converges
    v = torch.randn(pairs, pairs, dtype=dtype) * scale
    g = torch.randn(pairs, electrons, dtype=dtype)
    d = -1 - torch.rand(pairs, electrons, dtype=torch.float64)
    return g / d, lambda t: (g + v @ t) / d


def in_turns(
    torch: Any, work: Callable[[], Any], repeats: int, kinds: dict[str, Any]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return milliseconds of a repeat of some work, and what it made, with products of each kind.

    Medians of turns, by the host's clock.
    """
    found: dict[str, list[float]] = {kind: [] for kind in kinds}
    made = {}
    for _ in range(_TURNS + 1):
        for kind, context in kinds.items():
            torch.cuda.synchronize()
            started = time.perf_counter()
            with context():
                made[kind] = work()
            torch.cuda.synchronize()
            found[kind].append((time.perf_counter() - started) / repeats * 1e3)
    return {f"{kind}_ms": statistics.median(times[1:]) for kind, times in found.items()}, made


BENCHMARK = Contractions()
