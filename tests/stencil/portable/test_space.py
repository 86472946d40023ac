"""What the portable stencil offers: ASTRA's kernels, honest limits, no point twice."""

from __future__ import annotations

import dataclasses
import re
from itertools import pairwise

import pytest

from tests.stencil.portable.covering import ANY, VARIANTS, unpruned
from tests.stencil.portable_harness import variant
from tilewright.hardware import DeviceSpec
from tilewright.problem import Trans
from tilewright.sass import wavefronts
from tilewright.stencil import STATIC_SHARED_BYTES, Variant
from tilewright.stencil.portable import Portable
from tilewright.stencil.portable.constraints import least_reuse, least_threads
from tilewright.stencil.source_files import read_source

GTX680 = DeviceSpec(
    "GTX 680", "NVIDIA Corporation", "gpu", 8, 32, 1024, 49152,
    max_threads_per_multiprocessor=2048, registers_per_multiprocessor=65536,
    max_registers_per_thread=63, shared_bytes_per_multiprocessor=49152,
    max_blocks_per_multiprocessor=16,
)  # fmt: skip
H100 = dataclasses.replace(
    GTX680, name="H100", multiprocessors=132, max_registers_per_thread=255,
    shared_bytes_per_block=232448, shared_bytes_per_multiprocessor=233472,
    max_blocks_per_multiprocessor=32,
)  # fmt: skip
SMALL = DeviceSpec("small", "somebody", "gpu", 1, 16, 64, 8192)
DEVICES = (GTX680, H100, ANY, SMALL)

ASTRA = {
    "fragment_vector": 1, "strided": 1, "read_vector": 1, "pad": 0, "shared_buffers": 1,
    "prefetch": 1, "unroll_k": 8, "swizzle_rows": 0, "threads_m": 32, "threads_n": 32,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "block", "reads"),
    [("sTT", (224, 128, 32), (32, 64)), ("sTN", (192, 160, 32), (32, 32))],
)
def test_astras_fastest_kernels_are_points_of_it(name, block, reads):
    """Kurzak et al., figure 3, on the device and under the thresholds they used."""
    values = ASTRA | dict(zip(("block_m", "block_n", "block_k"), block, strict=True))
    values |= dict(zip(("read_a_m", "read_b_n"), reads, strict=True))
    config = Portable().space(variant(name), GTX680).config(values)
    assert Portable().resources(config, variant(name)).threads == 1024


def test_astras_thresholds_follow_from_the_device():
    s, d, z = (variant(f"{p}NN").precision for p in "sdz")
    assert [least_threads(GTX680, p) for p in (s, d, z)] == [1024, 1024, 768]
    assert [least_reuse(p) for p in (s, d, z)] == [2.0, 1.0, 2.0]
    assert least_threads(H100, s) == 256
    assert least_threads(SMALL, s) is None


def test_thresholds_leave_less():
    of = variant("sNN")
    assert unpruned(of, H100).count() > Portable().space(of, H100).count() > 0


def test_unknown_limits_constrain_nothing():
    names = {c.name for c in Portable().space(variant("sNN"), SMALL).constraints}
    assert not names & {"registers of a thread", "registers of a block", "occupancy"}
    assert "shared memory of a block" in names


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_default_is_valid_on_any_device(device):
    for name in VARIANTS:
        of = variant(name)
        config = Portable().default(of, device)
        against = Portable().space(of, device).violated(config)
        assert not [c.name for c in against if c.kind != "heuristic"]


def test_a_device_that_runs_none_says_why():
    with pytest.raises(ValueError, match="at most 8 threads"):
        Portable().default(variant("sNN"), dataclasses.replace(SMALL, max_threads_per_block=8))


@pytest.mark.parametrize("device", [GTX680, H100, SMALL], ids=lambda device: device.name)
def test_no_config_exceeds_the_device(device):
    for name in ("sNN", "zCT"):
        of = variant(name)
        for config in unpruned(of, device).sample(100, seed=1):
            used = Portable().resources(config, of)
            assert used.threads <= device.max_threads_per_block
            assert used.threads % device.warp_size == 0
            assert used.shared_bytes <= device.shared_bytes_per_block


def test_cuda_asks_at_launch_for_what_it_may_not_have_statically():
    """And OpenCL, which cannot ask, has all of it in its arrays."""
    portable, of = Portable(), variant("sTN")
    seen = set()
    for config in portable.space(of, H100).sample(60, seed=5):
        shared = portable.resources(config, of).shared_bytes
        large = shared > STATIC_SHARED_BYTES
        seen.add(large)
        asked = portable.source(config, of, "cuda").dynamic_shared_bytes
        assert asked == (shared if large else 0)
        assert portable.source(config, of, "opencl").dynamic_shared_bytes == 0
    assert seen == {False, True}


def test_the_cuda_dialect_knows_the_same_limit():
    text = read_source("prelude/dialect_cuda.h")
    found = re.search(r"#define STATIC_SHARED_BYTES \((\d+) \* (\d+)\)", text)
    assert int(found[1]) * int(found[2]) == STATIC_SHARED_BYTES


@pytest.mark.parametrize("name", ["sNN", "sNT", "sTN", "sTT"])
def test_tuning_starts_from_points_of_the_space(name):
    of = variant(name)
    space, starts = Portable().space(of, H100), Portable().starts(of, H100)
    assert all(start in space for start in starts)
    assert len(set(starts)) == len(starts) > 4
    assert Portable().default(of, H100) in starts


@pytest.mark.parametrize("name", ["sNN", "sTN"])
def test_starts_write_their_tiles_without_bank_conflicts(name):
    """Lanes of the first warp, as tiles.h deals them out: a store meets each bank once."""
    of = variant(name)
    for start in Portable().starts(of, H100):
        vector, shift = start.integer("read_vector"), start.integer("pad") * 4
        for side, read, k_fast in (
            ("block_m", "read_a_m", of.trans_a.transposed),
            ("block_n", "read_b_n", not of.trans_b.transposed),
        ):
            threads = start.integer("threads_m") * start.integer("threads_n")
            across, pitch = start.integer(read), start.integer(side) + shift
            if k_fast:
                lane = [(i // (threads // across), i % (threads // across)) for i in range(32)]
                stores = [[4 * ((k * vector + r) * pitch + s) for s, k in lane]
                          for r in range(vector)]  # fmt: skip
                assert [wavefronts(store, 32) for store in stores] == [1] * vector
            else:
                lane = [(i % across, i // across) for i in range(32)]
                store = [4 * (k * pitch + s * vector) for s, k in lane]
                assert wavefronts(store, 32 * vector) == vector


def shape_of_read(config, side, of):
    """Return threads along (contiguous, other) index of a tile, with the vector."""
    threads = config.integer("threads_m") * config.integer("threads_n")
    along = config.integer(f"read_{side}")
    k_fast = of.trans_a.transposed if side == "a_m" else not of.trans_b.transposed
    return (threads // along, along) if k_fast else (along, threads // along)


def test_shared_tiles_are_read_in_whole_vectors_and_long_runs():
    of = variant("sTN")
    for config in Portable().space(of, GTX680).sample(200, seed=2):
        for side in ("a_m", "b_n"):
            if config.integer(f"read_{side}"):
                contiguous, _ = shape_of_read(config, side, of)
                run = contiguous * config.integer("read_vector")
                assert config.integer("block_k") % run == 0
                assert run * 4 >= 32


def test_what_has_no_meaning_has_one_value():
    """Without tiles in shared memory nothing that shapes them may vary."""
    of = variant("sTN")
    space = unpruned(of, ANY)
    direct = {"read_a_m": 0, "read_b_n": 0}
    found = next(c for c in space.sample(8000, seed=4) if direct.items() <= c.items())
    assert found["block_k"] == found["unroll_k"]
    for change in (
        {"pad": 1},
        {"read_vector": 2},
        {"shared_buffers": 2},
        {"prefetch": 1},
        {"block_k": 32, "unroll_k": 1},
        # Neither operand is contiguous along the vectors: they only shape the layout.
        {"strided": 0, "fragment_vector": 4},
    ):
        assert found.replace(**change) not in space
    # One chunk on each side lies the same, strided or not.
    one = {"block_m": 32, "threads_m": 8, "block_n": 32, "threads_n": 8, "fragment_vector": 4}
    base = Portable().default(variant("sNN"), SMALL).replace(**one, strided=1)
    against = unpruned(variant("sNN"), ANY).violated(base)
    assert "one layout where both agree" in [c.name for c in against]


def test_the_funnel_tells_astras_three_kinds_apart():
    funnel = Portable().space(variant("sNN"), GTX680).funnel()
    kinds = [stage.kind for stage in funnel.stages]
    assert kinds == sorted(kinds, key=["divisibility", "hardware", "heuristic"].index)
    assert all(before.survivors >= after.survivors for before, after in pairwise(funnel.stages))
    assert all(stage.reason for stage in funnel.stages)


@pytest.mark.parametrize("shape", [(1, 1), (256, 256), (257, 1000), (4_000_000, 16)])
def test_launch_covers_the_result(shape):
    portable = Portable()
    config = portable.default(variant("sNN"), H100)
    launch = portable.launch(config, *shape)
    side = config.integer("block_m")
    assert launch.grid == (-(-shape[0] // side) * -(-shape[1] // side), 1)
    assert launch.block == (config.integer("threads_m") * config.integer("threads_n"), 1)


def test_the_text_is_whole_and_defines_every_macro_once():
    portable = Portable()
    for name in ("sNN", "dTC", "cRN", "zCC"):
        of = variant(name)
        config = portable.default(of, H100)
        source = portable.source(config, of, "opencl")
        assert "#include" not in source.text
        assert source.entry == "gemm"
        assert not re.search(rf"#define ({'|'.join(source.defines)})\b", source.text)
        assert set(source.defines) >= {parameter.upper() for parameter in config}


def test_only_gpus_are_suited():
    assert Portable().suits(H100)
    assert not Portable().suits(ANY)


def test_conjugation_reaches_the_text():
    source = Portable().source(
        Portable().default(variant("cNN"), H100),
        Variant(variant("cNN").precision, Trans.R, Trans.C),
        "cuda",
    )
    macros = ("TRANS_A", "CONJ_A", "TRANS_B", "CONJ_B")
    assert [source.defines[macro] for macro in macros] == [0, 1, 1, 1]
