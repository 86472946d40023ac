"""Exact values to compare with: rational numbers, and python-flint's integer matrices."""

from __future__ import annotations

from fractions import Fraction

import flint
import numpy as np

from tilewright import DoubleDouble

U = 2.0**-53


def rational(hi: float, lo: float) -> Fraction:
    return Fraction(float(hi)) + Fraction(float(lo))


def rationals(x: DoubleDouble) -> list[Fraction]:
    """Return the exact values of a real array, row by row."""
    words = x.on_host().words.reshape(-1, 2)
    return [rational(hi, lo) for hi, lo in words]


def integer_matrix(x: DoubleDouble) -> flint.fmpz_mat:
    """Return a real matrix of integers as python-flint's."""
    rows, columns = x.shape
    values = rationals(x)
    assert all(v.denominator == 1 for v in values)
    return flint.fmpz_mat(rows, columns, [int(v) for v in values])


def nearest(x: flint.fmpz_mat) -> DoubleDouble:
    """Return the pairs nearest to integers."""
    rows = [[int(v) for v in row] for row in x.tolist()]
    return DoubleDouble(np.array(rows, dtype=object).reshape(x.nrows(), x.ncols()))


def eta_by_balls(c: DoubleDouble, a: DoubleDouble, b: DoubleDouble) -> float:
    """Return max |C - A B| / (|A| |B|) by arb_mat with 400 bits, real matrices."""
    before, flint.ctx.prec = flint.ctx.prec, 400
    try:
        balls = [
            flint.arb_mat(x.shape[0], x.shape[1], [_ball(v) for v in rationals(x)])
            for x in (c, a, b, abs(a), abs(b))
        ]
        error, size = balls[0] - balls[1] * balls[2], balls[3] * balls[4]
        ratios = [abs(error[i, j]) / size[i, j]
                  for i in range(c.shape[0]) for j in range(c.shape[1])]  # fmt: skip
        return max(float(r.mid()) for r in ratios)
    finally:
        flint.ctx.prec = before


def _ball(value: Fraction) -> flint.arb:
    return flint.arb(flint.fmpq(value.numerator, value.denominator))
