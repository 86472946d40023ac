"""Draw what copies of operands win, from realigned.json: a part of docs/hopper.md.

`draw_hopper.py` calls it.  Which way `gemm` takes is asked of today's table.
"""

from __future__ import annotations

import statistics
from dataclasses import replace

from draw_races import joined, load
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.proofs import proofs
from tilewright.hardware import DeviceSpec
from tilewright.library.realigned import best_way
from tilewright.problem import Problem
from tilewright.stencil.schedule import LEVELS, permission

__all__ = ["copies", "served", "the_device"]

CASES = ("NN", "NT", "TN", "TT")
LEVEL = {one.name: one for one in LEVELS if one is not None}


class Described:
    """A device of which only numbers are known, and that nothing was tuned on."""

    fingerprint = ""

    def __init__(self, spec: DeviceSpec) -> None:
        self.spec = spec


def the_device() -> Described:
    """Return the H100 that was measured, as its driver describes it, with what is proved there."""
    spec = architecture_spec("sm_90a")
    return Described(
        replace(
            spec,
            name="NVIDIA H100 80GB HBM3",
            multiprocessors=132,
            memory_bytes=80 << 30,
            schedules=tuple(permission(x.stencil, x.precision, LEVEL[x.level]) for x in proofs()),
        )
    )


def served(row: dict) -> str:
    """Return which operands `gemm` copies, as a row names its ways."""
    problem = Problem(row["m"], row["n"], row["k"], row["precision"], *row["trans"])
    return "+".join(best_way(the_device(), problem, (True, True)).copies) or "none"


def rate(row: dict, name: str) -> float:
    """Return TFLOP/s at the median."""
    problem = Problem(row["m"], row["n"], row["k"], row["precision"], *row["trans"])
    return problem.flops / statistics.median(row["ns"][name]) / 1e3


def cell(row: dict) -> str:
    """Return the rate without copies, with those that `gemm` makes, and over cuBLAS's."""
    way = served(row)
    ratio = rate(row, way) / rate(row, "cublas")
    if way == "none":
        return f"{rate(row, way):.1f} ({ratio:.2f}x)"
    names = way.upper().replace("+", ", ")
    return f"{rate(row, 'none'):.1f}, {names}: **{rate(row, way):.1f}** ({ratio:.2f}x)"


def copies() -> str:
    """Return the table, and what the choice loses against the best way."""
    rows = [row for row in load("h100/realigned.json")["rows"] if row.get("precision") == "s"]
    found = {(row["trans"], row["n"]): row for row in rows}
    lines = ["| size | " + " | ".join(CASES) + " |", "|---:" + "|---" * len(CASES) + "|"]
    for size in sorted({n for _, n in found}):
        cells = (cell(found[t, size]) if (t, size) in found else "" for t in CASES)
        lines.append(f"| {size} | " + " | ".join(cells) + " |")
    taken = [row for row in rows if served(row) != "none"]
    gains = [rate(row, served(row)) / rate(row, "none") for row in taken]
    best = [
        rate(row, served(row)) / max(rate(row, name) for name in row["ns"] if name != "cublas")
        for row in rows
    ]
    told = (
        f"TFLOP/s without copies, with those that `gemm` makes, and over cuBLAS's, all of one run."
        f" {len(taken)} of {len(rows)} problems are served so, at {min(gains):.3f} to"
        f" {max(gains):.3f} times the rate without (geometric mean"
        f" {statistics.geometric_mean(gains):.3f}); of all problems the way that is taken reaches"
        f" {min(best):.3f} of the fastest way's rate or more."
    )
    return joined(lines, [told])
