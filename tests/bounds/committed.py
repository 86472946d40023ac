"""Every product's rate in the committed results, with the bound that it has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tilewright.precision import SHORT
from tilewright.problem import Problem

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"

# What older files call precisions of tensor cores.
OLD = {"f16": "fp16", "float16": "fp16", "bfloat16": "bf16"}


class Run(NamedTuple):
    """A product that somebody computed at a rate."""

    file: str
    who: str
    problem: Problem
    rate: float  # FLOP/s
    how: tuple[tuple[str, Any], ...] = ()  # the bound's arguments, where it is not the plain one
    recorded: float | None = None  # the bound that the file itself has, of the row's arithmetic


def runs_of(document: Mapping[str, Any], file: str = "") -> Iterator[Run]:
    """Yield the runs of a document: rows with a size and rates, times of calls, or rungs."""
    for device in document.get("devices", ()):
        for row in device["results"]:
            if "rungs" in row:
                m, n, k = row["size"]  # row-major
                rates = {one["name"]: one["flops_per_second"] for one in row["rungs"]}
                yield from _runs(Problem(n, m, k, "s"), rates, row, file)
            elif "size" in row and "trans" in row:
                yield from _product(row, file)


def _product(row: Mapping[str, Any], file: str) -> Iterator[Run]:
    letter, kind = row.get("precision", "s"), _kind(row)
    letter = kind if kind in SHORT else {"fp32": "s"}.get(letter, letter)
    problem = Problem(*row["size"], letter, *row["trans"])
    rates = row.get("flops_per_second", {})
    keys = {"us": "tilewright", "best_us": "best", "cublas_us": "cublas"}
    times = {who: row.get(key) for key, who in keys.items()}
    if any(times.values()):
        rates = {who: problem.flops / (1e-6 * time) for who, time in times.items() if time}
    if isinstance(rates, dict):
        yield from _runs(problem, rates, row, file)


def _kind(row: Mapping[str, Any]) -> str | None:
    """Return the arithmetic that a row names."""
    name = row.get("arithmetic", row.get("kind"))
    return OLD.get(name, name)


def _runs(
    problem: Problem, rates: Mapping[str, float | None], row: Mapping[str, Any], file: str
) -> Iterator[Run]:
    recorded = row.get("bound", {}).get("flops_per_second")
    for who, rate in rates.items():
        if rate is not None:
            how = _how(row, who)
            own = recorded if who == "tilewright" or not how else None
            yield Run(file, who, problem, rate, tuple(how.items()), own)


def _how(row: Mapping[str, Any], who: str) -> dict[str, Any]:
    """Return the arguments of the bound that somebody's arithmetic has."""
    name = _kind(row)
    if row.get("precision") == "fp32":
        return {"accuracy": "fp32"} if who == "tilewright" else {}
    if name is None or name in SHORT:
        return {}
    if name == "fp16x3" and who in ("cublas", "guarded"):
        return {} if who == "cublas" else {"accuracy": "fp32"}
    how = {"arithmetic": name}
    return how | ({"presplit": True} if who == "product" else {})


def committed(folder: str) -> list[Run]:
    """Return the runs of every file of a device."""
    paths = sorted((RESULTS / folder).glob("*.json"))
    return [run for path in paths for run in runs_of(json.loads(path.read_text()), path.name)]
