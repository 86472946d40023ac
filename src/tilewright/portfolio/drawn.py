"""Shapes that portfolios are measured on and picked by, as users have them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from tilewright.precision import Precision
from tilewright.problem import Problem
from tilewright.stencil import Variant

__all__ = ["KINDS", "MOST_BYTES", "drawn_batches", "drawn_sides", "every_kind"]

# Of a matrix at most: bytes, which the long operand of a skinny product fills; and elements where
# all sides are drawn alike, with which no kernel takes a tenth of a second.
MOST_BYTES, _MOST_ELEMENTS = 1 << 30, 1 << 25

# The binary logarithm of the longest side; and multiply-adds at most, a second or so.
_LONGEST, _MOST_PRODUCTS = 14.0, 2.0**40

# The longest short side, and the longest sum.
_SHORT, _LONGEST_SUM = 128, 500_000

# Multiply-adds of long sums at most: some milliseconds.
_LONG_PRODUCTS = 2.0**36

# Elements of the largest operand of all of a batch: beyond these, time grows in proportion.
_BATCH_ELEMENTS = 1 << 26

# Blocks in z of a launch at most.
_MOST_BATCH = 65535


def drawn_sides(seed: int) -> Iterator[tuple[int, int, int]]:
    """Yield m, n and k as users have them: log-uniform from 1 on, every third side odd."""
    rng = np.random.default_rng(seed)
    while True:
        sides = [max(1, round(2.0 ** rng.uniform(0, _LONGEST))) for _ in "mnk"]
        odd = rng.random(3) < 1 / 3
        m, n, k = (
            x | 1 if is_odd else x // 8 * 8 or x for x, is_odd in zip(sides, odd, strict=True)
        )
        if m * n * k <= _MOST_PRODUCTS:
            yield m, n, k


def drawn_batches(variant: Variant, seed: int, count: int) -> Iterator[Problem]:
    """Yield batches: sides to 45, to 512, from 64 to 512 and from 32 to 2048 in turn.

    They are 8 or more, every eighth odd; every fifth batch is of multiples of 64, to 1024, as users
    pad to.  A third of batches does not fill a device.
    """
    rng = np.random.default_rng(seed)
    for number in range(count):
        least, most = ((3.0, 5.5), (3.0, 9.0), (6.0, 9.0), (5.0, 11.0), (6.0, 10.0))[number % 5]
        sides = [round(2.0**x) for x in rng.uniform(least, most, 3)]
        odd = rng.random(3) < 1 / 8
        m, n, k = (x | 1 if o else x // 8 * 8 for x, o in zip(sides, odd, strict=True))
        if number % 5 == 4:
            m, n, k = (round(x / 64) * 64 for x in sides)
        largest = _BATCH_ELEMENTS / max(m * n, m * k, n * k)
        share = rng.uniform(0.1, 0.6) if rng.random() < 1 / 3 else rng.uniform(0.6, 1.0)
        batch = min(_MOST_BATCH, max(2, round(largest**share)))
        ops = variant.trans_a, variant.trans_b
        yield Problem(m, n, k, variant.precision, *ops, batch=batch)


def _any(seed: int, of: Precision) -> Iterator[tuple[int, int, int]]:
    for m, n, k in drawn_sides(seed):
        if max(m * n, m * k, k * n) <= _MOST_ELEMENTS:
            yield m, n, k


def _skinny(seed: int, of: Precision) -> Iterator[tuple[int, int, int]]:
    """Yield m, n and k: one side is short, the other one and k are log-uniform.

    A third of the long ones is odd, a third a multiple of 8, a third anything.
    """
    rng = np.random.default_rng(seed)
    for number in itertools.count():
        short = round(2.0 ** rng.uniform(0, math.log2(_SHORT)))
        long = round(2.0 ** rng.uniform(0, 14))
        k = round(2.0 ** rng.uniform(0, math.log2(_LONGEST_SUM)))
        long, k = (
            (x | 1, x // 8 * 8 or x, x)[kind]
            for x, kind in zip((long, k), rng.integers(3, size=2), strict=True)
        )
        if max(long, short) * k * of.element_bytes <= MOST_BYTES:
            yield (short, long, k) if number % 2 else (long, short, k)


def _large(seed: int, of: Precision) -> Iterator[tuple[int, int, int]]:
    """Yield multiples of 8, and every third time odd sides."""
    rng = np.random.default_rng(seed)
    for number in itertools.count():
        m, n, k = (round(2.0**x) // 8 * 8 | (number % 3 == 2) for x in rng.uniform(11, 13, 3))
        yield m, n, k


def _layers(seed: int, of: Precision) -> Iterator[tuple[int, int, int]]:
    """Yield layers of language models: rows of tokens times weights, in either storage order.

    Two thirds are drawn of up to 256 tokens, as many as are decoded at once.
    """
    rng = np.random.default_rng(seed)
    for number in itertools.count():
        tokens = round(2.0 ** rng.uniform(0, 12 if number % 3 == 0 else 8))
        out, features = (round(2.0**x) // 64 * 64 for x in rng.uniform(10, 15, 2))
        longest = max(out * features, tokens * max(out, features))
        if longest * of.element_bytes <= MOST_BYTES:
            yield (out, tokens, features) if number % 2 else (tokens, out, features)


def _thin(seed: int, of: Precision) -> Iterator[tuple[int, int, int]]:
    """Yield results of short sums, whose time is that of writing C: every third aligned."""
    rng = np.random.default_rng(seed)
    for number in itertools.count():
        m, n = (round(2.0**x) for x in rng.uniform(4, 13.5, 2))
        k = round(2.0 ** rng.uniform(0, 6))
        if m * n * of.element_bytes <= MOST_BYTES:
            yield (m, n, k) if number % 3 else (m // 8 * 8, n // 8 * 8, -(-k // 8) * 8)


def _long(seed: int, of: Precision) -> Iterator[tuple[int, int, int]]:
    """Yield small results of long sums, such as Gram matrices: every third square."""
    rng = np.random.default_rng(seed)
    for number in itertools.count():
        m, n = (round(2.0**x) for x in rng.uniform(3, 11, 2))
        k = round(2.0 ** rng.uniform(10, 18))
        m, n, k = (
            x | 1 if odd else -(-x // 8) * 8
            for x, odd in zip((m, n, k), rng.random(3) < 1 / 3, strict=True)
        )
        n = m if number % 3 == 2 else n
        if max(m, n) * k * of.element_bytes <= MOST_BYTES and m * n * k <= _LONG_PRODUCTS:
            yield m, n, k


# What shapes are drawn, by name.
KINDS = {
    "any": _any, "short": _skinny, "large": _large, "layers": _layers, "thin": _thin, "long": _long,
}  # fmt: skip


def every_kind(seed: int, of: Precision) -> Iterator[tuple[int, int, int]]:
    """Yield sides of every kind in turn."""
    for sides in zip(*(kind(seed, of) for kind in KINDS.values()), strict=True):
        yield from sides
