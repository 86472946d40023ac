"""Tiles that the copy engine brings, on a GPU: whatever blocks do, and whatever comes before."""

from __future__ import annotations

import numpy as np
import pytest

from tests.stencil.contract import compiled, same_bits_every_time
from tests.stencil.portable_harness import variant
from tilewright.backend import LiveDevice
from tilewright.problem import Problem
from tilewright.stencil import Variant
from tilewright.stencil.simt_async import SimtAsync
from tilewright.stencil.simt_async.boxes import TMA_SINCE
from tilewright.tuning.verify import Bench, Check, certify, screen

FAMILY = SimtAsync()

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
    """Blocks of one tile, that stay, and that share one wave or two."""
    if staged and name == "zNT":
        pytest.skip("an element is a chunk: there is nothing to stage")
    of = variant(name)
    space = FAMILY.space(of, boxing.spec)
    ways = {"persistent": int(stays > 0), "stream_k": max(0, stays - 1), "split_k": 1}
    ways |= {"staged": 1} if staged else {}
    config = FAMILY.default(of, boxing.spec)
    shape = {"tma": 1, "block_k": 8, "unroll_k": 8, "stages": 4, **ways}
    config = space.config({**config, **shape}, kinds=("divisibility", "hardware"))
    kernel = compiled(boxing, FAMILY, config, of)
    certify(boxing, kernel, FAMILY, config, of)
    screen(boxing, kernel, FAMILY, config, of)
    many = Check(2500, 2300, 200, beta=1)
    Bench(boxing, kernel, FAMILY, config, of).exact(many, np.random.default_rng(7))


def test_the_largest_tile_of_a_thread_gives_the_same_bits(boxing: LiveDevice) -> None:
    problem = Problem(2500, 2300, 1000, "s", "N", "T")
    odd = Problem(2501, 2300, 1000, "s", "N", "T", lda=2504)
    for config in FAMILY.starts(Variant.of(problem), boxing.spec):
        if config.get("tma", 0):
            same_bits_every_time(boxing, FAMILY, config, problem)
            same_bits_every_time(boxing, FAMILY, config.replace(staged=1), odd)
