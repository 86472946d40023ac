"""Numbers with known products, and what they are, without any library but NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import tilewright as tw
from tilewright.double_double import error_of_product, joined
from tilewright.precision import DOUBLE_DOUBLE
from tilewright.tuning.matrices import Matrix
from tilewright.tuning.verify import Bench, Check


def wide(rng: np.random.Generator, shape: tuple[int, int], bits: int) -> np.ndarray:
    """Return integers of so many bits, as Python's."""
    draw = np.frompyfunc(lambda _: int(rng.integers(0, 2**31)) << (bits - 31), 1, 1)
    low = rng.integers(-(2**20), 2**20, shape).astype(object)
    return draw(np.zeros(shape)) + low


def eta_of(c: tw.DoubleDouble, a: tw.DoubleDouble, b: tw.DoubleDouble) -> float:
    def flat(x: tw.DoubleDouble) -> np.ndarray:
        return x.words.reshape(*x.shape, -1).view(x.dtype)[..., 0]

    error, size = error_of_product(flat(c), flat(a), flat(b))
    return float(np.max(np.abs(error) / size))


def plain(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Return the product as a loop over k adds it up in double precision."""
    total = np.zeros((a.shape[0], b.shape[1]))
    with np.errstate(all="ignore"):
        for column, row in zip(a.T[:, :, None], b[:, None, :], strict=True):
            total += column * row
    return total


def spoilt(m: int, k: int, n: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return integers with infinities, NaN and zeros among them, and a sum that overflows.

    At least 12 x 70 times 70 x 5.
    """
    rng = np.random.default_rng(7)
    a, b = rng.integers(1, 9, (m, k)) * 1.0, rng.integers(1, 9, (k, n)) * 1.0
    a[3, 5], a[4, 60], b[7, 2], b[66, 3] = np.inf, -np.inf, np.nan, 0
    a[9, 0] = a[9, -1] = 1e308
    a[4, 66] = b[7, 4] = np.inf
    a[11, 7] = a[9, 1:-1] = 0
    return a, b


def spoils_as_a_plain_loop(run: Bench, k: int) -> None:
    """Check a kernel's infinities and NaN; low words beside them are zero."""
    (a, b), of, row = spoilt(37, k, 35), run.variant, DOUBLE_DOUBLE["e"]

    def laid(x: NDArray[Any], transposed: bool) -> Matrix:
        x = x.T if transposed else x
        return Matrix.place(joined(x, np.zeros_like(x), row))

    c = Matrix.result(np.zeros((37, 35), row.dtype))
    given = laid(a, of.trans_a.transposed), laid(b, of.trans_b.transposed)
    got, right = c.view(run.run(Check(37, 35, k), *given, c)), plain(a, b)
    np.testing.assert_array_equal(got["hi"], right)
    assert (got["lo"][~np.isfinite(right)] == 0).all()
    assert np.isinf(right).sum() > 30
    assert np.isnan(right).sum() > 30
