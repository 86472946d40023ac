"""Tiles that the copy engine brings, on a GPU: whatever blocks do, and whatever comes before."""

from __future__ import annotations

import numpy as np
import pytest

from tests.stencil.contract import compiled, same_bits_every_time
from tests.stencil.portable_harness import variant
from tilewright.backend import LiveDevice
from tilewright.problem import Problem
from tilewright.stencil import Variant
from tilewright.stencil.asynchronous.constraints import TMA_SINCE
from tilewright.stencil.mma_f64 import MmaF64
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.verify import Bench, Check, certify, screen

FAMILY = SimtAsync()
TENSOR_CORES = MmaF64()

pytestmark = pytest.mark.gpu


@pytest.fixture
def boxing(cuda: LiveDevice) -> LiveDevice:
    if (cuda.spec.compute_capability or 0) < TMA_SINCE:
        pytest.skip(f"{cuda} has no copy engine for boxes")
    return cuda


@pytest.mark.parametrize("name", ["sNT", "dNT", "cNT", "cNC", "zNT"])
@pytest.mark.parametrize("stays", [0, 1, 2, 3])
@pytest.mark.parametrize("staged", [0, 1])
def test_what_comes_in_boxes_is_right(
    boxing: LiveDevice, name: str, stays: int, staged: int
) -> None:
    """Blocks of one tile, persistent ones, and ones that share one wave or two."""
    if staged and name == "zNT":
        pytest.skip("an element is a chunk: there is nothing to stage")
    of = variant(name)
    space = FAMILY.space(of, boxing.spec)
    ways = {"persistent": int(stays > 0), "stream_k": max(0, stays - 1), "cluster_k": 1}
    config = FAMILY.default(of, boxing.spec)
    shape = {"tma": 1, "block_k": 8, "unroll_k": 8, "stages": 4, **ways}
    config = space.config({**config, **shape}, kinds=("divisibility", "hardware"))
    kernel = compiled(boxing, FAMILY, config, of, "staged" if staged else "plain")
    certify(boxing, kernel, FAMILY, config, of)
    screen(boxing, kernel, FAMILY, config, of)
    many = Check(2500, 2300, 200, beta=1)
    Bench(boxing, kernel, FAMILY, config, of).exact(many, np.random.default_rng(7))


@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("letter", "dz")
@pytest.mark.parametrize(
    ("mode", "way"),
    [("plain", {}), ("staged", {}), ("plain", {"persistent": 1, "stream_k": 2})],
    ids=str,
)
def test_lines_that_the_engine_turns_are_right(
    boxing: LiveDevice, letter: str, trans: str, mode: str, way: dict[str, int]
) -> None:
    """For tensor cores: every layout of an operand, of eight warps, one block a multiprocessor."""
    if mode == "staged" and letter == "z":
        pytest.skip("an element is a chunk: there is nothing to stage")
    of = variant(letter + trans)
    large = {"block_m": 128, "block_n": 128, "warp_m": 64, "block_k": 16, "mma_k": 8}
    shape = large if letter == "d" else {"block_m": 64, "block_n": 128, "warp_m": 32, "block_k": 8}
    config = TENSOR_CORES.default(of, boxing.spec)
    same = {"warp_n": 32, "min_blocks": 1, "cluster_k": 1, "tma": 1}
    config = TENSOR_CORES.space(of, boxing.spec).config({**config, **shape, **same, **way})
    kernel = compiled(boxing, TENSOR_CORES, config, of, mode)
    certify(boxing, kernel, TENSOR_CORES, config, of)
    many = Check(1500, 1300, 200, beta=1)
    Bench(boxing, kernel, TENSOR_CORES, config, of).exact(many, np.random.default_rng(8))


def test_the_largest_tile_of_a_thread_gives_the_same_bits(boxing: LiveDevice) -> None:
    problem = Problem(2500, 2300, 1000, "s", "N", "T")
    odd = Problem(2501, 2300, 1000, "s", "N", "T", lda=2504)
    for config in FAMILY.starts(Variant.of(problem), boxing.spec):
        if config.get("tma", 0):
            same_bits_every_time(boxing, FAMILY, config, problem)
            same_bits_every_time(boxing, FAMILY, config, odd, "staged")
