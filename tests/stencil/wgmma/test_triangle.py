"""One triangle of a tensor-core product, its text run on the CPU."""

from __future__ import annotations

from dataclasses import replace
from math import lcm, prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stencil.contract import thorough_but
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.wgmma.harness import FAMILY, PLAIN, Case, Few, Run, promoted, small, variant
from tilewright.hardware.catalogue import catalogue_device
from tilewright.space import Config
from tilewright.stencil.asynchronous.folded import folded
from tilewright.stencil.wgmma import ARITHMETICS, Arithmetic

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")

SPEC = catalogue_device("h100").spec
BF16 = Arithmetic("bfloat16", "bfloat16", triangle=True)

# Tiles whose squares hold one, two and six of them, and a cluster's.
SHAPES = {
    "1x1": {"block_m": 64, "block_n": 64, "consumers": 1},
    "2x1": {"block_m": 64, "block_n": 128},
    "3x2": {"block_m": 128, "block_n": 192, "instruction_m": 128, "consumers": 3},
    "turns": {"block_m": 64, "block_n": 64, "pingpong": 1, "multiprocessors": 132},
    "cluster": {"block_m": 64, "block_n": 64, "consumers": 1, "cluster_m": 2},
}


def check_all(run: Run, sizes: tuple[int, ...]) -> None:
    """Both triangles, C read and not, in columns that are aligned and not."""
    for lower in (False, True):
        for n in sizes:
            run.check(Case(n, n, 72, lower=lower))
        run.check(Case(200, 200, 40, 2, -1, padding_c=1, lower=lower))
        run.check(Case(200, 200, 40, 2, padding_c=3, offset_c=1, lower=lower))
        run.check(Case(200, 200, 40, 1, 2, padding_c=8, lower=lower))
        run.check(Case(130, 130, 40, 0, 2, lower=lower))


@pytest.mark.parametrize("shape", thorough_but(["2x1", "turns"], SHAPES))
@pytest.mark.parametrize("trans", ["NT", "TN"])
def test_a_triangle_is_written_and_nothing_else(
    emulated: EmulatedDevice, shape: str, trans: str
) -> None:
    of = variant(trans, BF16)
    run = Run(emulated, small(of, emulated, **SHAPES[shape]), of, Few())
    check_all(run, (1, 70, 200, 390))


@pytest.mark.parametrize("name", thorough_but(["f16-f32", "e4m3", "s8"], PLAIN))
def test_of_every_type(emulated: EmulatedDevice, name: str) -> None:
    of = variant("TN", replace(PLAIN[name], triangle=True))
    config = small(of, emulated, **SHAPES["turns"], **promoted(name))
    check_all(Run(emulated, config, of, Few()), (70, 200))


@settings(max_examples=8, deadline=None)
@given(n=st.integers(1, 500), lower=st.booleans(), padding=st.integers(0, 9))
def test_any_number_of_columns(emulator: EmulatedDevice, n: int, lower: bool, padding: int) -> None:
    of = variant("NT", replace(PLAIN["f16"], triangle=True))
    run = Run(emulator, small(of, emulator, **SHAPES["3x2"]), of, Few())
    run.check(Case(n, n, 33, padding_c=padding, lower=lower))


@pytest.mark.parametrize("config", FAMILY.starts(variant("TN", BF16), SPEC))
@given(n=st.integers(1, 5000))
def test_a_rectangle_has_as_many_tiles(config: Config, n: int) -> None:
    """As many as meet the triangle, by whole squares."""
    geometry = FAMILY.geometry(config)
    square = lcm(geometry.tile_m, geometry.tile_n)
    squares = -(-n // square)
    tiles = square**2 // (geometry.tile_m * geometry.tile_n)
    found = prod(geometry.tiles(*folded(geometry, n)))
    assert found == squares * (squares + 1) // 2 * tiles


@pytest.mark.parametrize("name", thorough_but(["fp16x3"], ["fp16x3", "bf16x6"]))
@pytest.mark.parametrize("trans", ["NT", "TN"])
def test_of_parts(emulated: EmulatedDevice, name: str, trans: str) -> None:
    of = variant(trans, replace(ARITHMETICS[name], triangle=True, routed=True))
    config = small(of, emulated, **SHAPES["2x1"], block_k=32, promote_k=32)
    check_all(Run(emulated, config, of, Few()), (70, 200))


def test_it_has_no_epilogue() -> None:
    with pytest.raises(ValueError, match="triangle=True"):
        Arithmetic("float16", triangle=True, epilogue=True)
