"""Sliced-K: warps that share a tile of C within a block; `test_contract` runs them."""

from __future__ import annotations

import pytest

from tests.stencil.emulator import EmulatedDevice
from tests.stencil.ways import SIMT, simt


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
    way = simt("sNT", warps_k=2)
    config = way.config(emulated).replace(**changes)
    violated = [one.name for one in SIMT.space(way.of, emulated.spec).violated(config)]
    assert name in violated


def test_layers_are_more_warps_of_a_block(emulated: EmulatedDevice) -> None:
    """Each has a part of the tile's sums in shared memory, where they are added up."""
    way = simt("sNT", warps_k=2, block_k=16, stages=2)
    of, config = way.of, way.config(emulated)
    alone = config.replace(warps_k=1)
    with_layers, without = SIMT.resources(config, of), SIMT.resources(alone, of)
    assert with_layers.threads == 2 * without.threads
    tile = config.integer("block_m") * config.integer("block_n") * 4
    assert with_layers.shared_bytes == max(without.shared_bytes, 2 * tile)
