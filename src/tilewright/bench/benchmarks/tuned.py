"""What tuning a shape for 20 seconds would gain over the kernel that a call takes.

Each random shape is tuned from nothing, in a store of its own that is thrown away; then the winner
and the kernel that the shipped portfolio chooses are timed interleaved, launches held.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tilewright.backend.base import BackendError
from tilewright.bench.benchmarks.regret import Machines, drawn, loss_lines
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.portfolio.choose import choose
from tilewright.portfolio.tuned import machine_code
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.stencil import stencil
from tilewright.tuning.measure import Workload, interleaved
from tilewright.tuning.store import Store
from tilewright.tuning.tuner import TuningError, tune

__all__ = ["BENCHMARK"]

# What a user may wait for.
_BUDGET = "20s"

# Of the comparison: some hundred rounds of a short product.
_SECONDS = 0.2


class Tuned(Benchmark):
    measures = f"the kernel that a call takes beside the winner of {_BUDGET} of tuning"
    against = "tuning of each shape"
    takes = "half a minute a shape"
    options = {"precision": "s,d,c,z", "seed": "0", "count": "5"}  # noqa: RUF012
    needs = "cuda"

    def rows(self, asked: Asked) -> Iterator[Row]:
        for letter in asked.precision.split(","):
            for problem in drawn(precision(letter), asked.seed, asked.count):
                about = {
                    "precision": letter,
                    "trans": f"{problem.trans_a}{problem.trans_b}",
                    "size": [problem.m, problem.n, problem.k],
                }
                try:
                    yield {**about, **_row(asked.live, problem)}
                except (TuningError, BackendError) as error:
                    yield about | {"error": str(error)}

    def line(self, row: Row) -> str:
        loss = row["chosen_us"] / row["tuned_us"] - 1
        return (
            f"{row['precision']} {row['trans']} {row['size']}: {loss:.1%} of {row['tuned_us']} us,"
            f" the best of {row['kernels']}"
        )

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        heads = ("precision", "shapes", "candidates", "mean", "median", "95 %", "most")
        return heads, loss_lines(rows, "tuned_us")


def _row(live: Any, problem: Problem) -> Row:
    with (
        tempfile.TemporaryDirectory(prefix="tilewright-") as folder,
        Store(Path(folder) / "results.sqlite") as store,
    ):
        found = tune(problem, live, budget=_BUDGET, resume=False, store=store)
    winner, taken = found.winner, choose(live, problem)
    code, cubin = machine_code(live, winner)
    workload = Workload(live, problem)
    try:
        tuned_ns, chosen_ns = (
            median(times)
            for times in interleaved(
                workload,
                [
                    (live.load(code, cubin), stencil(winner.config.stencil), winner.config),
                    (Machines(live).of(taken), taken.stencil, taken.config),
                ],
                _SECONDS,
            )
        )
    finally:
        workload.close()
    assert taken.kernel is not None
    return {
        "kernels": found.tried,
        "chosen_us": chosen_ns / 1e3,
        "tuned_us": tuned_ns / 1e3,
        "chosen": f"{taken.kernel.name} {taken.mode}",
        "tuned": str(winner.config),
    }


BENCHMARK = Tuned()
