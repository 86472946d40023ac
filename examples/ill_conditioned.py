"""A linear system that double precision cannot solve, solved in double-double.

    python examples/ill_conditioned.py [--size 15] [--device opencl]

The Hilbert matrix of size n has a condition number of about 2^(5 n).  Row by row scaled to
integers it is exactly representable, and so is b for the solution x = (1, -1, 1, ...), so
that every wrong digit of a result is the method's own.  Four ways are compared:

    double        LU and substitution in double precision
    refined       that LU, corrected with residuals computed in double precision
    mixed         that LU, corrected with residuals in double-double (x in double-double too)
    double-double LU and substitution in double-double

Refinement converges while the condition number stays below 2^53: "mixed" then has all the
digits of a double-double at the price of a double LU.  Above, only the last one is left.
"""

from __future__ import annotations

import argparse
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

import tilewright as tw

# Corrections at most: each gains 53 - log2(condition) bits, or the method has failed.
STEPS = 40

# Digits of a pair of doubles.
MOST = 32.0


def system(n: int) -> tuple[tw.DoubleDouble, tw.DoubleDouble, np.ndarray]:
    """Return the scaled Hilbert matrix, the right-hand side, and the solution."""
    exact = [[Fraction(1, i + j + 1) for j in range(n)] for i in range(n)]
    exact = [[lcm(*range(i + 1, i + n + 1)) * h for h in row] for i, row in enumerate(exact)]
    x = np.array([(-1) ** i for i in range(n)])
    b = [sum(h * int(v) for h, v in zip(row, x, strict=True)) for row in exact]
    return tw.DoubleDouble(np.array(exact)), tw.DoubleDouble(np.array(b)), x


def refine(a: Any, b: Any, factored: Any, zero: Any, device: str | None) -> Any:
    """Return x corrected until the correction changes nothing; residuals in zero's precision."""
    x, last = zero, np.inf
    for _ in range(STEPS):
        if isinstance(zero, tw.DoubleDouble):
            residual = b[:, None].copy()
            tw.gemm(a, x[:, None], residual, alpha=-1, beta=1, device=device)
            correction = tw.lu_solve(factored, residual[:, 0].to_float64())
        else:
            correction = tw.lu_solve(factored, b - a @ x)
        size = float(np.abs(correction).max())
        if not size < last / 2:  # no longer converging: at the precision's end, or never
            break
        x, last = x + correction, size
    return x


def digits(x: Any, right: np.ndarray) -> float:
    """Return the correct decimal digits of the worst element."""
    off = x - tw.DoubleDouble(right)
    error = float(off.norm("max"))
    # x is made of whole numbers, which a pair holds to more digits than any other number.
    return min(MOST, max(0.0, -np.log10(max(error, 10**-MOST))))


def solve(n: int, device: str | None = None) -> dict[str, float]:
    """Return the correct digits of each way."""
    a, b, right = system(n)
    low_a, low_b = a.to_float64(), b.to_float64()
    factored = tw.lu_factor(low_a, device=device)
    zero = np.zeros(n)
    found = {
        "double": tw.lu_solve(factored, low_b),
        "refined": refine(low_a, low_b, factored, zero, device),
        "mixed": refine(a, b, factored, tw.DoubleDouble(zero), device),
        "double-double": tw.lu_solve(tw.lu_factor(a, device=device), b),
    }
    return {name: digits(x, right) for name, x in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, nargs="+", default=[4, 7, 10, 13, 16, 19])
    parser.add_argument("--device")
    options = parser.parse_args()
    names = ("double", "refined", "mixed", "double-double")
    print("correct decimal digits of the worst element of x")
    print(f"{'n':>3}" + "".join(f"{name:>15}" for name in names))
    for n in options.size:
        found = solve(n, options.device)
        print(f"{n:3}" + "".join(f"{found[name]:15.1f}" for name in names))


if __name__ == "__main__":
    main()
