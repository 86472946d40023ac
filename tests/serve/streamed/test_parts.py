"""Operands split once: the guard's counts of two say what it decides of their product."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from tilewright.backend import LiveDevice, Operand
from tilewright.serve.decision import DECISION_WORDS
from tilewright.serve.streamed.parts import Part, SplitOperand, are_multiplied, steps_to_split
from tilewright.serve.streamed.tiling import HostCuts, Tiling
from tilewright.serve.unproved import serve_unproved
from tilewright.stencil.split.sources import Stored


def spread(rng, shape, bits):
    """Return numbers of which some are fainter than others."""
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-bits, 1, shape)).astype("f4")


DRAWN = {
    "random": lambda rng, shape: spread(rng, shape, 0),
    "a little faint": lambda rng, shape: spread(rng, shape, 14),
    "faint": lambda rng, shape: spread(rng, shape, 40),
    "short": lambda rng, shape: rng.integers(-7, 8, shape).astype("f4"),
    "infinite": lambda rng, shape: np.where(rng.random(shape) < 1e-3, np.inf, 1).astype("f4"),
}


def split(live, stored, x):
    """Return the guard's words of a matrix, and its sides' exponents."""
    sides = -(-stored.side // 4) * 4
    held = [live.upload(np.zeros(4 + sides, np.int32)), live.upload(x)]
    held += [live.allocate(size) for size in (8 * x.size, 4 * (5 * sides + 4), 4 * DECISION_WORDS)]
    tops, operand, parts, numbers, decision = held
    ld = x.shape[1]
    to = Part(stored.k_fast, parts, -(-x.size // 8) * 8, -(-ld // 8) * 8, numbers)
    try:
        steps = steps_to_split(live, stored, Operand(operand, 0, ld), to, sides, tops, decision)
        for kernel, launch, arguments in steps:
            live.launch(kernel, launch, arguments).wait()
        words, exponents = np.empty(DECISION_WORDS, np.int32), np.empty(stored.side, np.int32)
        live.download(decision, words)
        live.download(numbers, exponents)
        return words, exponents
    finally:
        for one in held:
            live.free(one)


@pytest.mark.parametrize("of_a", DRAWN)
@pytest.mark.parametrize("of_b", DRAWN)
def test_pieces_are_multiplied_as_their_product_alone(live: LiveDevice, of_a, of_b):
    rng = np.random.default_rng(5)
    m, n, k = 60, 40, 300
    a, b = DRAWN[of_a](rng, (m, k)), DRAWN[of_b](rng, (k, n))
    told = tw.Decision()
    with serve_unproved():
        tw.gemm(a, b, accuracy="fp32", report=told, device=live)
    stored = Stored(m, k, True)
    (words_b, _), (words_a, whole) = split(live, Stored(n, k, False), b), split(live, stored, a)
    takes = told.variant == "fp16x3"
    assert are_multiplied(words_a, words_b, k) == takes
    # Of the rows of A in two pieces: what one of them is refused for, the whole is.
    first, second = (split(live, replace(stored, side=len(x)), x) for x in (a[:32], a[32:]))
    assert are_multiplied(first[0], words_b, k) >= takes
    assert np.array_equal(np.concatenate([first[1], second[1]]), whole)


@pytest.mark.parametrize("size", [1500, 4000, 20_000])
@pytest.mark.parametrize("k_fast", [False, True])
def test_parts_fit_into_what_is_taken_for_them(size, k_fast):
    found = Tiling.of(size, size + 77, size - 3, 4, 2**40, HostCuts(True, 2400, 16), split=True)
    for sides in (found.m, found.n):
        of = SplitOperand(sides[-1][1], found.k, len(sides), k_fast)
        assert of.size <= found.parts_bytes(sides, 4)
        ends = 4 * of.part(0, 0, 0).stride
        for p in range(len(found.k)):
            for start, _ in sides:
                part = of.part(start, p, 0)
                assert part.address % 16 == part.exponents % 16 == 0
            numbers = of.part(0, p, p).exponents
            assert numbers >= ends
            ends = numbers + 4 * (5 * of.sides + 4)
        assert of.size >= ends
