"""What the choice of a kernel loses: the one that a call takes beside all others of the portfolio.

Random shapes that no kernel was picked for and no cost fitted to.  Of each, every kernel that takes
the operands is timed in the launch mode in which it would serve; launches are held, so that the
kernel's time alone counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from statistics import fmean, median
from typing import Any

import numpy as np

from tilewright.backend.base import Kernel
from tilewright.bench.call_cases import GPU_MOST, drawn_sides
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.portfolio.choose import Choice, choices, choose
from tilewright.portfolio.measure import matrices
from tilewright.portfolio.portfolio import Portfolio
from tilewright.portfolio.timers import interleaved_medians
from tilewright.precision import Precision, precision
from tilewright.problem import Problem, Trans
from tilewright.tuning.measure import Workload

__all__ = ["BENCHMARK", "Machines", "drawn", "loss_lines"]

# Bytes of a matrix at most: all problems share three such matrices.
_MOST_BYTES = 1 << 30

# Kernels that are expected to take so many times longer than the one chosen are not timed.
_FAR = 5.0


class Regret(Benchmark):
    measures = "the kernel that a call takes beside the portfolio's best, random shapes"
    against = "all kernels of the portfolio that take the operands"
    takes = "two minutes for 4 x 300 shapes on an H100"
    options = {"precision": "s,d,c,z", "seed": "0", "count": "300"}  # noqa: RUF012
    needs = "cuda"

    def rows(self, asked: Asked) -> Iterator[Row]:
        live = asked.live
        for letter in asked.precision.split(","):
            of = precision(letter)
            memory = matrices(live, of, asked.seed)
            loaded = Machines(live)
            try:
                for problem in drawn(of, asked.seed, asked.count):
                    yield _row(live, problem, memory, loaded)
            finally:
                for handle in memory.values():
                    live.free(handle)

    def line(self, row: Row) -> str:
        loss = row["chosen_us"] / row["best_us"] - 1
        return f"{row['precision']} {row['trans']} {row['size']}: {loss:.1%} of {row['best_us']} us"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        heads = ("precision", "shapes", "kernels", "mean", "median", "95 %", "most")
        return heads, loss_lines(rows, "best_us")


def loss_lines(rows: Sequence[Row], best: str) -> list[list[Cell]]:
    """Return for each precision how much longer what was chosen takes than the best, in percent."""
    lines: list[list[Cell]] = []
    for letter in dict.fromkeys(row["precision"] for row in rows):
        mine = [row for row in rows if row["precision"] == letter]
        losses = np.array([row["chosen_us"] / row[best] - 1 for row in mine]) * 100
        many = round(fmean(row["kernels"] for row in mine))
        figures = losses.mean(), median(losses), np.percentile(losses, 95), losses.max()
        lines.append([letter, len(mine), many, *(f"{one:.1f} %" for one in figures)])
    return lines


def drawn(of: Precision, seed: int, count: int) -> list[Problem]:
    """Return problems of a precision whose matrices fit `matrices`, all transposes alike often."""
    pairs = [(Trans(a), Trans(b)) for a in "NT" for b in "NT"]
    sides = (
        (m, n, k)
        for m, n, k in drawn_sides(seed, 4 * count, GPU_MOST)
        if max(m * n, m * k, k * n) * of.element_bytes <= _MOST_BYTES
    )
    return [
        Problem(*side, of, *pairs[number % len(pairs)])
        for number, side in enumerate(islice(sides, count))
    ]


class Machines:
    """Machine code of choices, each loaded once."""

    def __init__(self, live: Any) -> None:
        self._live, self._loaded = live, dict[str, Kernel]()

    def of(self, choice: Choice) -> Kernel:
        """Return the kernel of a choice that has machine code."""
        digest, portfolio = choice.digest(), choice.portfolio
        assert isinstance(portfolio, Portfolio)  # `choices` has no others
        if digest not in self._loaded:
            cubin = portfolio.machine_code(digest)
            self._loaded[digest] = self._live.load(portfolio.codes[digest], cubin)
        return self._loaded[digest]


def _row(live: Any, problem: Problem, memory: dict[str, Any], loaded: Machines) -> Row:
    taken = choose(live, problem)
    near, mine = (taken.ns or np.inf) * _FAR, taken.digest()
    some = [one for one in choices(live, problem) if one.digest() == mine or (one.ns or 0) <= near]
    workload = Workload(live, problem, memory)
    times = interleaved_medians(
        [partial(workload.run, loaded.of(one), one.stencil, one.config) for one in some]
    )
    ran = [(ns, one) for ns, one in zip(times, some, strict=True) if ns is not None]
    best_ns, best = min(ran, key=lambda each: each[0])
    chosen_ns = next(ns for ns, one in ran if one.digest() == mine)
    return {
        "precision": problem.precision.letter,
        "trans": f"{problem.trans_a}{problem.trans_b}",
        "size": [problem.m, problem.n, problem.k],
        "kernels": len(some),
        "chosen_us": chosen_ns / 1e3,
        "best_us": best_ns / 1e3,
        "chosen": _name(taken),
        "best": _name(best),
    }


def _name(choice: Choice) -> str:
    assert choice.kernel is not None
    return f"{choice.kernel.name} {choice.mode}"


BENCHMARK = Regret()
