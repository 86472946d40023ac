"""How far is a double-double product from the true one?  Exactly, with NumPy alone.

Each matrix is cut into slices of so few bits that the product of two slices has no rounding
error in double precision (Ozaki, Ogita, Oishi & Rump, Numer. Algorithms 59, 2012, split
rows and columns like this); what the slices' products add up to, less the result, is then
summed without error (math.fsum).
"""

from __future__ import annotations

from math import ceil, fsum, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.double_double.arithmetic import two_sum
from tilewright.double_double.structured import words

__all__ = ["error_of_product", "slices"]

Array = NDArray[Any]


# Exponents above which a shift by 53 bits more might overflow.
_LARGE = 960


def slices(x: tuple[Array, Array], bits: int, axis: int) -> list[Array]:
    """Cut hi + lo into float64 slices that add up to it exactly.

    Parameters
    ----------
    x : tuple of ndarray
        High and low words, finite, m x k.
    bits : int
        Of a slice: its elements are at most 2^bits times their line's common unit.
    axis : int
        Along which elements share a unit.
    """
    found = []
    rest, low = (np.array(w, np.float64) for w in x)
    while rest.any() or low.any():
        top = np.max(np.abs(rest) + np.abs(low), axis=axis, keepdims=True)
        # Adding and taking away 1.5 * 2^e rounds to multiples of 2^(e - 52).
        _, exponent = np.frexp(np.where(top == 0, 1.0, top))
        # Of the largest numbers a 2^128th, which rounds alike: the shift would overflow.
        down = np.where(exponent > _LARGE, 128, 0)
        shift = np.ldexp(1.5, exponent - down + 53 - bits)
        piece = np.ldexp((np.ldexp(rest, -down) + shift) - shift, down)
        found.append(piece)
        rest = rest - piece
        # What is left of the high word makes room for the low one.
        rest, low = two_sum(rest, low)
    return found


def error_of_product(c: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """Return C - A B, correctly rounded, and |A| |B|.

    Parameters
    ----------
    c, a, b : ndarray
        Structured arrays m x n, m x k, k x n of one double-double precision, finite.

    Returns
    -------
    error : ndarray of float64, m x n
        Of a complex product, the size of a complex error.
    size : ndarray of float64, m x n
        |A| |B|.
    """
    (a_hi, a_lo), (b_hi, b_lo), (c_hi, c_lo) = words(a), words(b), words(c)
    size = np.abs(a_hi) @ np.abs(b_hi)
    if not np.iscomplexobj(a_hi):
        return _error((c_hi, c_lo), (a_hi, a_lo), (b_hi, b_lo)), size
    # (x + iy)(z + iw) = (xz - yw) + i(xw + yz), each a real product twice as long.
    left = [np.hstack([w.real, w.imag]) for w in (a_hi, a_lo)]
    for_re = [np.vstack([w.real, -w.imag]) for w in (b_hi, b_lo)]
    for_im = [np.vstack([w.imag, w.real]) for w in (b_hi, b_lo)]
    re = _error((c_hi.real, c_lo.real), (left[0], left[1]), (for_re[0], for_re[1]))
    im = _error((c_hi.imag, c_lo.imag), (left[0], left[1]), (for_im[0], for_im[1]))
    return np.hypot(re, im), size


def _error(c: tuple[Array, Array], a: tuple[Array, Array], b: tuple[Array, Array]) -> Array:
    k = a[0].shape[1]
    # Products of two slices have 2 bits + 2, and k of them log2(k) more: all within 53.
    bits = (53 - 2 - ceil(log2(max(1, k)))) // 2
    of_a, of_b = slices(a, bits, 1), slices(b, bits, 0)
    terms = [c[0], c[1], *(-(x @ y) for x in of_a for y in of_b)]
    stacked = np.stack(terms, axis=-1)
    found = [fsum(line) for line in stacked.reshape(-1, stacked.shape[-1])]
    return np.array(found, np.float64).reshape(c[0].shape)
