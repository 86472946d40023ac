"""Persistent blocks that share tiles evenly: the same bits always; `test_contract` has the rest."""

from __future__ import annotations

import numpy as np
import pytest

from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tests.stencil.ways import SHARING, SIMT, STAYING, TINY, Way, simt
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.stencil import Launch, Workspace
from tilewright.tuning.matrices import Matrix
from tilewright.tuning.verify import Check, screen

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


def tiny(name: str, **changes: int) -> Way:
    """Return a way of tiny tiles whose blocks share."""
    return simt(name, **{**TINY, **SHARING, **changes})


@needs_compiler
@pytest.mark.parametrize("changes", [STAYING, SHARING], ids=str)
def test_what_a_tuner_tries_is_checked(emulated: EmulatedDevice, changes: dict[str, int]) -> None:
    """Also with so few blocks that each has a whole tile and a share."""
    run = simt("sTN", **TINY, **changes).bench(emulated)
    before = emulated.launches
    screen(emulated, run.kernel, SIMT, run.config, run.variant)
    assert emulated.launches == before + 2 * 5


OTHER = ((96, 64, 320), (90, 70, 333))
# Up to 32 shares of a tile, and workers between two tiles: each part once, in the order of k.
HALVES = ((30, 32, 64 * 35), (32, 90, 64 * 12 + 5))


@needs_compiler
@pytest.mark.parametrize(
    ("way", "blocks", "problems"),
    [
        *((tiny(name, stream_k=2, tile_n=4), n, OTHER) for name in ("dNT", "cCN") for n in (3, 5)),
        (tiny("sTN", stages=2), 3, ((96, 64, 256), (96, 64, 261))),
        (tiny("sTN", stages=5, block_k=8), 3, ((96, 64, 256), (96, 64, 261))),
        # 13 and 17 shares of 64 steps, of which some blocks go without one.
        (tiny("sTN"), 20, ((30, 32, 832), (30, 32, 1100))),
        # Whatever their numbers: which of them add parts up depends on these.
        *((tiny("sTN", tree_reduction=1), n, HALVES) for n in (2, 9, 16, 40)),
        *((tiny(n, tree_reduction=1, tile_n=4), 7, ((40, 30, 500),)) for n in ("cNT", "eTN")),
    ],
    ids=str,
)
def test_parts_are_added_up(
    emulated: EmulatedDevice, way: Way, blocks: int, problems: tuple[tuple[int, int, int], ...]
) -> None:
    run = way.bench(emulated, blocks)
    for sizes in problems:
        run.exact(Check(*sizes, beta=1), np.random.default_rng(blocks))


@needs_compiler
@pytest.mark.parametrize("tree", [0, 1])
def test_rounding_depends_on_the_grid_only(emulated: EmulatedDevice, tree: int) -> None:
    """Bits of random data: the same for every order of blocks, others for other grids."""
    rng = np.random.default_rng(5)
    a, b = (Matrix.place(rng.standard_normal(s, np.float32)) for s in ((70, 500), (500, 90)))
    c = Matrix.result(np.zeros((70, 90), np.float32))
    way, check = tiny("sNN", tree_reduction=tree), Check(70, 90, 500)

    def bits(blocks: int) -> bytes:
        return way.bench(emulated, blocks).run(check, a, b, c).tobytes()

    assert len({bits(5) for _ in range(4)}) == 1
    assert bits(5) != bits(4)


def test_a_grid_is_cut_to_what_stays() -> None:
    launch = Launch((1000, 1), (256, 1), resident=2)
    assert launch.on(132).grid == (264, 1)
    assert launch.on(132).on(132) == launch.on(132)
    assert launch.on(1000).grid == (1000, 1)
    assert Launch((1000, 1), (256, 1)).on(132).grid == (1000, 1)


def test_a_workspace_has_words_and_parts() -> None:
    space = Workspace(264, 65536)
    assert space.size == space.cleared_bytes + 264 * 65536
    assert Workspace(1, 16).cleared_bytes == space.cleared_bytes
    with pytest.raises(ValueError, match="4064"):
        Workspace(5000, 16)


def test_who_shares_with_whom_is_said() -> None:
    of = variant("sNN")
    device = architecture_spec("sm_90a")
    space = SIMT.space(of, device)
    config = SIMT.default(of, device)
    assert config in space
    for wrong in ({"stream_k": 1}, {"persistent": 1, "cluster_k": 2}):
        names = [constraint.name for constraint in space.violated(config.replace(**wrong))]
        assert "one way to share a tile" in names
    lonely = config.replace(persistent=1, tree_reduction=1)
    assert [one.name for one in space.violated(lonely)] == ["tree reduction of stream-K"]
    assert lonely.replace(stream_k=1) in space


def test_a_config_that_does_not_name_them_means_a_block_for_each_tile() -> None:
    of = variant("sNN")
    device = architecture_spec("sm_90a")
    config = SIMT.default(of, device)
    assert "persistent" not in config
    named = config.replace(persistent=0, stream_k=0)
    space = SIMT.space(of, device)
    assert space.config(named) == config
    assert space.config(named).id == config.id
    assert SIMT.launch(config, 4096, 4096).resident == 0
    staying = space.config({**config, "persistent": 1})
    assert SIMT.launch(staying, 4096, 4096).on(132).grid == (
        132 * staying.integer("min_blocks"),
        1,
    )
