"""Is double-double as fast at every size?  A part of double_double.py: its --scan.

A third of the sizes are those where the least is expected of the best config
(`tilewright.library.waves`, from the times of this run), a third those where the most is, and a
third drawn evenly on a logarithmic scale, the same in every run.  They are taken in turns, so that
a budget that ends early has some of each kind, and each size in every case before the next.  At
a size the candidates are timed that may win there; a row keeps what each took, what was expected,
what `tilewright.gemm` would choose today, and the best.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from double_double_predict import expected, spread, square
from tilewright.hardware import DeviceSpec
from tilewright.library.choose import choose
from tilewright.library.waves import Timed, expected_ns
from tilewright.stencil import Variant

__all__ = ["scan", "scan_table", "sizes_to_scan"]

# Seconds of repetitions at a size, beyond which one run is enough.
ENOUGH = 0.15

# Candidates at a size: those of which the shortest time is expected, fewer where runs are long.
MOST = ((2048, 6), (4096, 3), (math.inf, 2))

# Where blocks of 32 begin, and a little on: sizes between these differ by what is asked for only.
SIDE, OFFSETS = 32, (0, 1, 17)

# Sizes of which much is expected are not sought beyond: a run takes up to a second there.
FAST = 4096

# Two sizes of one kind are at least this far apart, so that they say more than one.
APART = 1.03


def sizes_to_scan(
    timed: Mapping[Variant, Sequence[Timed]],
    device: DeviceSpec,
    least: int,
    most: int,
    number: int,
) -> list[int]:
    """Return the sizes of a scan in their order; what has been timed is not among them.

    Parameters
    ----------
    timed : Mapping
        Configs with their times, by variant.
    device : DeviceSpec
        That the times are of.
    least, most : int
        The range.
    number : int
        How many sizes.
    """
    steps = range(least // SIDE * SIDE, most, SIDE)
    seen = {size.n for rows in timed.values() for one in rows for size in one.ns}
    known = [n for at in steps for n in (at + x for x in OFFSETS) if least < n < most]
    known = [n for n in known if n not in seen]
    found = {variant: rows for variant, rows in timed.items() if rows}
    share = {n: _share(found, device, n, most) for n in known} if found else {}
    slow = sorted(share, key=lambda n: (share[n], n))
    fast = sorted((n for n in share if n <= FAST), key=lambda n: (-share[n], n))
    each = max(1, number // 3)
    drawn = random.Random(0)
    free = [round(least * (most / least) ** drawn.random()) for _ in range(number + len(seen))]
    free = [n for n in free if n not in seen][:number]
    kinds = (_apart(slow)[:each], _apart(fast)[:each], free)
    turns = [n for one in itertools.zip_longest(*kinds) for n in one if n]
    return list(dict.fromkeys(turns))[:number]


def _apart(sizes: Sequence[int]) -> list[int]:
    """Return those sizes that are not near one before them."""
    kept: list[int] = []
    for n in sizes:
        if all(max(n, other) > APART * min(n, other) for other in kept):
            kept.append(n)
    return kept


def _share(
    timed: Mapping[Variant, Sequence[Timed]], device: DeviceSpec, n: int, most: int
) -> float:
    """Return the least rate over all variants, as a share of the same variant's at the end."""
    many = device.multiprocessors or 1
    return min(
        expected(rows, square(n, variant), device, many).rate
        / expected(rows, square(most, variant), device, many).rate
        for variant, rows in timed.items()
    )


def scan(
    live: Any,
    candidates: Mapping[Variant, list],
    timed: Mapping[Variant, Sequence[Timed]],
    sizes: Sequence[int],
    memory: Any,
    run: Callable[..., list[float]],
    clock: Any,
    spared: float,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each size and variant, until so many seconds are left."""
    for n in sizes:
        for variant, found in candidates.items():
            if clock.left < spared + 2:
                return
            yield _row(live, variant, found, timed[variant], memory, n, run, clock)


def _row(
    live: Any, variant: Variant, found: list, timed: Sequence[Timed], memory: Any, n: int,
    run: Any, clock: Any,
) -> dict[str, Any]:  # fmt: skip
    problem = square(n, variant)
    row: dict[str, Any] = {"precision": variant.precision.letter, "trans": problem.trans, "n": n}
    served = choose(live, problem).config.id
    many = live.spec.multiprocessors or 1
    hoped = {one.config.id: expected_ns(one, problem, live.spec, many) for one in timed}
    ranked = sorted(found, key=lambda c: hoped.get(c[2].id, math.inf))
    most = next(number for size, number in MOST if n <= size)
    ns: dict[str, int] = {}
    for candidate in ranked[:most] + [c for c in ranked[most:] if c[2].id == served]:
        name = candidate[2].id
        try:
            runs = run(live, candidate, memory.arguments(problem), n, ENOUGH)
            ns[name] = round(statistics.median(runs) * 1e9)
        except Exception as error:
            row.setdefault("failed", []).append(f"{name}: {error}")
    if not ns:
        return row | {"reason": "no candidate ran"}
    best = min(ns, key=ns.__getitem__)
    row |= {"ns": ns, "flops_per_second": problem.flops / ns[best] * 1e9}
    if best in hoped:
        row["expected_flops_per_second"] = problem.flops / hoped[best] * 1e9
    if served in ns:
        row["served_flops_per_second"] = problem.flops / ns[served] * 1e9
    clock.say("scan", variant, n, f"{row['flops_per_second'] / 1e9:.1f} GFLOP/s")
    return row


def scan_table(rows: Sequence[Mapping[str, Any]], scanned: Sequence[Mapping[str, Any]]) -> None:
    """Print how flat each case is: the best candidates at all sizes, and what is served."""
    worst = {}
    for letter, trans in sorted({(row["precision"], row["trans"]) for row in scanned}):
        for name, key, of in (
            ("best", "flops_per_second", [*rows, *scanned]),
            ("served", "served_flops_per_second", scanned),
        ):
            mine = [row for row in of if (row["precision"], row["trans"]) == (letter, trans)]
            rates = {row["n"]: row[key] for row in mine if key in row}
            if len(rates) > 1:
                low, high = min(rates, key=rates.__getitem__), max(rates, key=rates.__getitem__)
                apart = spread(list(rates.values()))
                worst[letter, name] = max(apart, worst.get((letter, name), 0.0))
                print(
                    f"{letter} {trans} {name:6} {len(rates):3} sizes, {rates[low] / 1e9:.1f}"
                    f" GFLOP/s at {low} to {rates[high] / 1e9:.1f} at {high},"
                    f" flat within {apart:.1%}"
                )
    for (letter, name), apart in sorted(worst.items()):
        print(f"{letter} {name}, every case scanned: flat within {apart:.1%}")
