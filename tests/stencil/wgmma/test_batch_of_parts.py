"""Batches of products of parts, each held back by a word of its own, on emulated tensor cores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.stencil.contract import thorough_but
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.wgmma.harness import FAMILY, Case, drawn, exact, small, variant
from tilewright.backend import Operand
from tilewright.space import Config
from tilewright.stencil.wgmma import ARITHMETICS, BatchOfParts, Parts, TensorCall

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")

# Which word asks for a product; where a product's numbers have its columns' exponents and its word,
# and how many 32-bit integers there are of each.
WANTED = 3
COLUMNS, WORD, NUMBERS = 128, 400, 512

# Of starts for products of parts: consumers that share a tile, in two sets of sums, and that take
# turns, whose roundings are made up for.
SHARED = {"block_m": 64, "block_n": 128, "consumers": 2, "partials": 2}
IN_TURN = {"block_m": 64, "block_n": 128, "consumers": 2, "partials": 2, "pingpong": 1}
THREE = {"block_m": 64, "block_n": 192, "consumers": 3, "partials": 1}


FP16X3 = variant("TN", replace(ARITHMETICS["fp16x3"], routed=True))


# All, none, and those of which some block begins or ends with one that is not wanted.
WORDS = [(1, 3, 3, 1), (3, 1, 3, 3), (3, 3, 3, 3), (0, 0, 0, 0)]


def config_of(live: EmulatedDevice, changes: dict[str, int]) -> Config:
    """Return a config of stages that are promoted twice."""
    same = {"block_k": 64, "promote_k": 32, "stages": 3, "multiprocessors": 132}
    return small(FP16X3, live, **same, **changes)


def products_of(
    live: EmulatedDevice, config: Config, case: Case, each: list[tuple[NDArray[Any], ...]],
    words: tuple[int, ...],
) -> NDArray[np.float32]:  # fmt: skip
    """Return the results of a batch by three blocks, 77 where nothing was written."""
    kernel = live.compile(FAMILY.source_for_batch_of_parts(config, FP16X3))
    a = np.stack([x[0] for x in each]).astype(np.float16)  # products, parts, m, k
    b = np.stack([x[1].swapaxes(1, 2) for x in each]).astype(np.float16)
    numbers = np.zeros((len(words), NUMBERS), np.int32)
    for at, (_, _, _, of_rows, of_columns) in enumerate(each):
        numbers[at, : case.m], numbers[at, COLUMNS : COLUMNS + case.n] = of_rows, of_columns
        numbers[at, WORD] = words[at]
    out = np.full((len(words), case.n, case.m), 77, np.float32)
    left, right, memory, result = (live.upload(x) for x in (a, b, numbers, out))
    call = TensorCall(
        case.m, case.n, case.k, 1, Parts(left, 0, case.k, case.m * case.k),
        Parts(right, 0, case.k, case.n * case.k), 0, Operand(result, 0, case.m),
        memory, memory + 4 * COLUMNS, memory + 4 * WORD, WANTED,
    )  # fmt: skip
    parts = FP16X3.arithmetic.parts
    batch = BatchOfParts(len(words), parts, case.m * case.n, NUMBERS, NUMBERS)
    launch, arguments = FAMILY.launch_of_batch_of_parts(config, FP16X3, call, batch)
    live.launch(kernel, replace(launch, grid=(3, 1)), arguments).wait()
    live.download(result, out)
    return out.swapaxes(1, 2)


@pytest.mark.parametrize("changes", [SHARED, IN_TURN, THREE])
@pytest.mark.parametrize("words", thorough_but([(1, 3, 3, 1)], WORDS))
def test_those_whose_word_says_so_are_computed(
    emulated: EmulatedDevice, changes: dict[str, int], words: tuple[int, ...]
) -> None:
    case, rng = Case(100, 200, 136), np.random.default_rng(0)
    each = [drawn(rng, case, FP16X3) for _ in words]
    found = products_of(emulated, config_of(emulated, changes), case, each, words)
    for got, word, one in zip(found, words, each, strict=True):
        expected = exact(case, FP16X3, one) if word == WANTED else np.full_like(got, 77)
        assert np.array_equal(got, expected)


@pytest.mark.parametrize("changes", [IN_TURN, THREE])
def test_roundings_of_promotions_are_made_up_for(
    emulated: EmulatedDevice, changes: dict[str, int]
) -> None:
    """2^24 and nine times 1, one an interval, are 2^24 + 8 in single precision, in each product."""
    config, case = config_of(emulated, changes), Case(70, 40, 320)
    assert FAMILY.compensates(config, FP16X3)
    a, b = np.zeros((2, case.m, case.k)), np.zeros((2, case.k, case.n))
    a[0, :, ::32], b[0, ::32] = 1, 1
    a[0, :, 0], b[0, 0] = 2.0**12, 2.0**12
    one = (a, b, np.zeros((case.m, case.n)), np.zeros(case.m, int), np.zeros(case.n, int))
    found = products_of(emulated, config, case, [one] * 4, (WANTED,) * 4)
    assert np.all(found == 2.0**24 + 8)
