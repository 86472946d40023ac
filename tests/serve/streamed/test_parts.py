"""Panels split once: the guard's counts of two say what it decides of their product."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import tilewright as tw
from tilewright.backend import LiveDevice, Operand
from tilewright.problem import Problem
from tilewright.serve.split.product import serve_unproved
from tilewright.serve.streamed.parts import Splitter
from tilewright.serve.streamed.tiling import numbers_bytes
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


@pytest.mark.parametrize("of_a", DRAWN)
@pytest.mark.parametrize("of_b", DRAWN)
def test_two_panels_are_multiplied_as_their_product_alone(live: LiveDevice, of_a, of_b):
    rng = np.random.default_rng(5)
    m, n, k = 60, 37, 300
    a, b = DRAWN[of_a](rng, (m, k)), DRAWN[of_b](rng, (k, n))
    memory = [live.upload(a), live.upload(b)]

    def allocate(size):
        memory.append(live.allocate(size))
        return memory[-1]

    def room(side, terms):
        return allocate(4 * side * terms * 2), allocate(numbers_bytes(side)), allocate(64)

    try:
        splitter = Splitter(live, None, allocate, max(m, n))
        panels = [
            splitter.split(Stored(m, k, True), Operand(memory[0], 0, k), room(m, k), ()),
            splitter.split(Stored(n, k, False), Operand(memory[1], 0, n), room(n, k), ()),
        ]
        told = tw.Decision()
        with serve_unproved():
            tw.gemm(a, b, accuracy="fp32", report=told, device=live)
            found = splitter.route(Problem(m, n, k, "s"), SimpleNamespace(alpha=1, beta=0), *panels)
        assert found == told.variant
    finally:
        live.finish()
        for one in memory:
            live.free(one)
