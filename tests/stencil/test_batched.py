"""Kernels compiled for batches: by blocks in z, or by persistent ones that take tiles in turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.portfolio.drawn import drawn_batches
from tilewright.portfolio.measure_batches import _aligned, _unaligned, batch_configs, batch_sources
from tilewright.portfolio.verify import Batched, Grouped, check_batches, check_groups
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.space import Config
from tilewright.stencil import Variant, stencil
from tilewright.stencil.geometry import PLAIN
from tilewright.tuning.verify import Bench, certify

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


def check(device, config: Config, name: str) -> None:
    family, of = stencil(config.stencil), variant(name)
    kernel = device.compile(family.source(config, of, device.dialect).batched())
    check_batches(Bench(device, kernel, Batched(family, config, of), config, of, blocks=2))


def _of_tiles(of: Variant, persistent: int, pingpong: int) -> Config:
    """Return the first of Hopper's tensor cores that is such a one."""
    return next(
        one for one in stencil("wgmma").batch_configs(of)
        if (one["multiprocessors"] > 0, one["pingpong"]) == (persistent, pingpong)
    )  # fmt: skip


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["sNN", "dTN", "cNT", "zTT"])
def test_portable_kernels_compute_batches(live, name):
    check(live, stencil("portable").batch_configs(variant(name))[0], name)


@pytest.mark.every(2)
@needs_compiler
@pytest.mark.parametrize(
    ("family", "persistent", "name"),
    [
        *(("simt_async", 0, name) for name in ("sNT", "cTN", "dNN", "zNN")),
        *(("simt_async", 1, name) for name in ("sNT", "cTN")),
        *(("mma_f64", persistent, name) for persistent in (0, 1) for name in ("dNN", "zNN")),
    ],
)
def test_asynchronous_kernels_compute_batches(
    emulated: EmulatedDevice, family: str, persistent: int, name: str
) -> None:
    configs = stencil(family).batch_configs(variant(name))
    config = next(one for one in configs if one.get("persistent", 0) == persistent)
    check(emulated, config, name)


@needs_compiler
@pytest.mark.parametrize("name", ["bf16TN", "fp16NT"])
def test_tensor_cores_compute_batches(tmp_path: Path, name: str) -> None:
    emulated = EmulatedDevice(tmp_path, words="wgmma_words.h")
    check(emulated, stencil("wgmma").batch_configs(variant(name))[0], name)


@pytest.mark.every(2)
@needs_compiler
@pytest.mark.parametrize("name", ["bf16TN", "fp16_f32NT", "int8TN"])
@pytest.mark.parametrize("pingpong", [0, 1])
def test_persistent_blocks_go_through_the_tiles_of_all_products(
    tmp_path: Path, name: str, pingpong: int
) -> None:
    emulated = EmulatedDevice(tmp_path, words="wgmma_words.h")
    check(emulated, _of_tiles(variant(name), 1, pingpong), name)


@needs_compiler
@pytest.mark.parametrize("name", ["bf16TN", "fp16NT", "fp16_f32NN"])
def test_a_warp_computes_a_small_product(tmp_path: Path, name: str) -> None:
    emulated = EmulatedDevice(tmp_path, words="wgmma_words.h")
    for config in stencil("wgmma").batch_configs(variant(name)):
        if config.get("matrices") == (8 if name == "fp16NT" else 4):
            check(emulated, config, name)
            return


@needs_compiler
@pytest.mark.parametrize("name", ["bf16TN", "fp16_f32NT"])
def test_short_sums_of_16_bits_compute_batches(tmp_path: Path, name: str) -> None:
    emulated = EmulatedDevice(tmp_path, words="outer_words.h")
    check(emulated, stencil("outer").default(variant(name), emulated.spec), name)


def check_group(device, family, config: Config, of) -> None:
    kernel = device.compile(family.grouped_source(config, of, device.dialect))
    certify(device, kernel, Grouped(family, config, of), config, of)
    check_groups(Bench(device, kernel, Grouped(family, config, of), config, of))


@needs_compiler
@pytest.mark.parametrize("family", ["simt_async", "mma_f64"])
@pytest.mark.parametrize("name", ["sTN", "dNT"])
def test_a_block_computes_a_tile_of_one_of_many_problems(
    emulated: EmulatedDevice, name: str, family: str
) -> None:
    of = variant(name)
    for config in stencil(family).batch_configs(of)[:1]:
        check_group(emulated, stencil(family), config, of)


@pytest.mark.every(2)
@needs_compiler
@pytest.mark.parametrize("name", ["bf16TN", "fp16NT"])
def test_tensor_cores_compute_tiles_of_many_problems(tmp_path: Path, name: str) -> None:
    emulated, family, of = (
        EmulatedDevice(tmp_path, words="wgmma_words.h"),
        stencil("wgmma"),
        variant(name),
    )
    check_group(emulated, family, family.batch_configs(of)[0], of)


def _of_any_alignment(name: str) -> Config:
    """Return the smallest tiles of what reads operands without tensor maps, in whole sums."""
    of, family = variant(name), stencil("wgmma")
    device = architecture_spec("sm_90a")
    able = [
        one for one in family.starts(of, device)
        if family.geometry(one).any_alignment and family.batches(one, of)
    ]  # fmt: skip
    return min(able, key=lambda one: one.integer("block_m") * one.integer("block_n"))


@pytest.mark.every(3)
@needs_compiler
@pytest.mark.parametrize("name", ["bf16NN", "tf32TN", "fp16_f32TT"])
@pytest.mark.parametrize(("persistent", "consumers"), [(0, 1), (3, 2)])
def test_operands_of_any_alignment_are_batches(
    tmp_path: Path, name: str, persistent: int, consumers: int
) -> None:
    emulated = EmulatedDevice(tmp_path, words="wgmma_words.h")
    one = _of_any_alignment(name)
    turns = {"multiprocessors": persistent, "consumers": consumers, "pingpong": consumers - 1}
    check(emulated, one.replace(**turns), name)


@pytest.mark.every(3)
@needs_compiler
@pytest.mark.parametrize("name", ["bf16TN", "fp16NT", "tf32TT"])
def test_operands_of_any_alignment_are_groups(tmp_path: Path, name: str) -> None:
    emulated = EmulatedDevice(tmp_path, words="wgmma_words.h")
    check_group(emulated, stencil("wgmma"), _of_any_alignment(name), variant(name))


def test_a_kernel_for_batches_is_another():
    of = variant("sNN")
    for config in batch_configs(of):
        plain = stencil(config.stencil).source(config, of, "cuda")
        many = plain.batched()
        assert "BATCHED" not in plain.defines
        assert many.defines["BATCHED"] == 1 + bool(config.get("persistent", 0))
        assert plain.identity != many.identity
        assert plain.digest != many.digest


def test_what_is_no_stencils_kernel_takes_no_batches():
    from tilewright.stencil import Source

    with pytest.raises(ValueError, match="takes no batches"):
        Source("kernel void gemm() {}", {}).batched()


def test_kernels_that_share_tiles_take_no_batches():
    of = variant("sNN")
    family = stencil("simt_async")
    config = family.batch_configs(of)[1]
    for more in ({}, {"persistent": 1}):
        assert family.batches(Config(config.stencil, {**config, **more}), of)
    for more in ({"persistent": 1, "stream_k": 1}, {"tma": 1}, {"parallel_split_k": 1}):
        assert not family.batches(Config(config.stencil, {**config, **more}), of)


def test_loops_are_timed_rescheduled_where_that_is_proved():
    allowed = ("simt_async/c/walked",)
    for name, rescheduled in (("cNN", {"simt_async"}), ("sNN", set()), ("zNN", set())):
        configs = list(batch_configs(variant(name), allowed))
        assert {one.stencil for one in configs if "schedule" in one} == rescheduled
        assert configs == list(batch_configs(variant(name))) or rescheduled


@pytest.mark.parametrize(("letter", "many"), [("bf16", True), ("int8", False), ("s", False)])
def test_columns_that_are_not_aligned_have_configs_of_their_own(letter, many):
    """Of 16 bits, in the one launch mode that they have."""
    own = list(batch_sources(letter, unaligned=True))
    assert bool(own) == many
    assert all(source.defines["TMA"] == 0 and mode == PLAIN for _, _, mode, source in own)
    others = batch_sources(letter)
    assert all(source.defines.get("TMA", 1) != 0 or letter == "s" for *_, source in others)


@pytest.mark.parametrize("trans", ["NN", "NT", "TN", "TT"])
def test_drawn_batches_are_aligned_or_not(trans):
    of, every = Variant(precision("bf16"), *map(Trans, trans)), []
    for number, drawn in enumerate(drawn_batches(of, 5, 60)):
        other, batch = _unaligned(drawn, number), _aligned(drawn, number)
        assert other.lda % 8 or other.ldb % 8
        assert batch.lda % 8 == batch.ldb % 8 == 0
        assert (batch.step_a, batch.step_b) == batch.stored[:2]
        assert all(0 < one.batch <= drawn.batch for one in (other, batch))
        every.append(batch)
    assert {one.ldc % 8 == 0 for one in every} == {True, False}


def test_blocks_that_go_through_all_products_are_not_held_back_one_by_one():
    of = variant("sNN")
    configs = stencil("simt_async").batch_configs(of)
    config = next(one for one in configs if one.get("persistent", 0))
    many = stencil("simt_async").source(config, of, "cuda").batched()
    with pytest.raises(ValueError, match="held back"):
        many.run_if_zero()


def test_persistent_blocks_of_a_batch_are_as_many_as_fit():
    geometry = stencil("wgmma").geometry(_of_tiles(variant("bf16TN"), 1, 0))
    launch = geometry.batched(1000, 1000, 9)
    assert (launch.grid, launch.batch) == ((9 * 64, 1), 1)
    assert launch.on(132).grid == (132, 1)
    assert geometry.batched(100, 100, 9).on(132).grid == (9, 1)


def test_a_batch_has_blocks_in_z():
    of = variant("sNN")
    geometry = stencil("portable").geometry(stencil("portable").batch_configs(of)[0])
    launch = geometry.batched(40, 20, 7)
    assert (launch.grid, launch.batch, launch.threads) == ((6, 1), 7, (6 * 32, 1, 7))
    assert Problem(40, 20, 5, "s", batch=7).flops == 7 * Problem(40, 20, 5, "s").flops
