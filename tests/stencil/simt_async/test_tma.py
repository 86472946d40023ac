"""Tiles that the copy engine brings, run on the CPU: every way through them is right.

The emulator lets warps pass each other between barriers, and boxes arrive at once or as late as
somebody waits for them: whoever reads or asks too early computes something else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.stencil.contract import checks, compiled, computes_the_product, faulty
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tests.stencil.simt_async.test_stencil import small
from tilewright.backend import GemmCall, LaunchError, Operand
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import TensorMap, Variant
from tilewright.stencil.simt_async import SimtAsync
from tilewright.stencil.simt_async.tma import maps
from tilewright.tuning.verify import Bench, Check, WrongResultError, certify

FAMILY = SimtAsync()
HOPPER = architecture_spec("sm_90a")

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")

# Persistent blocks take tile after tile, and share what is left.
WAYS: list[dict[str, int]] = [{}, {"persistent": 1}, {"persistent": 1, "stream_k": 2}]

# Results pass through the last stage, in front of its barriers.
STAGED = [{"block_k": 16, "unroll_k": 16, **way} for way in WAYS]


def boxed(of: Variant, live: EmulatedDevice, **changes: int) -> Config:
    """Return a config of two warps whose tiles come in boxes."""
    return small(of, live, **{"tma": 1, "block_k": 8, **changes})


@needs_compiler
def test_the_contract_is_kept(emulated: EmulatedDevice) -> None:
    """All classes of alpha and beta, single elements, k = 0, C anywhere, NaN and Inf."""
    of = variant("sNT")
    config = boxed(of, emulated)
    certify(emulated, compiled(emulated, FAMILY, config, of), FAMILY, config, of)


@needs_compiler
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    made=st.sampled_from([("plain", way) for way in WAYS] + [("staged", way) for way in STAGED]),
    check=checks(chunk=4, most_k=200),
    blocks=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_problem_is_computed_exactly(
    emulated: EmulatedDevice, made: tuple[str, dict[str, int]], check: Check, blocks: int, seed: int
) -> None:
    """Sides and sums shorter than a box, one that is empty, and rings that go round."""
    of, (mode, way) = variant("sNT"), made
    config = boxed(of, emulated, **way)
    kernel = compiled(emulated, FAMILY, config, of, mode)
    Bench(emulated, kernel, FAMILY, config, of, blocks).exact(check, np.random.default_rng(seed))


@pytest.mark.every(2)
@needs_compiler
@pytest.mark.parametrize(
    ("name", "way"),
    [("cNT", WAYS[0]), ("cNC", WAYS[2]), ("dNT", WAYS[2]), ("zNT", WAYS[2])],
)
def test_other_elements_come_as_numbers_of_a_map(
    emulated: EmulatedDevice, name: str, way: dict[str, int]
) -> None:
    """One of 8 bytes is a double to the copy engine, one of 16 bytes is two."""
    of = variant(name)
    computes_the_product(emulated, FAMILY, boxed(of, emulated, **way), of)


@pytest.mark.every(2)
@needs_compiler
@pytest.mark.parametrize(
    "changes",
    [
        {"stages": 2, "block_k": 4},
        {"stages": 5, "block_k": 6, "persistent": 1},
        {"cluster_k": 2, "block_k": 12},
        {"block_m": 96, "block_n": 64, "tile_m": 12, "tile_n": 16, "persistent": 1, "stream_k": 1},
    ],
    ids=str,
)
def test_every_shape_of_a_box_is_right(emulated: EmulatedDevice, changes: dict[str, int]) -> None:
    """Also three quarters of a power of two, which threads could not copy evenly."""
    of = variant("sNT")
    unrolled = {"unroll_k": changes.get("block_k", 8)}
    computes_the_product(emulated, FAMILY, boxed(of, emulated, **changes, **unrolled), of)


@pytest.mark.thorough
@needs_compiler
def test_the_starts_in_boxes_are_right(emulated: EmulatedDevice) -> None:
    """Thread tiles of 12 x 16, of which four warps make 96 x 256 or 192 x 128."""
    of = variant("sNT")
    starts = [one for one in FAMILY.starts(of, HOPPER) if one.get("tma", 0)]
    assert {one["tile_m"] for one in starts} == {12}
    for config in starts:
        assert config in FAMILY.space(of, HOPPER)
        computes_the_product(emulated, FAMILY, config, of)


# What each is without, or has instead.
FAULTS = {
    "boxes come where others still read": ("wait_for(empty_of(into), parity ^ first);", ""),
    "a stage that was never full is waited for": ("parity ^ first", "parity"),
    "nobody says that a stage is read": ("arrive(empty_of(tiles + stage));", ";"),
    "a lane says it for those behind it": ("warp_barrier();\n                if (is_e", "if (is_e"),
    "a tile is read before it is there": ("wait_for(full_of(tiles + stage), parity);", ";"),
    "the first tile is read before it is there": ("wait_for(full_of(tiles), 0);", ""),
    "the second round's tiles are taken for there": ("parity ^= last;", ""),
    "barriers are met before they are begun": ("BARRIER(); /* the stages' barr", "; /* the stages"),
    "the next piece comes over the last one's tiles": ("BARRIER(); /* all have", "; /* all have"),
    "the remainder of k is left out": (
        "mine.first_depth + (mine.begin - 1) * BLOCK_K", "(mine.begin - 1) * BLOCK_K"
    ),
    "a tile is asked for twice": ("f->bring(into);\n                f->k_at += BLOCK_K;",
                                  "f->bring(into);"),
    "the bytes of one operand are awaited": (
        "BLOCK_K * (BLOCK_M + BLOCK_N) * ELEM_BYTES", "BLOCK_K * BLOCK_M * ELEM_BYTES"
    ),
}  # fmt: skip


@pytest.mark.every(3)
@needs_compiler
@pytest.mark.parametrize("fault", FAULTS)
def test_the_emulator_finds(emulated: EmulatedDevice, fault: str) -> None:
    """Each, put into the text, shows in some order of warps and copies."""
    of = variant("sNT")
    config = boxed(of, emulated, stages=2, **(WAYS[2] if "piece" in fault else {}))
    kernel = compiled(emulated, faulty(SimtAsync, *FAULTS[fault]), config, of)

    def check_all() -> None:
        for blocks in (2, 3, 5) * 4:
            run = Bench(emulated, kernel, FAMILY, config, of, blocks)
            run.exact(Check(130, 70, 100, beta=1), np.random.default_rng(blocks))

    with pytest.raises((WrongResultError, LaunchError)) as found:
        check_all()
    if fault == "nobody says that a stage is read":  # so that who asks waits for ever
        assert "a barrier is not met by all" in str(found.value)


# -- maps, and what they ask of operands ---------------------------------------------------


def call(letter: str, *, lda: int = 100, offset: int = 0, k: int = 30) -> GemmCall:
    """Return a 100 x 60 product of operands that run along m and n."""
    a, b = Operand("A", offset, lda), Operand("B", 0, 60)
    return GemmCall(precision(letter), 100, 60, k, 1, a, b, 0, Operand("C", 0, 100))


def shape(**changes: int) -> Config:
    """Return the likeliest config of a large S NT product in boxes, changed."""
    starts = FAMILY.starts(variant("sNT"), HOPPER)
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
        FAMILY.arguments(shape(), variant(letter + "NT"), call(letter, **laid))
    assert "\n" not in str(refused.value)


def test_arguments_of_other_configs_are_the_common_ones() -> None:
    common = FAMILY.arguments(shape(tma=0), variant("sNT"), call("s"))
    assert len(FAMILY.arguments(shape(), variant("sNT"), call("s"))) == len(common) + 2
    assert FAMILY.common_arguments(shape(tma=0))
    assert not FAMILY.common_arguments(shape())
    assert [FAMILY.operand_alignment(shape(tma=n)) for n in (0, 1)] == [1, 16]


@pytest.mark.parametrize(
    ("letter", "lda", "ldb", "taken"),
    [("s", 104, 60, True), ("s", 102, 60, False), ("s", 104, 62, False), ("d", 102, 62, True),
     ("c", 101, 60, False), ("z", 101, 61, True)],
)  # fmt: skip
def test_leading_dimensions_say_who_may_read_boxes(
    letter: str, lda: int, ldb: int, taken: bool
) -> None:
    problem = Problem(100, 60, 30, letter, "N", "T", lda, ldb)
    assert FAMILY.takes(shape(), problem) is taken
    assert FAMILY.takes(shape(tma=0), problem)
    assert not FAMILY.geometry(shape()).mode(problem).scalar  # nothing else would be a box


# -- the space -----------------------------------------------------------------------------


def broken(name: str, arch: str = "sm_90a", **changes: int) -> list[str]:
    """Return the hard constraints that a config in boxes violates."""
    space = FAMILY.space(variant(name), architecture_spec(arch))
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
    config = next(one for one in FAMILY.starts(of, HOPPER) if one.get("tma", 0))
    able = FAMILY.modes(config, of, HOPPER)
    assert [str(mode) for mode in able] == ["plain", "staged"]


@pytest.mark.parametrize("name", ["sNN", "sTN", "sTT", "eNT", "fNT"])
def test_no_boxes_along_k_nor_of_pairs(name: str) -> None:
    """The engine transposes nothing; sums of pairs are renormalised between tiles elsewhere."""
    assert "no TMA" in broken(name)
    space = FAMILY.space(variant(name), HOPPER)
    assert all(one.get("tma", 0) == 0 for one in space.sample(200, 0))


def test_older_devices_have_no_copy_engine() -> None:
    assert "TMA" in broken("sNT", "sm_80")
    assert "TMA" not in broken("sNT")


def test_a_side_has_256_numbers_at_most() -> None:
    """An element of 16 bytes is two of them."""
    assert "sides of a box" not in broken("dNT")
    assert "sides of a box" in broken("zNT")
    assert "sides of a box" not in broken("zNT", block_n=128)
