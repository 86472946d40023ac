"""What the examples claim."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_double_double_gains_the_digits_that_the_condition_number_takes():
    solve = runpy.run_path(str(EXAMPLES / "ill_conditioned.py"))["solve"]
    mild, bad = solve(7, "opencl"), solve(15, "opencl")
    assert mild["double"] < 12
    assert mild["mixed"] > 30  # a double's LU and double-double residuals
    assert mild["double-double"] > 23
    assert bad["double"] < 2
    assert bad["mixed"] < 2  # condition number beyond 2^53: no refinement converges
    assert bad["double-double"] > 12
