"""Every operation keeps the bound that is proven of it, and the kernels' text too."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.double_double.exactly import U, rational
from tilewright.double_double import (
    add,
    divide,
    error_of_product,
    joined,
    multiply,
    random,
    root,
    two_sum,
    words,
)
from tilewright.double_double.arithmetic import two_product
from tilewright.double_double.exact import slices
from tilewright.precision import DOUBLE_DOUBLE

# Far from overflow, underflow and the splitting's own overflow.
doubles = st.floats(-1e100, 1e100).filter(lambda x: x == 0 or abs(x) > 1e-100)


@st.composite
def pairs(draw):
    """Draw normalised pairs: the low word fills, half fills or leaves free its place."""
    hi = draw(doubles)
    return two_sum(hi, hi * draw(st.floats(-1, 1)) * 2.0 ** -draw(st.integers(53, 80)))


@given(doubles, doubles)
def test_error_free_means_error_free(x, y):
    assert rational(*two_sum(x, y)) == Fraction(x) + Fraction(y)
    assert rational(*two_product(x, y)) == Fraction(x) * Fraction(y)


BOUNDS = {
    add: (lambda x, y: x + y, 3 * U**2 + 13 * U**3),
    multiply: (lambda x, y: x * y, 7 * U**2),
    divide: (lambda x, y: x / y, 17 * U**2),
}


@pytest.mark.parametrize("operation", list(BOUNDS), ids=lambda f: f.__name__)
@settings(max_examples=300)
@given(pairs(), pairs())
def test_relative_errors_keep_their_bounds(operation, x, y):
    exactly, bound = BOUNDS[operation]
    if operation is divide and y[0] == 0:
        return
    found = operation(tuple(map(np.float64, x)), tuple(map(np.float64, y)))
    right = exactly(rational(*x), rational(*y))
    assert abs(rational(*found) - right) <= Fraction(bound) * abs(right)
    assert found[0] + found[1] == found[0]  # normalised


@given(pairs())
def test_roots_square_back(x):
    x = tuple(map(np.float64, (abs(x[0]), np.copysign(1, x[0]) * x[1])))
    found, right = rational(*root(x)), rational(*x)
    assert abs(found * found - right) <= Fraction(16 * U**2) * right


@pytest.mark.parametrize(
    ("operation", "x", "y", "right"),
    [
        (add, np.inf, 1.0, np.inf),
        (add, np.inf, -np.inf, np.nan),
        (multiply, np.inf, -2.0, -np.inf),
        (multiply, 1e300, 1e300, np.inf),
        (multiply, 0.0, np.inf, np.nan),
        (divide, 1.0, 0.0, np.inf),
        (divide, 0.0, 0.0, np.nan),
        (divide, 1.0, np.inf, 0.0),
    ],
)
def test_what_is_not_finite_is_ieees(operation, x, y, right):
    zero = np.float64(0)
    hi, lo = operation((np.float64(x), zero), (np.float64(y), zero))
    np.testing.assert_equal((hi, lo), (right, 0.0))


def test_slices_add_up():
    precision = DOUBLE_DOUBLE["e"]
    x = words(random(np.random.default_rng(1), (5, 7), precision, phi=3))
    pieces = slices(x, 20, axis=1)
    for i, j in np.ndindex(5, 7):
        assert sum(Fraction(float(p[i, j])) for p in pieces) == rational(x[0][i, j], x[1][i, j])


@pytest.mark.parametrize("letter", ["e", "w"])
def test_the_oracle_is_exact(letter):
    """It finds errors of a double-double product to the last bit, with rational numbers."""
    precision, rng = DOUBLE_DOUBLE[letter], np.random.default_rng(2)
    a, b = random(rng, (3, 6), precision, phi=2), random(rng, (6, 2), precision, phi=2)
    hi, lo = words(joined(*two_sum(words(a)[0] @ words(b)[0], 1e-20), precision))
    error, _ = error_of_product(joined(hi, lo, precision), a, b)

    def exact(x, i, j):
        h, low = (w[i, j] for w in words(x))
        return rational(h.real, low.real), rational(h.imag, low.imag)

    for i, j in np.ndindex(3, 2):
        re = im = Fraction(0)
        for step in range(6):
            (p, q), (r, s) = exact(a, i, step), exact(b, step, j)
            re, im = re + p * r - q * s, im + p * s + q * r
        off = rational(hi[i, j].real, lo[i, j].real) - re
        off_im = rational(hi[i, j].imag, lo[i, j].imag) - im
        right = float(off) if letter == "e" else np.hypot(float(off), float(off_im))
        assert error[i, j] == right


def test_factors_may_be_as_large_as_doubles_get():
    """Cutting them in half must not overflow; beyond 2^1024 (1 - 2^-27) it does."""
    x, y = (1.5 * 2.0**1000, 2.0**940), (0.375, 2.0**-60)
    pairs = [tuple(map(np.float64, pair)) for pair in (x, y)]
    for operation, (exactly, bound) in BOUNDS.items():
        found, right = rational(*operation(*pairs)), exactly(rational(*x), rational(*y))
        assert abs(found - right) <= Fraction(bound) * abs(right)
    x = (1.5 * 2.0**1023, 2.0**960)
    pairs = [tuple(map(np.array, ([pair[0]] * 2, [pair[1]] * 2))) for pair in (x, y)]
    high, low = multiply(*pairs)
    right = rational(*x) * rational(*y)
    assert all(
        abs(rational(*w) - right) <= Fraction(7 * U**2) * right for w in zip(high, low, strict=True)
    )
