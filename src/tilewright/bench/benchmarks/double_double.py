"""Squares in double-double, accurate and fast, with their errors against exact sums."""

from __future__ import annotations

from tilewright.bench.benchmarks.squares import problems
from tilewright.bench.registry import Products

__all__ = ["BENCHMARK"]

BENCHMARK = Products(
    measures="squares in double-double, accurate (e) and fast (f), and their errors",
    against="their bound; FLINT with --peer flint",
    takes="a minute on an H100",
    options={"precision": "e,f", "trans": "NN,NT,TN,TT", "size": "1024:8192"},
    problems=problems,
    rounds=5,
    errors=True,
    peer="",
)
