"""Persistent blocks that share tiles evenly: right whatever runs when, and the same bits always.

The emulator starts blocks in a random order, few at a time, and shows what one block leaves for
another as late as the memory model allows.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.stencil.contract import compiled, faulty
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tests.stencil.simt_async.test_stencil import small
from tilewright.backend import LaunchError
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.stencil import Launch, Workspace
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.matrices import Matrix
from tilewright.tuning.verify import Bench, Check, WrongResultError, certify, screen

FAMILY = SimtAsync()
STAYING = {"persistent": 1}
SHARING = {"persistent": 1, "stream_k": 1}
# A block of 32 x 32 with one warp: many tiles and blocks at little cost.
TINY = {"block_m": 32, "block_n": 32, "tile_m": 4, "tile_n": 8, "block_k": 16, "swizzle_rows": 4}

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


def bench(
    live: EmulatedDevice, name: str, blocks: int | None, mode: str = "plain", **changes: int
) -> Bench:
    of = variant(name)
    config = small(of, live, **{**TINY, **changes})
    kernel = compiled(live, FAMILY, config, of, mode)
    return Bench(live, kernel, FAMILY, config, of, blocks)


@needs_compiler
def test_the_contract_is_kept(emulated: EmulatedDevice) -> None:
    run = bench(emulated, "sTN", None, **{**SHARING, "stream_k": 2})
    certify(emulated, run.kernel, FAMILY, run.config, run.variant)


@needs_compiler
@pytest.mark.parametrize("changes", [STAYING, SHARING], ids=str)
def test_what_a_tuner_tries_is_checked(emulated: EmulatedDevice, changes: dict[str, int]) -> None:
    """Also with so few blocks that each has a whole tile and a share."""
    run = bench(emulated, "sTN", None, **changes)
    before = emulated.launches
    screen(emulated, run.kernel, FAMILY, run.config, run.variant)
    assert emulated.launches == before + 2 * 5


@needs_compiler
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    how=st.sampled_from([(0, 0), (1, 0), (2, 0), (1, 1), (2, 1)]),
    blocks=st.integers(1, 7),
    tiles=st.tuples(st.integers(1, 5), st.integers(1, 3)),
    ragged=st.tuples(st.integers(0, 31), st.integers(0, 31)),
    k=st.integers(0, 400),
    scalars=st.tuples(st.sampled_from([0, 1, -2]), st.sampled_from([0, 3])),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_number_of_blocks_computes_any_problem(
    emulated: EmulatedDevice,
    how: tuple[int, int],
    blocks: int,
    tiles: tuple[int, int],
    ragged: tuple[int, int],
    k: int,
    scalars: tuple[int, int],
    seed: int,
) -> None:
    """Whole waves, shares of one tile and of several, tiles of many shares, and idle blocks."""
    run = bench(emulated, "sTN", blocks, persistent=1, stream_k=how[0], tree_reduction=how[1])
    m, n = (32 * count - less for count, less in zip(tiles, ragged, strict=True))
    check = Check(m, n, k, *scalars, nan_in_c=scalars[1] == 0)
    run.exact(check, np.random.default_rng(seed))


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", ["dNT", "cCN"])
def test_other_precisions(emulated: EmulatedDevice, name: str) -> None:
    for blocks in (3, 5):
        run = bench(emulated, name, blocks, persistent=1, stream_k=2, tile_n=4)
        for sizes in ((96, 64, 320), (90, 70, 333)):
            run.exact(Check(*sizes, beta=1), np.random.default_rng(blocks))


@needs_compiler
@pytest.mark.parametrize("changes", [{"stages": 2}, {"stages": 5, "block_k": 8}], ids=str)
def test_with_every_pipeline(emulated: EmulatedDevice, changes: dict[str, int]) -> None:
    run = bench(emulated, "sTN", 3, **{**SHARING, **changes})
    for k in (256, 261):
        run.exact(Check(96, 64, k, beta=1), np.random.default_rng(k))


@needs_compiler
@pytest.mark.parametrize("k", [832, 1100])
def test_a_long_sum_has_no_more_shares_than_its_owner_may_add(
    emulated: EmulatedDevice, k: int
) -> None:
    """13 and 17 shares of 64 steps, of which some blocks go without one."""
    run = bench(emulated, "sTN", 20, **SHARING)
    run.exact(Check(30, 32, k, beta=1), np.random.default_rng(k))


@needs_compiler
@pytest.mark.parametrize("blocks", [2, 9, 16, 40])
def test_parts_are_added_up_by_halves(emulated: EmulatedDevice, blocks: int) -> None:
    """Up to 32 shares of a tile, and workers between two tiles: each part once, in the order of k.

    Whatever their numbers: which of them add parts up depends on these.
    """
    run = bench(emulated, "sTN", blocks, **SHARING, tree_reduction=1)
    for sizes in ((30, 32, 64 * 35), (32, 90, 64 * 12 + 5)):
        run.exact(Check(*sizes, beta=1), np.random.default_rng(blocks))


@needs_compiler
@pytest.mark.parametrize("name", ["cNT", "eTN"])
def test_parts_of_other_precisions_are_added_up_by_halves(
    emulated: EmulatedDevice, name: str
) -> None:
    run = bench(emulated, name, 7, **SHARING, tree_reduction=1, tile_n=4)
    run.exact(Check(40, 30, 500, beta=1), np.random.default_rng(1))


@needs_compiler
@pytest.mark.parametrize("tree", [0, 1])
def test_rounding_depends_on_the_grid_only(emulated: EmulatedDevice, tree: int) -> None:
    """Bits of random data: the same for every order of blocks, others for other grids."""
    rng = np.random.default_rng(5)
    a, b = (Matrix.place(rng.standard_normal(s, np.float32)) for s in ((70, 500), (500, 90)))
    c = Matrix.result(np.zeros((70, 90), np.float32))
    check = Check(70, 90, 500)

    def bits(blocks: int) -> bytes:
        run = bench(emulated, "sNN", blocks, **SHARING, tree_reduction=tree)
        return run.run(check, a, b, c).tobytes()

    assert len({bits(5) for _ in range(4)}) == 1
    assert bits(5) != bits(4)


FAULTS = {
    "numbers follow the grid's order": (
        "draw_number((unsigned int *)workspace, GRID_BLOCKS - 1)",
        "GRID_BLOCKS - 1 - BLOCK_ID",
    ),
    "a flag is raised before all have written": ("    BARRIER();\n    if (THREAD_ID == 0)\n"
                                                 "        raise", "    if (THREAD_ID == 0)\n"
                                                 "        raise"),
    "a part is read before it is there": ("            await_flag(flag);\n", ""),
    "a part is read before all may": ("        BARRIER();\n        const unsigned char",
                                      "        const unsigned char"),
    "a flag stays raised": ("lower_flag(flag);", ""),
    "a part is left out": ("share_at(d, other) < tile_end", "other < worker + 2"),
    "a share ends too early": ("share_at(d, worker + 1);", "share_at(d, worker + 1) - 1;"),
    "sums of the tile before": ("sum[i] = elem_zero();\n        if (now", "\n        if (now"),
    "the number is read too early": ("BARRIER(); /* the number", "; /* the number"),
}  # fmt: skip


# What only a tree of parts can get wrong.
FAULTS_OF_TREES = {
    "a part is waited for twice": ("TREE_REDUCTION ? last_bit(other) : 1", "1"),
    "parts are left before others' are in them": (
        "        if (TREE_REDUCTION)\n            add_parts",
        "        if (0)\n            add_parts",
    ),
    "the numbers behind the last are asked": ("last < d.workers ? last : d.workers", "0xffffffffu"),
    "a worker takes what is another's": (
        "worker + last_bit(worker)", "worker + 2 * last_bit(worker)"
    ),
}  # fmt: skip


@pytest.mark.every(4)
@needs_compiler
@pytest.mark.parametrize("fault", [*FAULTS, *FAULTS_OF_TREES])
def test_the_emulator_finds(emulated: EmulatedDevice, fault: str) -> None:
    old, new = (FAULTS | FAULTS_OF_TREES)[fault]
    of = variant("sTN")
    config = small(of, emulated, **TINY, **SHARING, tree_reduction=int(fault in FAULTS_OF_TREES))
    kernel = compiled(emulated, faulty(SimtAsync, old, new), config, of)

    def check_all() -> None:
        """Whole tiles and shares, tiles of many shares; each in other orders."""
        for blocks, seed in itertools.product((3, 5, 7), range(3)):
            run = Bench(emulated, kernel, FAMILY, config, of, blocks)
            run.exact(Check(96, 64, 500, beta=1), np.random.default_rng(seed))

    with pytest.raises((WrongResultError, LaunchError)):
        check_all()


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
    space = FAMILY.space(of, device)
    config = FAMILY.default(of, device)
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
    config = FAMILY.default(of, device)
    assert "persistent" not in config
    named = config.replace(persistent=0, stream_k=0)
    space = FAMILY.space(of, device)
    assert space.config(named) == config
    assert space.config(named).id == config.id
    assert FAMILY.launch(config, 4096, 4096).resident == 0
    staying = space.config({**config, "persistent": 1})
    assert FAMILY.launch(staying, 4096, 4096).on(132).grid == (
        132 * staying.integer("min_blocks"),
        1,
    )
