"""Panels split once: the guard's counts of two say what it decides of their product."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.backend import LiveDevice, Operand
from tilewright.serve.split.decision import DECISION_WORDS
from tilewright.serve.split.product import serve_unproved
from tilewright.serve.streamed.parts import Rooms, are_multiplied, steps_to_split
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
    memory = [live.upload(np.zeros(300, np.int32))]
    tops = memory[0]

    def decided(stored, x):
        memory.append(live.upload(x))
        operand = Operand(memory[-1], 0, x.shape[1])
        sizes = 8 * x.size, numbers_bytes(stored.side), 4 * DECISION_WORDS
        memory.extend(live.allocate(size) for size in sizes)
        for kernel, launch, arguments in steps_to_split(
            live, stored, operand, Rooms(*memory[-3:]), tops
        ):
            live.launch(kernel, launch, arguments).wait()
        words = np.empty(DECISION_WORDS, np.int32)
        live.download(memory[-1], words)
        return words

    try:
        told = tw.Decision()
        with serve_unproved():
            tw.gemm(a, b, accuracy="fp32", report=told, device=live)
        words = decided(Stored(m, k, True), a), decided(Stored(n, k, False), b)
        assert are_multiplied(*words, k) == (told.variant == "fp16x3")
    finally:
        for one in memory:
            live.free(one)


def test_rooms_fit_into_what_is_taken_for_them():
    for side, k, k_fast in ((1, 1, True), (100, 7, False), (4096, 2048, True), (33, 9999, False)):
        rooms = Rooms.within(0, Stored(side, k, k_fast))
        lines = -(-side // 32) * 32, -(-k // 32) * 32
        assert rooms.numbers <= 4 * lines[0] * lines[1]
        assert rooms.decision + 4 * DECISION_WORDS - rooms.numbers <= numbers_bytes(side)
        assert rooms.numbers % 256 == rooms.decision % 16 == 0
