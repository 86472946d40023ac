"""Every GEMM time that is committed for the H100, whatever wrote its file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from tilewright.problem import Problem

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "h100"
# What has no times of whole products: counters and machine code of loops, measurements of the
# device, times of calls, errors, a timeline; and products that do not say their size.
WITHOUT_TIMES = {
    "ablation.json",
    "cluster_columns.json",
    "depths.json",
    "dmma_power.json",
    "fp32_accuracy.json",
    "host_cost.json",
    "latches.json",
    "long_runs.json",
    "loops.json",
    "before_layers.json",
    "arranged.json",
    "behind_others.json",
    "behind_others_c.json",
    "behind_others_s.json",
    "launch_phases.json",
    "microbench.json",
    "microbench_copies.json",
    "runs_along_k.json",
    "native.json",
    "padded_rows.json",
    "s4096_trace.json",
    "samples.json",
    "samples_boxes.json",
    "schedule_model.json",
    "short_counters.json",
    "sweeps.json",
    "text_first_run.json",
    "wgmma_first_light.json",
}
# Of as many other shapes, whose bounds take minutes, by kernels whose times are in other files.
TOO_MANY = {
    "portfolio.json",
    "portfolio_c.json",
    "portfolio_c_sides.json",
    "portfolio_d.json",
    "portfolio_z.json",
    "schedule_fitted.json",
    "shapes200_c_first.json",
    "shapes200_d_first.json",
    "shapes200_d_sides.json",
    "shapes200_d_even_sides.json",
    "shapes200_c_even_sides.json",
    "shapes200_z_even_sides.json",
    "shapes200_z_first.json",
    "shapes200_arranged_1.json",
    "shapes200_arranged_2.json",
    "shapes200_rescheduled_1.json",
    "shapes200_rescheduled_2.json",
    "shapes200_blocks_of_96_1.json",
    "shapes200_blocks_of_96_2.json",
    "shapes200_deep_layers_1.json",
    "shapes200_deep_layers_2.json",
    "shapes200_small_blocks_1.json",
    "shapes200_small_blocks_2.json",
    "shapes200_held_1.json",
    "shapes200_held_2.json",
    "shapes200_others.json",
    "shapes200_two.json",
    "wide_long.json",
    "wide_orders.json",
    "wide_seed3.json",
    "wide_sliced.json",
    "wide_slow.json",
}

# Kinds of elements, and the arithmetic whose bound they have.
NARROW = {"bfloat16": "bf16", "float16": "fp16"}


class Run(NamedTuple):
    """A product that somebody computed at a rate."""

    file: str
    who: str
    problem: Problem
    rate: float  # FLOP/s
    how: tuple[tuple[str, Any], ...] = ()  # the bound's arguments, where it is not the plain one


def _problem(size: Any, precision: str, trans: str) -> Problem:
    sides = size if isinstance(size, list) else [int(size)] * 3
    return Problem(*sides, precision, *trans)


# Formats of benchmarks.tensor by the names that bounds have for them.
_FORMATS = {"f16": "fp16", "bf16": "bf16", "tf32": "tf32", "s8": "int8"}


def _tensor(row: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield (who, problem, FLOP/s, how) of a row of benchmarks.tensor."""
    name, trans = row["case"].split()
    plain = _FORMATS.get(name)
    arithmetic = (("arithmetic", plain or name),)
    alone = arithmetic if plain else (*arithmetic, ("presplit", True))
    if row["kind"] == "tried":
        for size, ns in row["ns"].items():
            problem = _problem(size, "s", trans)
            yield row["id"], problem, problem.flops / (ns * 1e-9), alone
        return
    how = {"tilewright": arithmetic, "product": alone, "cublas": arithmetic if plain else ()}
    how["guarded"] = (("accuracy", "fp32"),)
    for who, rate in row.get("tflops", {}).items():
        yield who, _problem(row["size"], "s", trans), rate * 1e12, how[who]


def _calls(row: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield (who, problem, FLOP/s, how) of whole calls of fp32_accurate.py."""
    problem = _problem(row["n"], "s", row["trans"])
    how = {"fp32": (("accuracy", "fp32"),), "ieee": (), "cublas": ()}
    for who, seconds in row["seconds"].items():
        yield who, problem, problem.flops / seconds, how.get(who, (("arithmetic", who),))


def _twins(row: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield (who, problem, FLOP/s) of schedule_proof.py: the compiler's code, and rescheduled."""
    for size, pair in row.get("ns", {}).items():
        problem = _problem(size, row["precision"], row["trans"])
        for who, times in zip(("compiler", row["level"]), pair, strict=True):
            yield who, problem, problem.flops / (median(times) * 1e-9)


def _ways(row: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield (who, problem, FLOP/s) of realigned.py: by the operands that are copied before."""
    problem = _problem([row["m"], row["n"], row["k"]], row["precision"], row["trans"])
    for who, times in row["ns"].items():
        yield who, problem, problem.flops / (median(times) * 1e-9)


def _turns(row: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield (who, problem, FLOP/s) of sustained.py: a race's two, and each candidate's trial."""
    problem = _problem(row["size"], row["precision"], row["trans"])
    yield from ((who, problem, rate * 1e12) for who, rate in row["tflops"].items())
    yield from (("a trial", problem, one["tflops"] * 1e12) for one in row["trials"])


def _medians(row: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield (who, problem, FLOP/s) of races of which only times are kept."""
    problem = _problem(row["size"], row["precision"], row["trans"])
    for who, times in row["ns"].items():
        yield who, problem, problem.flops / (median(times) * 1e-9)


def _of(row: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield (who, problem, FLOP/s) of a row, and how if not plainly, by what it has."""
    rates = row.get("flops_per_second")
    if {"n", "trans", "seconds", "host_seconds"} <= row.keys():
        yield from _calls(row)
    elif {"level", "precision", "trans"} <= row.keys():
        yield from _twins(row)
    elif {"turns", "trials"} <= row.keys():
        yield from _turns(row)
    elif {"id", "size", "ns"} == row.keys() & {"id", "size", "ns", "kind"}:
        yield from _medians(row)
    elif {"off", "configs", "ns"} <= row.keys():
        yield from _ways(row)
    elif row.get("kind") in ("shape", "cliff"):  # shapes200.py
        of = row.get("precision", "s")
        problem = _problem([row["m"], row["n"], row["k"]], of, row["trans"])
        yield from ((who, problem, rate * 1e12) for who, rate in row.get("tflops", {}).items())
    elif "case" in row and row.get("kind") in ("tried", "race"):
        yield from _tensor(row)
    elif row.get("kind") in NARROW and "tflops" in row:  # narrow.py
        how = (("arithmetic", NARROW[row["kind"]]),)
        for who, rate in row["tflops"].items():
            yield who, _problem(row["size"], "s", row["trans"]), rate * 1e12, how
    elif "rungs" in row and row["problem"].startswith("BF16"):  # the tensor ladder
        m, n, k = row["size"]
        for rung in row["rungs"]:
            if rung["flops_per_second"]:
                problem, how = _problem([n, m, k], "s", "TN"), (("arithmetic", "bf16"),)
                yield rung["name"], problem, rung["flops_per_second"], how
    elif "rungs" in row:  # tilewright ladder: row-major SGEMM NN, columns and rows exchanged
        m, n, k = row["size"]
        for rung in row["rungs"]:
            if rung["flops_per_second"]:
                yield rung["name"], _problem([n, m, k], "s", "NN"), rung["flops_per_second"]
    elif {"precision", "trans", "size"} <= row.keys() and isinstance(rates, dict):  # bench
        problem = _problem(row["size"], row["precision"], row["trans"])
        yield from ((who, problem, rate) for who, rate in rates.items())
    elif {"precision", "trans", "n"} <= row.keys():  # double_double.py
        yield "tilewright", _problem(row["n"], row["precision"], row["trans"]), rates
    elif row.get("kind") == "final":  # hopper.py, the race
        problem = _problem(row["size"], row["precision"], row["trans"])
        yield from ((who, problem, rate * 1e12) for who, rate in row["tflops"].items())
    elif row.get("kind") == "tried":  # hopper.py, the search
        for size, ns in (row["ns"] or {}).items():
            problem = _problem(size, row["precision"], row["trans"])
            yield row["id"], problem, problem.flops / (ns * 1e-9)


def _runs(file: str, value: Any) -> Iterator[Run]:
    if isinstance(value, dict):
        found = [Run(file, *one) for one in _of(value)]
        yield from found
        value = () if found else value.values()
    if not isinstance(value, str | int | float | None):
        for one in value:
            yield from _runs(file, one)


def committed() -> list[Run]:
    """Return the runs of every file that has any."""
    left_out = WITHOUT_TIMES | TOO_MANY
    paths = (path for path in sorted(RESULTS.glob("*.json")) if path.name not in left_out)
    return [run for path in paths for run in _runs(path.name, json.loads(path.read_text()))]
