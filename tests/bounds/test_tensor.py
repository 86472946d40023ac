"""Bounds of tensor cores: feed, promotion, split and tail by hand, and what was measured below."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import tilewright as tw
from tilewright.bounds import modern, tensor
from tilewright.bounds.schemes import SCHEMES, arithmetic_of
from tilewright.bounds.units import units_of
from tilewright.cli.app import run
from tilewright.hardware.catalogue import catalogue_device
from tilewright.precision import SHORT
from tilewright.problem import Problem
from tilewright.serve.bound import bound
from tilewright.stencil import split
from tilewright.stencil.wgmma import ARITHMETICS

H100 = catalogue_device("h100")
SIZES = (1, 7, 100, 1024, 4097, 16384)


def square(n, letter="s"):
    return Problem(n, n, n, letter)


def units(name):
    """Return the units of a precision, or of an arithmetic of single precision."""
    letter, arithmetic = (name, "ieee") if name in SHORT else ("s", name)
    return units_of(square(1, letter), H100, arithmetic, None)


def bound_of(n, name, **how):
    """Return the bound of a square in a precision, or in an arithmetic of single precision."""
    if name in SHORT:
        return bound(square(n, name), H100, **how)
    return bound(square(n), H100, arithmetic=name, **how)


def with_number(name, value, device=H100):
    changed = replace(device.quantities[name], value=value)
    return replace(device, quantities={**device.quantities, name: changed})


@pytest.mark.parametrize(
    ("stacked", "columns", "groups", "share"),
    [
        # 128 x 256, two warpgroups of 64 x 256: each step in k they read 2 (64 + 256) elements
        # and 128 + 256 are written, 2048 bytes: 16 cycles, as many as 32768 multiply-adds take.
        (1, 256, (2, 1), 1.0),
        # 128 x 128 of 64 x 128: 384 read, 256 written, 1280 bytes in 10 cycles for 8 of work.
        (1, 128, (2, 1), 8 / 10),
        # 256 x 128 of 128 x 128, which read B twice: 768 read, 384 written, 18 cycles for 16.
        (2, 128, (2, 1), 16 / 18),
        # One warpgroup of 64 x 64: 128 read, 128 written, 4 cycles for 2.
        (1, 64, (1, 1), 2 / 4),
    ],
)
@pytest.mark.parametrize("arithmetic", ["fp16", "bf16", "tf32", "int8", "e4m3"])
def test_feed_by_hand(arithmetic, stacked, columns, groups, share):
    """All types alike: where elements are half as long, twice as many are multiplied."""
    found = tensor.feed(H100, units(arithmetic), stacked, columns, groups)
    assert found == pytest.approx(share)


def test_feed_of_three_products_by_hand():
    # 128 x 128 of 64 x 128: A's two parts once, B's read for each product: 2 (128 + 384), and
    # 512 written: 3072 bytes in 24 cycles for 24 of work.  Plain FP16 had 0.8.
    assert tensor.feed(H100, units("fp16x3"), 1, 128, (2, 1)) == pytest.approx(1)
    # 64 x 64: 128 + 192 read, 256 written, 9 cycles for 6.
    assert tensor.feed(H100, units("fp16x3"), 1, 64, (1, 1)) == pytest.approx(6 / 9)


def test_tiles_fit_the_registers_and_a_second_set_of_sums_halves_them():
    single = tensor.tensor_tiles(H100, units("fp16"), promoted=False)
    double = tensor.tensor_tiles(H100, units("fp16"), promoted=True)
    for tiles, sets in ((single, 1), (double, 2)):
        for tile in tiles:
            assert tile.sums * 128 == sets * tile.rows * tile.columns
            assert tile.sums <= 255
            assert sets * tile.block_m * tile.block_n <= 65536
    shapes = {(t.block_m, t.block_n, t.groups) for t in single}
    assert (128, 256, 2) in shapes
    assert (128, 256, 2) not in {(t.block_m, t.block_n, t.groups) for t in double}
    assert [t.feed for t in single] == sorted((t.feed for t in single), reverse=True)


def test_persistent_blocks_have_the_tail_of_whole_blocks():
    tile = tensor.best_tensor_tile(square(4096), H100, units("fp16"), False)
    tail = modern.tail_efficiency(square(4096), 132, tile.block_m, tile.block_n, tile.split_k)
    assert tile.tail == tail
    assert tile.efficiency == pytest.approx(tail * tile.feed)
    # One block's worth of C on a device of one multiprocessor leaves nothing idle.
    one = with_number("multiprocessors", 1)
    assert tensor.best_tensor_tile(Problem(128, 256, 512), one, units("fp16"), False).tail == 1


def test_small_results_are_better_served_by_single_warps():
    thin = Problem(16, 8, 2**20, "s")
    best = tensor.best_tensor_tile(thin, H100, units("fp16"), False)
    assert (best.groups, best.block_m, best.block_n) == (0, 16, 8)
    assert best.feed == H100.needs("warp_matrix_share")
    assert tensor.best_tensor_tile(square(4096), H100, units("fp16"), False).groups > 0


def test_either_operand_may_be_the_one_of_64_rows():
    wide, tall = (
        tensor.best_tensor_tile(Problem(*shape, 65536, "s"), H100, units("fp16"), False)
        for shape in ((8, 4096), (4096, 8))
    )
    assert wide.efficiency == pytest.approx(tall.efficiency)


def test_every_term_of_fp16x3_by_hand():
    """SGEMM 4096 by three products, promotion every 32 steps, split before the product."""
    found = bound(square(4096), H100, arithmetic="fp16x3")
    value = {t.name: t.value for t in found.terms}
    peak = 2 * 2048 * 132 * 1.98e9 / 3
    assert value["arithmetic peak"] == pytest.approx(peak) == pytest.approx(356.8e12, rel=1e-3)
    # 1024 blocks of 128 x 128 in 32 parts of k: 32768 on 132, the fullest takes 249.
    products = peak * 32768 / 132 / 249
    assert value["warpgroup tiles and tail wave"] == pytest.approx(products)
    # An addition of an element every 32 steps, 128 lanes.
    assert value["promotion (additions)"] == pytest.approx(2 * 32 * 128 * 132 * 1.98e9)
    # Two matrices of 64 MiB read, as much written; 50 MiB of that stay in the cache.
    seconds = (4 * 2**26 - 52428800) / H100.needs("copy_bytes_per_s")
    flops = 2 * 4096**3
    assert value["split in a pre-pass"] == pytest.approx(flops / (seconds + flops / products))
    assert found.limit == value["split in a pre-pass"]
    assert f"split {1e6 * seconds:.1f} + products {1e6 * flops / products:.1f}" in found.explain()


def test_presplit_operands_leave_the_split_out():
    whole, parts = (
        bound(square(4096), H100, arithmetic="fp16x3", presplit=given) for given in (False, True)
    )
    assert "split in a pre-pass" not in {t.name for t in parts.terms}
    assert parts.limit > whole.limit
    assert parts.limiting.name == "warpgroup tiles and tail wave"


# cuBLAS 13.1 and a Triton kernel of three FP16 products (the split not counted), TFLOP/s, as
# measured on one H100 SXM on 2026-11-21; the best of the four transposes.
MEASURED = [
    ("tf32", 4096, 355), ("tf32", 8192, 350),
    ("fp16", 4096, 693), ("fp16", 8192, 650),
    ("bf16", 4096, 706), ("bf16", 8192, 660),
    ("fp16x3", 4096, 154), ("fp16x3", 8192, 141), ("fp16x3", 16384, 149),
]  # fmt: skip


@pytest.mark.parametrize(("arithmetic", "n", "teraflops"), MEASURED)
def test_what_was_measured_is_below_the_limit(arithmetic, n, teraflops):
    presplit = {} if arithmetic in SHORT else {"presplit": True}
    found = bound_of(n, arithmetic, **presplit)
    assert 0.39 < teraflops * 1e12 / found.limit < 1


@pytest.mark.parametrize("n", SIZES)
def test_more_products_of_the_same_parts_never_raise_the_limit(n):
    one, three = (bound_of(n, a).limit for a in ("fp16_f32", "fp16x3"))
    six, nine = (bound(square(n), H100, arithmetic=a).limit for a in ("bf16x6", "bf16x9"))
    assert one >= three
    assert six >= nine > 0


@pytest.mark.parametrize("arithmetic", SCHEMES)
@pytest.mark.parametrize("n", SIZES)
def test_more_of_anything_never_lowers_a_limit(arithmetic, n):
    found = bound(square(n), H100, arithmetic=arithmetic)
    for name in ("clock_hz", "memory_bytes_per_s", "copy_bytes_per_s", "l2_bytes_per_s",
                 "l2_bytes", "shared_load_lanes", "registers_per_multiprocessor"):  # fmt: skip
        more = with_number(name, 2 * H100.needs(name))
        assert bound(square(n), more, arithmetic=arithmetic).limit >= found.limit, name
    assert found.limit <= found.term("arithmetic peak").value
    rarer = bound(square(n), H100, arithmetic=arithmetic, promote_k=128)
    assert rarer.limit >= found.limit
    # Every second step the additions alone take as long as the products.
    dense = bound(square(n), H100, arithmetic=arithmetic, promote_k=1, presplit=True)
    assert dense.limit <= dense.term("promotion (additions)").value == 2 * 128 * 132 * 1.98e9


def test_promotion_costs_registers_even_for_a_plain_type():
    plain, taken = (bound_of(4096, "bf16", promote_k=interval) for interval in (None, 64))
    assert "promotion (additions)" not in {t.name for t in plain.terms}
    assert taken.limit <= plain.limit
    # Half the sums: no tile that shared memory feeds at the whole rate.
    best = [
        tensor.tensor_tiles(H100, units("bf16"), promoted)[0].feed for promoted in (False, True)
    ]
    assert best[0] == 1 > best[1]


def complex_and_real(arithmetic, m, n, k, **how):
    """Return the bounds of a complex product and of the real one that computes it."""
    problems = Problem(m, n, k, "c", "C", "T"), Problem(2 * m, n, 2 * k, "s")
    return tuple(bound(problem, H100, arithmetic=arithmetic, **how) for problem in problems)


@pytest.mark.parametrize("arithmetic", SCHEMES)
def test_a_complex_product_in_parts_is_a_real_one(arithmetic):
    whole, real = complex_and_real(arithmetic, 512, 1000, 256, presplit=True)
    assert {t.name: t.value for t in whole.terms} == {t.name: t.value for t in real.terms}
    assert str(whole.problem) == "CGEMM CT 512x1000x256"
    assert whole.problem.flops == real.problem.flops


@pytest.mark.parametrize(
    ("arithmetic", "moved"),
    [
        # 8 bytes of each complex element are read; an element of A becomes four numbers of two
        # parts, one of B two numbers.
        ("fp16x3", 4096**2 * (8 + 8 + 4 * 4 + 2 * 4)),
        ("bf16x9", 4096**2 * (8 + 8 + 4 * 6 + 2 * 6)),
    ],
)
def test_the_pass_before_a_complex_product_by_hand(arithmetic, moved):
    found = bound(Problem(4096, 4096, 4096, "c"), H100, arithmetic=arithmetic)
    split = found.term("split in a pre-pass")
    assert next(q.value for q in split.inputs if q.name == "bytes") == moved
    seconds = (moved - 52428800) / H100.needs("copy_bytes_per_s")
    others = min(t.value for t in found.terms if t is not split)
    flops = 8 * 4096**3
    assert split.value == found.limit == pytest.approx(flops / (seconds + flops / others))
    # The host knows complex numbers only.
    given = bound(Problem(64, 64, 64, "c"), H100, arithmetic=arithmetic, transfer=True)
    sent = given.term("host transfer (Nakasato eqs. 3-5)")
    assert next(q.value for q in sent.inputs if q.name == "bytes") == 4 * 64**2 * 8


def test_complex_single_precision_is_met_by_parts():
    fast = tw.bound(Problem(4096, 4096, 4096, "c"), "h100", accuracy="fp32")
    assert "fp16x3" in fast.arithmetic
    assert fast.limit > 4 * tw.bound(Problem(4096, 4096, 4096, "c"), "h100").limit
    # In one part B is multiplied as it lies.
    split = tw.bound(Problem(4096, 4096, 4096, "c"), "h100", accuracy="tf32")
    split = split.term("split in a pre-pass")
    moved = 4096**2 * (8 + 4 * 4)
    assert next(q.value for q in split.inputs if q.name == "bytes") == moved
    with pytest.raises(ValueError, match="arithmetic='bf16x6' goes with precision s or c, not d"):
        bound(Problem(8, 8, 8, "d"), H100, arithmetic="bf16x6")


def test_an_accuracy_is_met_by_the_fastest_arithmetic():
    fast = tw.bound(square(4096), "h100", accuracy="fp32")
    assert fast.limit == max(
        bound(square(4096), H100, arithmetic=a).limit for a in arithmetic_of("fp32")
    )
    assert "fp16x3" in fast.arithmetic
    assert tw.bound(square(4096), "h100", accuracy="ieee") == tw.bound(square(4096), "h100")
    tf32 = tw.bound(square(4096), "h100", accuracy="tf32")
    assert tf32.limit == tw.bound(square(4096, "tf32"), "h100").limit
    # No tensor cores: single precision is met by its own.
    old = tw.bound(square(4096), "gtx580", accuracy="fp32")
    assert old.limit == tw.bound(square(4096), "gtx580").limit


def test_elements_of_16_bits_are_multiplied_by_the_units_that_have_them():
    half = SHORT["fp16"]
    assert bound(square(8192, half), H100).arithmetic == "fp16 tensor cores"
    # Memory too: three matrices of two bytes an element, C read and written.
    thin = bound(Problem(8192, 1, 8192, half), H100)
    assert thin.limiting.name == "device memory"
    assert thin.limit == pytest.approx(H100.needs("memory_bytes_per_s"), rel=1e-3)
    with pytest.raises(ValueError, match="goes with precision s"):
        bound(square(8, half), H100, arithmetic="fp16x3")
    # Refused in the caller's own words.
    with pytest.raises(ValueError, match="accuracy='fp32' goes with precision s or c, not d"):
        bound(Problem(8, 8, 8, "d"), H100, accuracy="fp32")


def test_unknown_power_has_no_number():
    found = bound(square(8192), H100, arithmetic="fp16x3", sustained=True)
    assert "sustained_clock_hz.fp16" in found.missing["clock under the power limit"]
    known = replace(H100.quantities["clock_hz"], name="sustained_clock_hz.fp16", value=1.4e9)
    device = replace(H100, quantities={**H100.quantities, "sustained_clock_hz.fp16": known})
    slower = bound(square(8192, "fp16"), device, sustained=True)
    assert slower.term("clock under the power limit").value == pytest.approx(
        slower.term("arithmetic peak").value * 1.4 / 1.98
    )
    other = bound(square(8192, "tf32"), device, sustained=True)
    assert "sustained_clock_hz.tf32" in other.missing["clock under the power limit"]
    assert slower.limit < slower.term("clock under the power limit").value


def test_devices_without_warpgroups_or_without_a_measured_copy():
    a100 = bound(square(4096), "a100", arithmetic="fp16x3")
    assert "instruction mix and tail wave" in {t.name for t in a100.terms}
    split = bound(square(4096), "h200", arithmetic="fp16x3").term("split in a pre-pass")
    assert "memory_bytes_per_s" in {q.name for q in split.inputs}
    gone = bound(square(64), "gtx580", arithmetic="fp16x3")
    assert "tensor.fp16" in gone.missing["arithmetic peak"]
    assert not {"split in a pre-pass", "promotion (additions)"} & {t.name for t in gone.terms}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"accuracy": "single"}, "accuracy='single' is unknown"),
        ({"accuracy": "fp32", "arithmetic": "tf32x3"}, "goes without arithmetic='tf32x3'"),
        ({"arithmetic": "tf32"}, "arithmetic='tf32' is unknown"),
        ({"arithmetic": "fp16x3", "promote_k": 0}, "promote_k=0"),
        ({"arithmetic": "fp16x4"}, "arithmetic='fp16x4' is unknown"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        bound(square(64), H100, **arguments)


def test_the_command(capsys):
    command = ["bound", "--device", "h100", "--size", "4096", "--accuracy", "fp32"]
    assert run([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["flops_per_second"] == tw.bound(square(4096), "h100", accuracy="fp32").limit
    assert run([*command, "--presplit", "--promote-k", "64"]) == 0
    text = capsys.readouterr().out
    assert "promote_k = 64" in text
    assert "split in a pre-pass" not in text
    assert run(["bound", "--device", "h100", "--accuracy", "single"]) == 2


def test_bounds_count_the_products_that_kernels_compute():
    for name, one in SCHEMES.items():
        made = ARITHMETICS[name]
        assert (one.parts, one.products) == (made.parts, len(made.products))
        assert one.part_bytes == made.element_bytes
        assert split.SCHEMES[name].part == one.stored
