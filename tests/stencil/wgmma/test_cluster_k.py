"""Slices of k within a cluster: their text run on the CPU, and what they exclude."""

from __future__ import annotations

import numpy as np
import pytest

from tests.stencil.contract import faulty, thorough_but
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.wgmma.harness import EVERY, FAMILY, PLAIN, Case, Run, drawn, small, variant
from tilewright.backend import LaunchError
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.stencil.wgmma import Wgmma
from tilewright.tuning.verify import WrongResultError

HOPPER = architecture_spec("sm_90a")

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


@needs_compiler
@pytest.mark.parametrize("slices", thorough_but([4], [2, 4, 8]))
def test_any_number_of_slices_is_right(emulated: EmulatedDevice, slices: int) -> None:
    """More than there are steps, too."""
    of = variant("TN", EVERY["bf16"])
    run = Run(emulated, small(of, emulated, cluster_k=slices), of)
    run.check(Case(70, 133, 900, 2, -1, padding=1, padding_c=3))
    run.check(Case(3, 5, 200, offset_c=1))
    run.check(Case(70, 20, 0, 1, 3))


@needs_compiler
@pytest.mark.parametrize("name", thorough_but(["s8"], PLAIN))
def test_every_plain_arithmetic_may_be_sliced(emulated: EmulatedDevice, name: str) -> None:
    of = variant("TN", EVERY[name])
    promotion = {"promote_k": 32} if name.startswith("e") else {}
    one = {"consumers": 1, "block_n": 64, "block_m": 128}
    run = Run(emulated, small(of, emulated, cluster_k=2, **one, **promotion), of)
    run.check(Case(150, 131, 900 // EVERY[name].element_bytes, 2, 1, padding_c=1))


@needs_compiler
@pytest.mark.parametrize("trans", thorough_but(["NN"], ["NN", "TT"]))
def test_either_storage_order_may_be_sliced(emulated: EmulatedDevice, trans: str) -> None:
    of = variant(trans, EVERY["tf32"])
    sides = {"block_m": 128, "block_n": 64} if trans[0] == "N" else {}
    Run(emulated, small(of, emulated, cluster_k=2, **sides), of).check(Case(150, 131, 225, 2, -1))


@needs_compiler
@pytest.mark.parametrize("name", thorough_but(["bf16"], ["bf16", "tf32"]))
def test_threads_may_bring_the_slices(emulated: EmulatedDevice, name: str) -> None:
    of, block_k = variant("TN", EVERY[name]), 128 // EVERY[name].element_bytes
    config = small(of, emulated, cluster_k=2, tma=0, block_k=block_k, stages=4)
    Run(emulated, config, of).check(Case(70, 133, 301, 2, 1, padding=1))


@needs_compiler
def test_operands_of_empty_products_are_not_read(emulated: EmulatedDevice) -> None:
    of = variant("TN", EVERY["f16"])
    run = Run(emulated, small(of, emulated, cluster_k=2), of)
    values = drawn(np.random.default_rng(0), Case(8, 8, 70), of)
    values[0][:] = np.nan
    assert not run.result(Case(8, 8, 70, alpha=0), values).any()


FAULTS = {
    "all slices begin at once": ("slice_of(steps, cluster_rank(), CLUSTER_K).first", "0"),
    "sums are put where others multiply": ("        consumers_barrier();", "        ;"),
    "sums are read before they are there": ("    cluster_barrier();\n    ROLLED", "    ROLLED"),
    "a block leaves while another reads": ("if (CLUSTER_BLOCKS > 1)\n        cluster_barrier(); /*",
                                           "if (0)\n        cluster_barrier(); /*"),
    "the last block is forgotten": ("other < CLUSTER_K", "other + 1 < CLUSTER_K"),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("fault", thorough_but(["the last block is forgotten"], FAULTS))
def test_the_emulator_finds(emulated: EmulatedDevice, fault: str) -> None:
    of = variant("TN", EVERY["f16-f32"])
    wrong = faulty(Wgmma, *FAULTS[fault])
    with pytest.raises((WrongResultError, LaunchError)):
        Run(emulated, small(of, emulated, cluster_k=2), of, wrong).check(Case(70, 133, 1000))


def test_such_blocks_have_one_tile_and_share_nothing_else() -> None:
    of = variant("TN", EVERY["f16"])
    space = FAMILY.space(of, HOPPER)
    alone = {"cluster_m": 1, "cluster_n": 1, "multiprocessors": 0, "cluster_k": 4}
    config = FAMILY.default(of, HOPPER).replace(**alone)
    assert config in space
    for name, value in (
        ("cluster_n", 2), ("multiprocessors", 132), ("parallel_split_k", 1), ("pingpong", 1),
    ):  # fmt: skip
        changes = {name: value}
        with pytest.raises(ValueError, match="slices "):
            space.config({**config, **changes}, kinds=("divisibility",))
    assert not FAMILY.batches(config, of)
    large = {"block_m": 128, "instruction_m": 128, "block_n": 256, "stages": 2}
    with pytest.raises(ValueError, match="sums of a cluster"):
        space.config({**config, **large}, kinds=("hardware",))
    grouped = FAMILY.grouped_config(config, of)
    assert grouped is not None
    assert "cluster_k" not in grouped
    assert FAMILY.launch(config, 300, 100, 5000).grid[0] == 4 * -(-300 // config["block_m"])


def test_a_config_that_names_no_slices_has_one() -> None:
    of = variant("TN", EVERY["f16"])
    config = FAMILY.default(of, HOPPER)
    assert "cluster_k" not in config
    assert FAMILY.space(of, HOPPER).config({**config, "cluster_k": 1}) == config
