"""What is expected of configs before any was compiled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.hardware.catalogue import recognised
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Variant, stencil
from tilewright.tuning.background import FEATURES, features_on, forecast_on

H100 = recognised("NVIDIA H100 80GB HBM3").spec
FAMILY = stencil("simt_async")
TALL = FAMILY.default(Variant.of(Problem(1, 1, 1, "s")), H100)  # 256 x 128


def numbers(m: int, n: int, k: int, config: Config = TALL) -> dict[str, float]:
    (row,) = features_on(FAMILY, Problem(m, n, k, "s"), H100)([config])
    return dict(zip(FEATURES, row.tolist(), strict=True))


def test_multiprocessors_with_a_block_each_are_full_though_two_would_fit():
    narrow = TALL.replace(block_m=64, block_n=64, tile_m=8, tile_n=8)
    assert numbers(64 * 132, 64, 512, narrow)["blocks"] > 1 / 8
    assert numbers(64 * 132, 64, 512, narrow)["filled"] == 1.0
    assert numbers(64 * 133, 64, 512, narrow)["filled"] == pytest.approx(133 / 264)


def test_what_tiles_reach_beyond_the_result_is_lost():
    assert numbers(256, 128, 512)["covered"] == 1.0
    assert numbers(257, 128, 512)["covered"] == pytest.approx(257 / 512)
    whole, edged = (numbers(m, 128 * 132, 512)["forecast"] for m in (256, 257))
    assert edged < 0.6 * whole


def test_compilers_drop_a_bound_for_more_blocks_than_fit():
    least = TALL.replace(min_blocks=8)  # of 256 threads: all that a multiprocessor holds
    assert numbers(256, 128, 512, least)["pressure"] == 1.0
    wider = least.replace(tile_m=8)  # of 512
    assert numbers(256, 128, 512, wider)["pressure"] < 0.5


def test_the_busiest_multiprocessor_needs_its_steps_where_all_have_as_many():
    assert numbers(256 * 12, 128 * 11, 512)["needed"] == 1.0
    assert numbers(256 * 12, 128 * 12, 512)["needed"] == pytest.approx(144 / 264)


def test_steps_of_a_tile_that_many_blocks_share_fill_the_device():
    shared = TALL.replace(parallel_split_k=1)
    assert numbers(256, 128, 65536)["filled"] < 0.01
    assert numbers(256, 128, 65536, shared)["filled"] > 0.4


def test_a_cpu_has_no_forecast():
    assert forecast_on(FAMILY, Problem(8, 8, 8, "s"), replace(H100, kind="cpu")) is None
