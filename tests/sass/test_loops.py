"""Loops, their mix, and the formula of the paper's Figure 1."""

from __future__ import annotations

import pytest

from tests.sass.compiled import cubin, kept
from tests.sass.words import branch_back, ffma, word
from tilewright.sass import Loop, decode, ffma_share, find_loops, main_loop, read_cubin
from tilewright.sass.decode import decode_one
from tilewright.sass.loops import is_useful


def _loop(data: bytes, kernel: str | None = None) -> Loop:
    found = read_cubin(data).kernel(kernel)
    loop = main_loop(decode(found.code, found.arch))
    assert loop is not None
    return loop


# Lai & Seznec, section 2.2 and section 3: 6 x 6 gives 75 % with LDS, 85.7 % with LDS.64, and
# LDS.128 a ratio of 12 : 1; without blocking a third of the instructions are FFMA.
@pytest.mark.parametrize(
    ("blocking", "bits", "share"),
    [(1, 32, 1 / 3), (6, 32, 0.75), (6, 64, 0.857), (6, 128, 12 / 13), (16, 128, 256 / 264)],
)
def test_the_formula_gives_the_papers_numbers(blocking: int, bits: int, share: float) -> None:
    assert ffma_share(blocking, bits) == pytest.approx(share, abs=5e-4)


def test_the_mix_of_a_kept_kernel() -> None:
    loop = _loop(kept("sm_80"))
    assert loop.useful == 8 * 16  # 8 steps of k of a 4 x 4 tile
    mix = loop.mix()
    assert mix["multiply-add"] == 128
    assert mix["shared load"] == 16
    assert mix["global load"] == mix["shared store"] == 4
    assert sum(mix.values()) == len(loop.instructions)


def test_the_loop_over_k_is_found_in_tensor_core_kernels() -> None:
    data = cubin("tensor", "sm_80")
    assert _loop(data, "hmma").names()["HMMA.16816.F32"] == 2 * 4 * 8
    assert _loop(data, "dmma").names()["DMMA.884"] % 32 == 0
    warpgroup = cubin("bulk", "sm_90a", (("WG", 1),))
    assert _loop(warpgroup).useful % 4 == 0


def _at(instructions: list) -> list:
    return [decode_one(i.raw, 16 * n, 80) for n, i in enumerate(instructions)]


def test_an_enclosing_loop_does_not_hide_the_inner_one() -> None:
    body = [ffma(1, 2, 3, 1)] * 8
    inner = _at([*body, branch_back(8 * 16, 8 * 16)])
    epilogue = _at([*inner, *[ffma(1, 2, 3, 1)] * 4, branch_back(13 * 16, 13 * 16)])
    assert [loop.end for loop in find_loops(epilogue)] == [8 * 16, 13 * 16]
    loop = main_loop(epilogue)
    assert loop is not None
    assert (loop.start, loop.end, loop.useful) == (0, 8 * 16, 8)


def test_of_two_loops_over_k_in_a_loop_over_tiles_one_is_the_main_one() -> None:
    """As where blocks stay: one loop for inner tiles, a longer one for the edges of C."""
    inner = [*[ffma(1, 2, 3, 1)] * 8, branch_back(8 * 16, 8 * 16)]
    edges = [*[ffma(1, 2, 3, 1)] * 9, branch_back(9 * 16, 18 * 16)]
    tiles = [*inner, *edges, *[ffma(1, 2, 3, 1)] * 3, branch_back(22 * 16, 22 * 16)]
    loop = main_loop(_at(tiles))
    assert loop is not None
    assert (loop.start, loop.end, loop.useful) == (0, 8 * 16, 8)


def test_a_remainder_loop_is_not_the_main_one() -> None:
    main = [*[ffma(1, 2, 3, 1)] * 8, branch_back(8 * 16, 8 * 16)]
    remainder = [*[ffma(1, 2, 3, 1)] * 2, branch_back(2 * 16, 11 * 16)]
    loop = main_loop(_at([*main, *remainder]))
    assert loop is not None
    assert loop.useful == 8


def test_a_loop_without_multiply_adds_is_not_the_main_one() -> None:
    assert main_loop(_at([decode_one(word(0x918), 0, 80), branch_back(16, 16)])) is None
    assert find_loops(_at([branch_back(0, 0)])) == ()  # a branch to itself is padding


def test_a_multiply_by_rz_only_moves_a_constant() -> None:
    assert not is_useful(ffma(1, 255, 2, 3))
    assert is_useful(ffma(1, 2, 255, 3))
