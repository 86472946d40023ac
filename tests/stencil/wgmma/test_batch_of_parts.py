"""Batches of products of parts, each held back by a word of its own, on emulated tensor cores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.wgmma.harness import FAMILY, Case, drawn, exact, small, variant
from tilewright.backend import Operand
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


@pytest.mark.parametrize("changes", [SHARED, IN_TURN, THREE])
@pytest.mark.parametrize("words", [(3, 3, 3, 3), (3, 1, 3, 3), (1, 3, 3, 1), (0, 0, 0, 0)])
def test_those_whose_word_says_so_are_computed(
    emulated: EmulatedDevice, changes: dict[str, int], words: tuple[int, ...]
) -> None:
    of = variant("TN", replace(ARITHMETICS["fp16x3"], routed=True))
    config = small(of, emulated, block_k=64, promote_k=32, stages=3, multiprocessors=132, **changes)
    kernel = emulated.compile(FAMILY.source_for_batch_of_parts(config, of))
    case, rng = Case(100, 200, 136), np.random.default_rng(0)
    each = [drawn(rng, case, of) for _ in words]
    a = np.stack([x[0] for x in each]).astype(np.float16)  # products, parts, m, k
    b = np.stack([x[1].swapaxes(1, 2) for x in each]).astype(np.float16)
    left, right = emulated.upload(a), emulated.upload(b)
    numbers = np.zeros((len(words), NUMBERS), np.int32)
    for at, (_, _, _, of_rows, of_columns) in enumerate(each):
        numbers[at, : case.m], numbers[at, COLUMNS : COLUMNS + case.n] = of_rows, of_columns
        numbers[at, WORD] = words[at]
    memory = emulated.upload(numbers)
    out = np.full((len(words), case.n, case.m), 77, np.float32)
    result = emulated.upload(out)
    call = TensorCall(
        case.m, case.n, case.k, 1, Parts(left, 0, case.k, case.m * case.k),
        Parts(right, 0, case.k, case.n * case.k), 0, Operand(result, 0, case.m),
        memory, memory + 4 * COLUMNS, memory + 4 * WORD, WANTED,
    )  # fmt: skip
    batch = BatchOfParts(len(words), of.arithmetic.parts, case.m * case.n, NUMBERS, NUMBERS)
    launch, arguments = FAMILY.launch_of_batch_of_parts(config, of, call, batch)
    emulated.launch(kernel, replace(launch, grid=(3, 1)), arguments).wait()
    emulated.download(result, out)
    for at, word in enumerate(words):
        expected = exact(case, of, each[at]) if word == WANTED else np.full_like(out[at].T, 77)
        assert np.array_equal(out[at].T, expected)
