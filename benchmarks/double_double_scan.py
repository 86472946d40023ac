"""Is double-double as fast at every size?  A part of double_double.py: its --scan.

Sizes lie evenly on a logarithmic scale, each moved to where tiles do not fit: one more than a
multiple of 64, one less, an odd number, a power of two.  They are taken in an order in which any
beginning covers the whole range, so that a budget that ends early costs detail, not the ends.
At each size all candidates are timed that may win there; a row keeps what each took, what
`tilewright.gemm` would choose today, and the best of them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator
from typing import Any

from tilewright.library.choose import choose
from tilewright.library.waves import effort
from tilewright.problem import Problem

__all__ = ["flatness", "ragged", "scan", "scan_table"]

# Seconds of repetitions at a size, beyond which one run is enough.
ENOUGH = 0.15

# Candidates at a size: those with the least work for the busiest multiprocessor.
MOST = 8


def ragged(least: int, most: int, number: int) -> list[int]:
    """Return sizes from `least` to `most`, both included, in an order that covers all early."""
    steps = [least * (most / least) ** (i / max(1, number - 1)) for i in range(number)]
    moves = (
        lambda n: n // 64 * 64 + 1,
        lambda n: n // 64 * 64 - 1,
        lambda n: n | 1,
        lambda n: n // 32 * 32 + 16,
        lambda n: 2 ** round(math.log2(n)),
    )
    moved = [moves[i % len(moves)](round(x)) for i, x in enumerate(steps)]
    inside = {least, most, *(n for n in moved if least < n < most)}
    return [sorted(inside)[i] for i in _evenly(len(inside))]


def _evenly(number: int) -> list[int]:
    """Return 0 to number - 1 with the ends first, then the middle, then the quarters, ..."""
    bits = max(1, (number - 1).bit_length())
    order = sorted(range(2**bits), key=lambda i: int(f"{i:0{bits}b}"[::-1], 2))
    found = [0, number - 1, *(i for i in order if 0 < i < number - 1)]
    return found[:number]


def scan(
    live: Any,
    candidates: dict[Any, list],
    memory: Any,
    sizes: list[int],
    number: int,
    timed: Callable[..., list[float]],
    clock: Any,
    spared: float,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each size and variant, until so many seconds are left."""
    for n in ragged(min(sizes), max(sizes), number):
        for variant, found in candidates.items():
            if clock.left < spared + 2:
                return
            yield _row(live, variant, found, memory, n, timed, clock)


def _row(
    live: Any, variant: Any, found: list, memory: Any, n: int, timed: Any, clock: Any
) -> dict[str, Any]:
    problem = Problem(n, n, n, variant.precision, variant.trans_a, variant.trans_b)
    row: dict[str, Any] = {"precision": variant.precision.letter, "trans": problem.trans, "n": n}
    served = choose(live, problem).config.id
    many = live.spec.multiprocessors or 1
    ranked = sorted(found, key=lambda c: _work(c[2], problem, live, many))
    going = ranked[:MOST] + [c for c in ranked[MOST:] if c[2].id == served]
    ns: dict[str, int] = {}
    for candidate in going:
        try:
            runs = timed(live, candidate, memory.arguments(problem), n, ENOUGH)
            ns[candidate[2].id] = round(statistics.median(runs) * 1e9)
        except Exception as error:
            row.setdefault("failed", []).append(f"{candidate[2].id}: {error}")
    if not ns:
        return row | {"reason": "no candidate ran"}
    row |= {"ns": ns, "flops_per_second": problem.flops / min(ns.values()) * 1e9}
    if served in ns:
        row["served_flops_per_second"] = problem.flops / ns[served] * 1e9
    clock.say("scan", variant, n, f"{row['flops_per_second'] / 1e9:.1f} GFLOP/s")
    return row


def _work(config: Any, problem: Problem, live: Any, many: int) -> float:
    """Return what the busiest multiprocessor has to do; blocks that share evenly come first."""
    return 0.0 if config.get("persistent") else effort(config, problem, live.spec, many)


def flatness(rates: list[float]) -> float:
    """Return how far the slowest is below the fastest, as a share of the fastest."""
    return 1 - min(rates) / max(rates)


def scan_table(rows: list[dict[str, Any]]) -> None:
    """Print the spread of each precision, of the best candidates and of what is served."""
    for letter in sorted({row["precision"] for row in rows}):
        of = [row for row in rows if row["precision"] == letter]
        for name, key in (("best", "flops_per_second"), ("served", "served_flops_per_second")):
            rates = {row["n"]: row[key] for row in of if key in row}
            if len(rates) > 1:
                low, high = min(rates, key=rates.__getitem__), max(rates, key=rates.__getitem__)
                print(
                    f"{letter} {name}: {len(rates)} sizes, {rates[low] / 1e9:.1f} GFLOP/s at {low}"
                    f" to {rates[high] / 1e9:.1f} at {high},"
                    f" spread {flatness(list(rates.values())):.1%}"
                )
