"""Large products, each for a second on end: at its own clock.

At its power limit a device shares one clock among all that take turns launch by launch.
"""

from __future__ import annotations

from tilewright.bench.benchmarks.squares import problems
from tilewright.bench.registry import Products

__all__ = ["BENCHMARK"]

BENCHMARK = Products(
    measures="large squares in turns of a second, with clock and energy",
    against="cuBLAS; NumPy on a CPU",
    takes="a minute a precision",
    options={"precision": "s", "trans": "all", "size": "4096,8192"},
    problems=problems,
    rounds=2,
    turn="1s",
)
