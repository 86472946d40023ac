"""Every product's rate in the committed results, with the bound that it has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tilewright.problem import Problem

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"

# What bounds call the formats of tensor cores.
ARITHMETICS = {"f16": "fp16", "float16": "fp16", "bfloat16": "bf16"}


class Run(NamedTuple):
    """A product that somebody computed at a rate."""

    file: str
    who: str
    problem: Problem
    rate: float  # FLOP/s
    how: tuple[tuple[str, Any], ...] = ()  # the bound's arguments, where it is not the plain one


def runs_of(document: Mapping[str, Any], file: str = "") -> Iterator[Run]:
    """Yield the runs of a document: rows with a size, a problem's letters and rates."""
    for device in document.get("devices", ()):
        for row in device["results"]:
            rates, trans = row.get("flops_per_second"), row.get("trans")
            if isinstance(rates, dict) and trans is not None:
                problem = Problem(*row["size"], row.get("precision", "s"), *trans)
                for who, rate in rates.items():
                    yield Run(file, who, problem, rate, tuple(_how(row, who).items()))


def _how(row: Mapping[str, Any], who: str) -> dict[str, Any]:
    """Return the arguments of the bound that somebody's arithmetic has."""
    name = row.get("arithmetic", row.get("kind"))
    if name is None:
        return {}
    if name == "fp16x3" and who in ("cublas", "guarded"):
        return {} if who == "cublas" else {"accuracy": "fp32"}
    how = {"arithmetic": ARITHMETICS.get(name, name)}
    return how | ({"presplit": True} if who == "product" else {})


def committed(folder: str) -> list[Run]:
    """Return the runs of every file of a device."""
    paths = sorted((RESULTS / folder).glob("*.json"))
    return [run for path in paths for run in runs_of(json.loads(path.read_text()), path.name)]
