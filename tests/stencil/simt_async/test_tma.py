"""Tiles that come in TMA boxes: maps, what they ask of operands, and who may have them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stencil.contract import computes_the_product
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tests.stencil.ways import SIMT
from tilewright.backend import GemmCall, Operand
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import TensorMap
from tilewright.stencil.simt_async.tma import maps

HOPPER = architecture_spec("sm_90a")

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


@pytest.mark.thorough
@needs_compiler
def test_the_starts_in_boxes_are_right(emulated: EmulatedDevice) -> None:
    """Thread tiles of 12 x 16, of which four warps make 96 x 256 or 192 x 128."""
    of = variant("sNT")
    starts = [one for one in SIMT.starts(of, HOPPER) if one.get("tma", 0)]
    assert {one["tile_m"] for one in starts} == {12}
    for config in starts:
        assert config in SIMT.space(of, HOPPER)
        computes_the_product(emulated, SIMT, config, of)


# -- maps, and what they ask of operands ---------------------------------------------------


def call(letter: str, *, lda: int = 100, offset: int = 0, k: int = 30) -> GemmCall:
    """Return a 100 x 60 product of operands that run along m and n."""
    a, b = Operand("A", offset, lda), Operand("B", 0, 60)
    return GemmCall(precision(letter), 100, 60, k, 1, a, b, 0, Operand("C", 0, 100))


def shape(**changes: int) -> Config:
    """Return the likeliest config of a large S NT product in boxes, changed."""
    starts = SIMT.starts(variant("sNT"), HOPPER)
    return next(one for one in starts if one.get("tma", 0)).replace(**changes)


def test_a_map_counts_in_floats_or_doubles() -> None:
    """A's box is block_m x block_k; strides are bytes from one step of k to the next."""
    a, b = maps(shape(), variant("sNT"), call("s", offset=8))
    assert a == TensorMap("A", 32, "float32", (100, 30), (400,), (96, 8))
    assert b == TensorMap("B", 0, "float32", (60, 30), (240,), (256, 8))
    doubles, _ = maps(shape(block_n=64), variant("zNT"), call("z"))
    assert doubles == TensorMap("A", 0, "float64", (200, 30), (1600,), (192, 8))
    empty, _ = maps(shape(), variant("sNT"), call("s", k=0))
    assert empty.sizes == (100, 1)  # no side of a map may be zero


@pytest.mark.parametrize(
    ("letter", "laid", "said"),
    [
        ("s", {"lda": 102}, "a has offset=0 and ld=102, no multiples of 16 bytes; use .* tma=0"),
        ("s", {"offset": 3}, "a has offset=3 and ld=100, no multiples of 16 bytes"),
        ("c", {"lda": 101}, "a has offset=0 and ld=101, no multiples of 16 bytes"),
    ],
)
def test_columns_that_the_engine_cannot_read_are_refused(
    letter: str, laid: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        SIMT.arguments(shape(), variant(letter + "NT"), call(letter, **laid))
    assert "\n" not in str(refused.value)


def test_arguments_of_other_configs_are_the_common_ones() -> None:
    common = SIMT.arguments(shape(tma=0), variant("sNT"), call("s"))
    assert len(SIMT.arguments(shape(), variant("sNT"), call("s"))) == len(common) + 2
    assert SIMT.common_arguments(shape(tma=0))
    assert not SIMT.common_arguments(shape())
    assert [SIMT.operand_alignment(shape(tma=n)) for n in (0, 1)] == [1, 16]


@pytest.mark.parametrize(
    ("letter", "lda", "ldb", "taken"),
    [("s", 104, 60, True), ("s", 102, 60, False), ("s", 104, 62, False), ("d", 102, 62, True),
     ("c", 101, 60, False), ("z", 101, 61, True)],
)  # fmt: skip
def test_leading_dimensions_say_who_may_read_boxes(
    letter: str, lda: int, ldb: int, taken: bool
) -> None:
    problem = Problem(100, 60, 30, letter, "N", "T", lda, ldb)
    assert SIMT.takes(shape(), problem) is taken
    assert SIMT.takes(shape(tma=0), problem)
    assert not SIMT.geometry(shape()).mode(problem).scalar  # nothing else would be a box


# -- the space -----------------------------------------------------------------------------


def broken(name: str, arch: str = "sm_90a", **changes: int) -> list[str]:
    """Return the hard constraints that a config in boxes violates."""
    space = SIMT.space(variant(name), architecture_spec(arch))
    found = space.violated(shape(**changes))
    return [one.name for one in found if one.kind in ("divisibility", "hardware")]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, []),
        ({"block_k": 16}, ["TMA tiles unrolled whole"]),
        ({"tma": 0}, ["A is copied evenly", "registers of a thread"]),
    ],
    ids=str,
)
def test_boxes_are_for_what_they_can_do(changes: dict[str, int], why: list[str]) -> None:
    assert broken("sNT", **changes) == why


def test_boxes_are_neither_copied_by_elements_nor_clamped() -> None:
    of = variant("sNT")
    config = next(one for one in SIMT.starts(of, HOPPER) if one.get("tma", 0))
    able = SIMT.modes(config, of, HOPPER)
    assert [str(mode) for mode in able] == ["plain", "staged"]


@pytest.mark.parametrize("name", ["sNN", "sTN", "sTT", "eNT", "fNT"])
def test_no_boxes_along_k_nor_of_pairs(name: str) -> None:
    """The engine transposes nothing; sums of pairs are renormalised between tiles elsewhere."""
    assert "no TMA" in broken(name)
    space = SIMT.space(variant(name), HOPPER)
    assert all(one.get("tma", 0) == 0 for one in space.sample(200, 0))


def test_older_devices_have_no_copy_engine() -> None:
    assert "TMA" in broken("sNT", "sm_80")
    assert "TMA" not in broken("sNT")


def test_a_side_has_256_numbers_at_most() -> None:
    """An element of 16 bytes is two of them."""
    assert "sides of a box" not in broken("dNT")
    assert "sides of a box" in broken("zNT")
    assert "sides of a box" not in broken("zNT", block_n=128)
