"""Sliced-K: warps that share a tile of C within a block; kernels run on the CPU.

What is asked here: that each layer multiplies its part of every stage, however operands are copied,
and that sums of layers, alone and in a cluster, are added up and stored once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.stencil.contract import (
    bench,
    checks,
    compiled,
    computes_the_product,
    fault_is_found,
    faulty,
)
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.mma_f64 import test_stencil as test_mma_f64
from tests.stencil.portable_harness import variant
from tests.stencil.simt_async import test_stencil as test_simt_async
from tilewright.space import Config
from tilewright.stencil.mma_f64 import MmaF64
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.verify import certify

SIMT, MMA = SimtAsync(), MmaF64()

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


def small(live: EmulatedDevice, name: str, family: Any = SIMT, **changes: int) -> Config:
    """Return a config of few threads with two layers, or as many as are asked for."""
    smalls = test_mma_f64.small if isinstance(family, MmaF64) else test_simt_async.small
    return smalls(variant(name), live, **{"warps_k": 2, **changes})


@needs_compiler
@pytest.mark.parametrize("name", ["sNT", "cCN"])
def test_the_contract_is_kept(emulated: EmulatedDevice, name: str) -> None:
    """All classes of alpha and beta, ragged sizes, paddings, offsets, NaN and Inf."""
    config, of = small(emulated, name), variant(name)
    certify(emulated, compiled(emulated, SIMT, config, of), SIMT, config, of)


# Copies of every kind, as many trips as there are, and layers in the blocks of a cluster.
WAYS: list[dict[str, Any]] = [
    {"name": "sNN", "cluster_k": 2},
    {"name": "sNN", "warps_k": 4, "unroll_k": 4},
    {"name": "sNT", "warps_k": 8, "tile_m": 8, "block_k": 32, "unroll_k": 4},
    {"name": "sTT", "warps_k": 8, "tile_m": 8, "block_k": 64, "mode": "scalar"},
    {"name": "sTT", "unroll_k": 4},
    {"name": "sTN", "mode": "clamped"},
    {"name": "sNT", "mode": "scalar", "cluster_k": 4},
    {"name": "sNN", "mode": "staged"},
    {"name": "zNC"},
]
OF_UNITS: list[dict[str, Any]] = [
    {"name": "dNN", "block_n": 64, "warp_n": 32, "block_k": 32, "mma_k": 8, "double_buffered": 0},
    {"name": "dTN", "block_n": 64, "warp_n": 32, "cluster_k": 2},
    {"name": "dNT", "block_k": 32, "warps_k": 4},
    {"name": "zTC", "block_n": 64, "warp_n": 32, "block_k": 16},
]


@pytest.mark.every(3)
@needs_compiler
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_layers_have_their_part_of_a_stage(emulated: EmulatedDevice, way: dict[str, Any]) -> None:
    name, mode = way["name"], way.get("mode", "plain")
    changes = {key: value for key, value in way.items() if key not in ("name", "mode")}
    config = small(emulated, name, **changes)
    computes_the_product(emulated, SIMT, config, variant(name), mode)


@pytest.mark.every(2)
@needs_compiler
@pytest.mark.parametrize("way", OF_UNITS, ids=str)
def test_layers_of_tensor_cores(emulated: EmulatedDevice, way: dict[str, Any]) -> None:
    name, changes = way["name"], {key: value for key, value in way.items() if key != "name"}
    config = small(emulated, name, MMA, **changes)
    computes_the_product(emulated, MMA, config, variant(name))


@needs_compiler
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_problem_is_right(emulated: EmulatedDevice, data: st.DataObject) -> None:
    """Also without a step along k, or with fewer than there are layers."""
    config = small(emulated, "sNN", cluster_k=2)
    check = data.draw(checks(4, 70))
    run = bench(emulated, SIMT, config, variant("sNN"))
    run.exact(check, np.random.default_rng(data.draw(st.integers(0, 99))))


# What each layer does, of the sources: the first old words, then wrong ones in their place.
FAULTS = {
    "another layer's steps": ("layer() * (BYTES_A", "0 * (BYTES_A"),
    "another layer's sums": ("part % WARPS_K * LAYER +", "0 * LAYER +"),
    "another layer's columns": ("* WARPS_K + layer()) * columns", "* WARPS_K) * columns"),
}


@needs_compiler
@pytest.mark.parametrize("fault", FAULTS)
def test_the_emulator_finds(emulated: EmulatedDevice, fault: str) -> None:
    wrong, of = faulty(SimtAsync, *FAULTS[fault]), variant("sNT")
    fault_is_found(emulated, wrong, small(emulated, "sNT"), of)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"persistent": 1}, "sliced-K or persistent"),
        ({"parallel_split_k": 1}, "sliced-K or persistent"),
        ({"block_k": 8}, "unrolling divides the k block"),
        ({"warps_k": 4, "cluster_k": 4, "unroll_k": 4}, "columns for every part of a tile"),
        ({"tma": 1}, "TMA or sliced-K"),
    ],
    ids=str,
)
def test_what_layers_cannot_have(
    emulated: EmulatedDevice, changes: dict[str, int], name: str
) -> None:
    of = variant("sNT")
    config = small(emulated, "sNT").replace(**changes)
    violated = [one.name for one in SIMT.space(of, emulated.spec).violated(config)]
    assert name in violated


def test_layers_are_more_warps_of_a_block(emulated: EmulatedDevice) -> None:
    """Each has a part of the tile's sums in shared memory, where they are added up."""
    of, config = variant("sNT"), small(emulated, "sNT", block_k=16, stages=2)
    alone = config.replace(warps_k=1)
    with_layers, without = SIMT.resources(config, of), SIMT.resources(alone, of)
    assert with_layers.threads == 2 * without.threads
    tile = config.integer("block_m") * config.integer("block_n") * 4
    assert with_layers.shared_bytes == max(without.shared_bytes, 2 * tile)
