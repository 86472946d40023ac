"""The committed results, as `draw.py` reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
CASES = ("NN", "NT", "TN", "TT")
NAMES = {"s": "SGEMM", "d": "DGEMM", "c": "CGEMM", "z": "ZGEMM"}
Row = Mapping[str, Any]


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def rows(name: str) -> list[Row]:
    return [row for device in load(name)["devices"] for row in device["results"]]


def experiment(name: str) -> list[Row]:
    found = load("h100/microbench")["experiments"][name]["rows"]
    return [row for row in found if "error" not in row]


def mix_curves() -> dict[tuple[int, str], dict[int, float]]:
    """Return instructions a cycle by ratio, for each width of a load and lane pattern."""
    found: dict[tuple[int, str], dict[int, float]] = {}
    for row in experiment("mixes"):
        loads_alone = row["ratio"] == 0
        if (
            row["bank_pattern"] == "kept"
            and row["load_bits"]
            and (row["multiply_add"] == "FFMA" or loads_alone)
        ):
            curve = found.setdefault((row["load_bits"], row["lane_pattern"]), {})
            rate = row["instructions_per_cycle"]
            curve[row["ratio"]] = max(rate, curve.get(row["ratio"], 0.0))
    return found


def about(name: str) -> str:
    """Return the device, its software and the day in a phrase."""
    document = load(name)
    device, environment = document["devices"][0], document["environment"]
    parts = [device["name"], device.get("platform", ""), environment["date"][:10]]
    parts += [f"{peer} {version}" for peer, version in device.get("peers", {}).items()]
    return ", ".join(part for part in parts if part)


def table(head: Sequence[str], lines: Iterable[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table whose first columns are text, the others numbers."""
    marks = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, marks, *lines))


def table_of(name: str, head: Sequence[str], lines: Iterable[Sequence[str]], left: int = 1) -> str:
    """Return a table of a file's results below what they were measured on."""
    return f"{about(name)}.\n\n{table(head, lines, left)}"


def rates_cell(mine: float, other: float) -> str:
    """Return two rates in FLOP/s as TFLOP/s, and their ratio."""
    digits = 0 if mine >= 1e14 else 1
    return f"{mine / 1e12:.{digits}f} / {other / 1e12:.{digits}f} ({mine / other:.2f})"


def rates_of(row: Row) -> str:
    """Return both rates of a row of kernel times."""
    return rates_cell(*(row["flops_per_second"][who] for who in ("tilewright", "cublas")))
