"""The stencil of asynchronous copies on a GPU: every variant, what ships and drawn configs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.stencil.contract import (
    bits_on_two_streams,
    compiled,
    computes_the_product,
    has_mode,
    same_bits_every_time,
)
from tests.stencil.portable_harness import variant
from tilewright.backend import LiveDevice
from tilewright.precision import PRECISIONS
from tilewright.problem import Problem, transposes_of
from tilewright.space import Config
from tilewright.stencil import Mode, Variant
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.verify import Bench, Check, certify, screen

FAMILY = SimtAsync()
VARIANTS = [Variant(p, *trans) for p in PRECISIONS.values() for trans in transposes_of(p)]

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_default_keeps_the_contract_and_drawn_configs_are_right(
    copying: LiveDevice, variant: Variant
) -> None:
    config = FAMILY.default(variant, copying.spec)
    kernel = compiled(copying, FAMILY, config, variant)
    certify(copying, kernel, FAMILY, config, variant)
    drawn = FAMILY.space(variant, copying.spec).sample(2, seed=26)
    split = [c for c in FAMILY.starts(variant, copying.spec) if c.integer("cluster_k") > 1]
    for other in (*drawn, *split[:1]):
        if other in FAMILY.space(variant, copying.spec):
            computes_the_product(copying, FAMILY, other, variant)


@pytest.mark.parametrize("stream_k", [0, 1, 2])
@pytest.mark.parametrize("name", ["sNN", "sTN", "dNT", "cCN", "zTC"])
def test_blocks_that_stay_are_right(copying: LiveDevice, name: str, stream_k: int) -> None:
    of = variant(name)
    config = FAMILY.default(of, copying.spec).replace(cluster_k=1, persistent=1, stream_k=stream_k)
    kernel = compiled(copying, FAMILY, config, of)
    certify(copying, kernel, FAMILY, config, of)
    screen(copying, kernel, FAMILY, config, of)
    # More tiles than blocks, whatever the device has: whole tiles, and a wave that is shared.
    many = Check(2500, 2300, 200, beta=1)
    Bench(copying, kernel, FAMILY, config, of).exact(many, np.random.default_rng(7))


# What serves 512 x 512 on an H100 is like it.
LAYERS = {
    "block_m": 64, "block_n": 64, "tile_m": 8, "tile_n": 8, "lanes_m": 4, "block_k": 16,
    "unroll_k": 4, "stages": 2, "min_blocks": 1, "copy_groups": 4, "serpentine_rows": 1,
    "b_first": 0, "swizzle_rows": 8,
}  # fmt: skip


@pytest.mark.parametrize(("warps_k", "cluster_k"), [(2, 1), (2, 2), (4, 1), (4, 2), (8, 1)])
@pytest.mark.parametrize("name", ["sNN", "sNT", "sTN", "sTT", "cCN"])
def test_layers_of_warps_are_right(
    copying: LiveDevice, name: str, warps_k: int, cluster_k: int
) -> None:
    of = variant(name)
    layers = {"warps_k": warps_k, "cluster_k": cluster_k, "block_k": max(16, 4 * warps_k)}
    config = Config(FAMILY.name, {**LAYERS, **layers})
    if config not in FAMILY.space(of, copying.spec):
        pytest.skip("no clusters, or too little shared memory for parts of eight layers")
    for mode in ("plain", "staged", "clamped"):
        certify(copying, compiled(copying, FAMILY, config, of, mode), FAMILY, config, of)
    same_bits_every_time(copying, FAMILY, config, Problem(500, 500, 500, name[0], *name[1:]))


@pytest.mark.parametrize("name", ["sNN", "sNT", "sTT", "dNT", "cNN"])
@pytest.mark.parametrize("stays", [0, 1])
def test_columns_may_begin_anywhere(copying: LiveDevice, name: str, stays: int) -> None:
    of = variant(name)
    config = FAMILY.default(of, copying.spec)
    if stays:
        config = config.replace(cluster_k=1, persistent=1, stream_k=2)
    kernel = compiled(copying, FAMILY, config, of, "scalar")
    certify(copying, kernel, FAMILY, config, of)
    screen(copying, kernel, FAMILY, config, of)


@pytest.mark.parametrize("name", ["sNN", "sNT", "sTN", "sTT", "dTN", "cNT", "eTN"])
@pytest.mark.parametrize("mode", ["clamped", "scalar+clamped"])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"persistent": 1, "stream_k": 2},
        {"persistent": 1, "stream_k": 1, "tree_reduction": 1},
    ],
    ids=str,
)
def test_sides_shorter_than_a_block_are_right(
    copying: LiveDevice, name: str, how: dict[str, int], mode: str
) -> None:
    """Every remainder of the copies' rows, and shapes of which every block is at an edge."""
    of = variant(name)
    config = FAMILY.default(of, copying.spec).replace(**{"cluster_k": 1, **how})
    if not has_mode(FAMILY, config, of, copying.spec, mode):
        pytest.skip("nothing to copy by elements")
    kernel = compiled(copying, FAMILY, config, of, mode)
    certify(copying, kernel, FAMILY, config, of)
    screen(copying, kernel, FAMILY, config, of, Mode.parse(mode))
    run, rng = Bench(copying, kernel, FAMILY, config, of), np.random.default_rng(3)
    block_m, block_n = config.integer("block_m"), config.integer("block_n")
    for short in (1, 4, 7, 16, 28, 29):
        run.exact(Check(min(short, block_m - 1), 3 * block_n + 5, 777, beta=1), rng)
        run.exact(Check(2 * block_m + 3, min(short, block_n - 1), 200, beta=2, padding=1), rng)
    run.exact(Check(block_m - 4, block_n - 4, 1000, beta=1), rng)


@pytest.mark.parametrize("name", ["sNN", "sTT", "dNT", "cCN"])
@pytest.mark.parametrize("stays", [{}, {"cluster_k": 2}, {"persistent": 1, "stream_k": 2}], ids=str)
def test_results_may_be_staged(copying: LiveDevice, name: str, stays: dict[str, int]) -> None:
    """On their way to columns of C that begin anywhere; also while a next tile is copied."""
    of = variant(name)
    config = FAMILY.default(of, copying.spec).replace(**{"cluster_k": 1, **stays})
    if config not in FAMILY.space(of, copying.spec):
        pytest.skip("this device has no clusters")
    kernel = compiled(copying, FAMILY, config, of, "staged")
    certify(copying, kernel, FAMILY, config, of)
    screen(copying, kernel, FAMILY, config, of)
    many = Check(2501, 2303, 200, beta=1, padding=1, offset=1)
    Bench(copying, kernel, FAMILY, config, of).exact(many, np.random.default_rng(9))


def test_launches_on_two_streams_do_not_share_a_workspace(copying: LiveDevice) -> None:
    """Many at once, on two streams: each result is the one that it is alone."""
    of = variant("sNN")
    config = FAMILY.default(of, copying.spec).replace(persistent=1, stream_k=2)
    kernel = compiled(copying, FAMILY, config, of)
    assert len(bits_on_two_streams(copying, kernel, config, FAMILY, (1100, 1100))) == 1


@pytest.mark.parametrize("name", ["sNN", "sTN", "dNT", "cCN", "eTN"])
def test_parts_are_added_up_by_halves(copying: LiveDevice, name: str) -> None:
    """Few tiles with long sums, of which each has many shares."""
    of = variant(name)
    config = FAMILY.default(of, copying.spec).replace(
        cluster_k=1, persistent=1, stream_k=2, tree_reduction=1
    )
    kernel = compiled(copying, FAMILY, config, of)
    certify(copying, kernel, FAMILY, config, of)
    screen(copying, kernel, FAMILY, config, of)
    for sizes in ((100, 90, 1100), (300, 290, 1000), (700, 650, 900)):
        for blocks in (None, 37):
            run = Bench(copying, kernel, FAMILY, config, of, blocks)
            run.exact(Check(*sizes, beta=1), np.random.default_rng(9))


@pytest.mark.parametrize("choice", ["cluster_k", "stream_k", "tree_reduction"])
@pytest.mark.parametrize("size", [512, 1000])
def test_the_same_bits_every_time(copying: LiveDevice, size: int, choice: str) -> None:
    """Whoever shares a tile adds up in the order of k, whichever comes first."""
    problem = Problem(size, size, size, "s", "T", "N")
    of = Variant.of(problem)
    config = next(c for c in FAMILY.starts(of, copying.spec) if c.integer("cluster_k") > 1)
    if choice != "cluster_k":
        config = config.replace(
            cluster_k=1, persistent=1, stream_k=1, tree_reduction=int(choice == "tree_reduction")
        )
    same_bits_every_time(copying, FAMILY, config, problem)
