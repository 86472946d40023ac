"""The static cycle model of main loops against Nsight Compute's counters, for what is served.

A kernel is counted at k and at 2 k: what the deeper run has more of cycles, and of cycles in which
the multiply-adds' pipe is busy, is the loop's alone, without prologue and epilogue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tilewright.bench.profile import ProfileError, Profiler
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.bench.sizes import parse_sizes, problems_of
from tilewright.bench.sweep import OURS, Method
from tilewright.portfolio import Choice
from tilewright.problem import Problem
from tilewright.sass import inspect_kernel, read_cubin
from tilewright.serve.kernels import ready
from tilewright.stencil import Variant

__all__ = ["BENCHMARK"]


class CycleModel(Benchmark):
    measures = "busy cycles of the FMA pipe in main loops, predicted from machine code and counted"
    against = "Nsight Compute's counters"
    takes = "20 s a kernel on an H100, most of it Nsight Compute's start"
    options = {"precision": "s,c", "trans": "NN,NT,TN,TT", "size": "4096"}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        profiler = Profiler(asked.live, Method())
        for problem in problems_of(asked.precision, asked.trans, parse_sizes(asked.size)):
            about = {"problem": str(problem), "size": [problem.m, problem.n, problem.k]}
            try:
                yield about | _row(asked.live, profiler, problem)
            except (ProfileError, ValueError, KeyError) as error:  # the others go on
                yield about | {"error": f"{problem}: {error}".splitlines()[0]}

    def line(self, row: Row) -> str:
        return f"{row['problem']}: {row['predicted']:.1%} predicted, {row['counted']:.1%} counted"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        lines: list[list[Cell]] = [
            [row["problem"], row["config_id"], f"{row['predicted']:.1%}", f"{row['counted']:.1%}",
             f"{100 * (row['predicted'] - row['counted']):+.1f}"]
            for row in rows
        ]  # fmt: skip
        return ("problem", "config", "predicted", "counted", "points"), lines


def _row(live: Any, profiler: Profiler, problem: Problem) -> dict[str, Any]:
    """Return the shares of a problem's kernel, and of the same kernel in a run twice as deep."""
    choice, _ = ready(live, problem)
    once, twice = (
        _counters(profiler, one, choice) for one in (problem, replace(problem, k=2 * problem.k))
    )
    cycles = twice["cycles"] - once["cycles"]
    busy = (twice["cycles"] * twice["fma_pct"] - once["cycles"] * once["fma_pct"]) / 100
    return {
        "stencil": choice.config.stencil,
        "config": dict(choice.config),
        "config_id": choice.config.id,
        "predicted": _predicted(live, choice, problem),
        "counted": busy / cycles,
    }


def _counters(profiler: Profiler, problem: Problem, choice: Choice) -> dict[str, float]:
    """Return the counters of a product's longest kernel."""
    library = profiler.profile(problem, choice, [])["libraries"][OURS]
    if "error" in library:
        raise ProfileError(library["error"])
    kernels = [one["counters"] for one in library["kernels"]]
    longest: dict[str, float] = max(kernels, key=lambda counters: counters["cycles"])
    return longest


def _predicted(live: Any, choice: Choice, problem: Problem) -> float:
    """Return the share that the model sees in the code that is served."""
    variant, (_, served) = Variant.of(problem), ready(live, problem)
    uses = choice.stencil.resources(choice.config, variant)
    kernels = {one.name: one for one in read_cubin(served.code or b"").kernels}
    name = next(name for name in kernels if served.entry in name)
    found = inspect_kernel(kernels[name], uses.threads, served.handle.dynamic_shared_bytes)
    if found.cycles is None:
        raise ValueError("the model has nothing to say of this kernel")
    return float(found.cycles.pipe_share)


BENCHMARK = CycleModel()
