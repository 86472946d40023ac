"""Slices of k of tensor-core tiles: their text run on the CPU, and their machine code."""

from __future__ import annotations

import numpy as np
import pytest

from tests.stencil.contract import cut, faulty, thorough_but
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.wgmma.harness import EVERY, FAMILY, Case, Run, drawn, small, variant
from tests.stencil.wgmma.test_cuda import check
from tilewright.backend import LaunchError
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import nvrtc
from tilewright.stencil.wgmma import Arithmetic, Wgmma
from tilewright.tuning.verify import WrongResultError

HOPPER = architecture_spec("sm_90a")
SLICED = {"multiprocessors": 0, "parallel_split_k": 1}

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")
needs_nvrtc = pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC: tilewright[tune]")


def sliced(live: EmulatedDevice, name: str, slices: int, trans: str = "TN", **changes: int) -> Run:
    """Return a config whose launches have so many slices of each tile."""
    of = variant(trans, EVERY[name])
    config = small(of, live, **{**SLICED, **changes})
    return Run(live, config, of, cut(Wgmma, slices))  # type: ignore[arg-type]


@needs_compiler
@pytest.mark.parametrize("slices", thorough_but([1, 11], [1, 2, 3, 11, 70]))
def test_any_number_of_slices_is_right(emulated: EmulatedDevice, slices: int) -> None:
    """More than there are steps, too; and so many that lanes of the reduction kernel share them."""
    run = sliced(emulated, "bf16", slices)
    run.check(Case(70, 133, 300, 2, -1, padding=1, padding_c=3))
    run.check(Case(3, 5, 200, offset_c=1))


@needs_compiler
@pytest.mark.parametrize("name", thorough_but(["s8", "fp16x3"], EVERY))
def test_every_arithmetic_may_be_sliced(emulated: EmulatedDevice, name: str) -> None:
    """Parts are sums before exponents, alpha and rounding to C's type."""
    promoted = len(EVERY[name].products) > 1 or name.startswith("e")
    promotion = {"promote_k": 32} if promoted else {}
    run = sliced(emulated, name, 3, **promotion)
    run.check(Case(70, 131, 900 // EVERY[name].element_bytes, 2, 1, padding_c=1))
    run.check(Case(70, 20, 0, 1, 3))


@needs_compiler
@pytest.mark.parametrize("trans", thorough_but(["NN"], ["NN", "TT"]))
def test_rows_of_either_operand_may_be_sliced(emulated: EmulatedDevice, trans: str) -> None:
    """Of TF32 rows are of A where it lies along m: parts lie in the workspace as any."""
    sides = {"block_m": 128, "block_n": 64} if trans == "NN" else {}
    run = sliced(emulated, "tf32", 3, trans, **sides)
    run.check(Case(150, 131, 225, 2, -1, padding=1, padding_c=3))


@needs_compiler
def test_operands_of_empty_products_are_not_read(emulated: EmulatedDevice) -> None:
    run = sliced(emulated, "f16", 2)
    values = drawn(np.random.default_rng(0), Case(8, 8, 70), run.variant)
    values[0][:] = np.nan
    assert not run.result(Case(8, 8, 70, alpha=0), values).any()


@needs_compiler
def test_both_kernels_are_held_back(emulated: EmulatedDevice) -> None:
    of = variant("TN", Arithmetic("float16", routed=True))
    family = cut(Wgmma, 2)
    run = Run(emulated, small(of, emulated, **SLICED), of, family)  # type: ignore[arg-type]
    case = Case(64, 64, 150, beta=1)
    values = drawn(np.random.default_rng(1), case, of)
    assert np.array_equal(run.result(case, values, route=2), values[2])
    run.check(case)


FAULTS = {
    "a slice begins where another does": ("mine.first,\n                       mine.count",
                                          "0,\n                       mine.count"),
    "parts overlap": ("block * (BLOCK_M * BLOCK_N)", "block * BLOCK_M"),
    "lanes do not wait": ("    BARRIER();\n    ROLLED", "    ROLLED"),
    "the last steps are forgotten": ("number < left ? number : left", "0"),
}  # fmt: skip


@needs_compiler
@pytest.mark.parametrize("fault", thorough_but(["parts overlap"], FAULTS))
def test_the_emulator_finds(emulated: EmulatedDevice, fault: str) -> None:
    of = variant("TN", EVERY["f16-f32"])
    wrong = faulty(type(cut(Wgmma, 11)), *FAULTS[fault])
    with pytest.raises((WrongResultError, LaunchError)):
        Run(emulated, small(of, emulated, **SLICED), of, wrong).check(Case(70, 133, 1000))


# Of f16's starts the last third has the most sums a thread, two blocks at once, and no boxes.
STARTS = thorough_but(["f16: 2"], [f"{name}: {third}" for name in EVERY for third in range(3)])


@pytest.mark.every(8)
@needs_nvrtc
@pytest.mark.parametrize("starts", STARTS)
def test_starts_in_slices_neither_spill_nor_wait_for_each_multiply(starts: str) -> None:
    name, third = starts.split(": ")
    of = variant("TN", EVERY[name])
    space = FAMILY.space(of, HOPPER)
    sliced = dict.fromkeys(config.replace(**SLICED) for config in FAMILY.starts(of, HOPPER))
    some = [config for config in sliced if config in space]
    assert len(some) >= 3
    for config in some[int(third) :: 3]:
        check(config, of)


def test_slices_are_of_blocks_that_stand_alone() -> None:
    of = variant("TN", EVERY["f16"])
    space = FAMILY.space(of, HOPPER)
    config = FAMILY.default(of, HOPPER).replace(cluster_m=1, cluster_n=1, **SLICED)
    assert config in space
    for changes in ({"cluster_n": 2}, {"multiprocessors": 132}):
        with pytest.raises(ValueError, match="slices of"):
            space.config({**config, **changes}, kinds=("divisibility",))


def test_a_single_tile_is_cut_for_all_multiprocessors() -> None:
    of = variant("TN", EVERY["f16"])
    config = FAMILY.default(of, HOPPER).replace(cluster_m=1, cluster_n=1, **SLICED)
    launch = FAMILY.launch(config, 100, 100, 100_000).on(132)
    assert launch.grid[0] > 100
    assert launch.second is not None
    assert FAMILY.launch(config, 100, 100, 64).on(132).second is None
    assert FAMILY.source(config, of, "cuda").second
