"""Matrices on which ``accuracy="fp32"`` is judged: drawn ones, and ones made to defeat it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["DRAWN", "NOT_FINITE", "Drawn", "Pair", "integers", "normal", "phi"]

Array = NDArray[Any]
Random = np.random.Generator
# What draws a matrix, and what draws A (m x k) and B (k x n) together.
Drawn = Callable[[Random, tuple[int, int]], Array]
Pair = Callable[[Random, int, int, int], tuple[Array, Array]]


# -- one matrix ----------------------------------------------------------------------------


def normal(rng: Random, shape: tuple[int, int]) -> Array:
    """Return standard normal numbers."""
    return rng.standard_normal(shape)


def phi(spread: float) -> Drawn:
    """Return what draws (U - 1/2) exp(spread N): exponents spread wider with it."""
    return lambda rng, shape: (
        (rng.random(shape) - 0.5) * np.exp(spread * rng.standard_normal(shape))
    )


def integers(bits: int) -> Drawn:
    """Return what draws whole numbers of so many bits, and a sign."""
    return lambda rng, shape: rng.integers(-(2**bits), 2**bits, shape)


def _significant(bits: int, signed: bool) -> Drawn:
    """Return what draws numbers in [1, 2) of so many significant bits."""

    def draw(rng: Random, shape: tuple[int, int]) -> Array:
        x: Array = 1 + rng.integers(0, 2 ** (bits - 1), shape) / 2 ** (bits - 1)
        return x * rng.choice([-1, 1], shape) if signed else x

    return draw


def _worst_split(rng: Random, shape: tuple[int, int]) -> Array:
    """Return numbers whose second part of FP16 is as large as it can be: lo lo is left out."""
    return 1 + rng.integers(0, 2**10, shape) / 2**10 + 2.0**-11 - 2.0**-22


def _scaled_lines(axis: int) -> Drawn:
    """Return what draws normal numbers, each row (axis 1) or column of its own magnitude."""

    def draw(rng: Random, shape: tuple[int, int]) -> Array:
        lines = (shape[0], 1) if axis == 1 else (1, shape[1])
        return rng.standard_normal(shape) * 2.0 ** rng.integers(-50, 50, lines)

    return draw


# -- both matrices -------------------------------------------------------------------------


def _alike(draw: Drawn, other: Drawn | None = None) -> Pair:
    return lambda rng, m, n, k: (draw(rng, (m, k)), (other or draw)(rng, (k, n)))


def _signed_rows(rng: Random, m: int, n: int, k: int) -> tuple[Array, Array]:
    """Return rows and columns of one sign each."""
    a, b = rng.random((m, k)), rng.standard_exponential((k, n))
    return a * rng.choice([-1, 1], (m, 1)), b * rng.choice([-1, 1], (1, n))


def _gram(rng: Random, m: int, n: int, k: int) -> tuple[Array, Array]:
    """Return A and its transpose, or as much of it: sums of squares on the diagonal."""
    a = rng.standard_normal((max(m, n), k))
    return a[:m], a[:n].T


def _constant(rng: Random, m: int, n: int, k: int) -> tuple[Array, Array]:
    """Return rows of one number: roundings of a plain sum have one sign for long."""
    return (
        np.broadcast_to(rng.random((m, 1)) + 0.5, (m, k)),
        np.broadcast_to(rng.random((1, n)) + 0.5, (k, n)),
    )


def _ordered(falling: bool) -> Pair:
    """Return positive terms by size: the sum is at full size early, or late."""

    def draw(rng: Random, m: int, n: int, k: int) -> tuple[Array, Array]:
        a, b = np.exp(rng.standard_normal((m, k))), np.exp(rng.standard_normal((k, n)))
        a, b = np.sort(a, axis=1), np.sort(b, axis=0)
        return (a[:, ::-1], b[::-1]) if falling else (a, b)

    return draw


def _cancelling(rng: Random, m: int, n: int, k: int) -> tuple[Array, Array]:
    """Return positive terms of which the second half takes back all but 2^-12 of the first."""
    half = k // 2
    a, b = rng.random((m, k)), rng.random((k, n))
    a[:, half : 2 * half] = a[:, :half]
    b[half : 2 * half] = -b[:half] * (1 + 2.0**-12 * rng.standard_normal((half, n)))
    return a, b


def _dominated(at: float, signed: bool) -> Pair:
    """Return rows and columns whose product has one term far above all others, not faint ones.

    `at` says where in k, from 0 to 1.  A plain sum that meets the large term last hardly rounds.
    """

    def draw(rng: Random, m: int, n: int, k: int) -> tuple[Array, Array]:
        a, b = (2.0**-8.5 * (1 + rng.random(shape)) for shape in ((m, k), (k, n)))
        if signed:
            a, b = a * rng.choice([-1, 1], a.shape), b * rng.choice([-1, 1], b.shape)
        place = round(at * (k - 1))
        a[:, place] = _worst_split(rng, (m, 1))[:, 0]
        b[place] = _worst_split(rng, (1, n))[0]
        return a, b

    return draw


def _spiked(rng: Random, m: int, n: int, k: int) -> tuple[Array, Array]:
    """Return rows of A with one entry far above the others."""
    a = rng.standard_normal((m, k))
    a[np.arange(m), rng.integers(0, k, m)] *= 2.0 ** rng.integers(4, 40)
    return a, rng.standard_normal((k, n))


def _apart(rng: Random, m: int, n: int, k: int) -> tuple[Array, Array]:
    """Return operands whose elements that are not 0 meet in a few terms only."""
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    meet = int(rng.integers(1, 5))
    a[:, : k // 2 - meet], b[k // 2 :] = 0, 0
    return a, b


def _powers(low: int, high: int) -> Pair:
    """Return normal numbers near the ends of the range: A 2^low, B 2^high."""
    return lambda rng, m, n, k: (
        np.ldexp(rng.standard_normal((m, k)), low), np.ldexp(rng.standard_normal((k, n)), high)
    )  # fmt: skip


def _not_finite(rng: Random, m: int, n: int, k: int) -> tuple[Array, Array]:
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    to = (a, b)[int(rng.integers(2))]
    to.flat[rng.integers(0, to.size)] = rng.choice([np.inf, -np.inf, np.nan])
    return a, b


NOT_FINITE = "an infinity or NaN"

DRAWN: dict[str, Pair] = {
    "normal": _alike(normal),
    "positive": _alike(lambda rng, shape: rng.random(shape)),
    "exponential": _alike(lambda rng, shape: rng.standard_exponential(shape)),
    "log-normal": _alike(lambda rng, shape: np.exp(rng.standard_normal(shape))),
    "near 1": _alike(lambda rng, shape: 1 + 1e-3 * rng.random(shape)),
    "rows of one sign": _signed_rows,
    "rows of one number": _constant,
    "A times its transpose": _gram,
    "positive, falling": _ordered(True),
    "positive, rising": _ordered(False),
    "cancelling": _cancelling,
    **{f"phi {spread:g}": _alike(phi(spread)) for spread in (0.5, 1, 2, 4)},
    "rows of any magnitude": _alike(_scaled_lines(1), _scaled_lines(0)),
    "worst second parts": _alike(_worst_split),
    "worst second parts by normal": _alike(_worst_split, normal),
    **{
        f"{bits} bits{', signed' if sign else ''}": _alike(_significant(bits, sign))
        for bits in (12, 16, 17)
        for sign in (False, True)
    },
    "12 bits by 2 bits": _alike(_significant(12, True), _significant(2, True)),
    **{f"integers of {bits} bits": _alike(integers(bits)) for bits in (3, 8, 11, 12, 16)},
    "former FP16 by normal": _alike(
        lambda rng, shape: rng.standard_normal(shape).astype(np.float16), normal
    ),
    "signs by normal": _alike(lambda rng, shape: rng.choice([-1.0, 1.0], shape), normal),
    "sparse": _alike(lambda rng, shape: rng.standard_normal(shape) * (rng.random(shape) < 0.3)),
    "one entry of a row above": _spiked,
    **{
        f"a term above all, {place}{', signed' if sign else ''}": _dominated(at, sign)
        for place, at in (("first", 0.0), ("midway", 0.5), ("last", 1.0))
        for sign in (False, True)
    },
    "identity": lambda rng, m, n, k: (np.eye(m, k), rng.standard_normal((k, n))),
    "few terms": _apart,
    "subnormal by large": _powers(-138, 100),
    "products that underflow": _powers(-70, -70),
    "large by small": _powers(110, -90),
    NOT_FINITE: _not_finite,
}
