"""The skinny stencil, its text run on the CPU: every way through it is right."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stencil.contract import (
    bench,
    checks,
    compiled,
    computes_the_product,
    cut,
    fault_is_found,
    faulty,
    thorough_but,
)
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tilewright.backend.base import LaunchError
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.precision import PRECISIONS, SHORT
from tilewright.problem import Trans, transposes_of
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.stencil.skinny import Skinny
from tilewright.stencil.skinny.resources import widths
from tilewright.tuning.verify import Bench, Check, WrongResultError, certify

FAMILY = Skinny()
VARIANTS = [
    str(p.letter) + a + b
    for p in (PRECISIONS | SHORT).values()
    for a, b in transposes_of(p)
    if FAMILY.computes(Variant(p, Trans(a), Trans(b)))
]

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> EmulatedDevice:
    """A device with this stencil's words."""
    directory = tmp_path_factory.mktemp("kernels")
    return EmulatedDevice(directory, multiprocessors=8, words="skinny_words.h")


def points(of: Variant, live: EmulatedDevice, **wanted: int) -> list[Config]:
    """Return the points of the space that have these values; the fewest lanes along k first."""
    found = [
        one
        for one in FAMILY.space(of, live.spec)
        if all(one.get(name, 0) == value for name, value in wanted.items())
    ]
    assert found
    return sorted(found, key=lambda one: one.integer("lanes_k"))


def width(of: Variant, short_m: int, wanted: int) -> dict[str, int]:
    """Name a block's columns of the short side: of tensor cores at least eight."""
    return {"block_m" if short_m else "block_n": max(wanted, widths(of.precision)[0])}


@pytest.mark.every(7)
@pytest.mark.parametrize("short_m", [0, 1])
@pytest.mark.parametrize(
    "name", ["sNN", "dTT", "cCN", "zNC", "bf16TN", "fp16_f32NT", "int8TN", "e4m3TN"]
)
def test_the_contract_is_kept(emulated: EmulatedDevice, name: str, short_m: int) -> None:
    """All classes of alpha and beta, ragged sizes, paddings, offsets, NaN and Inf."""
    of = variant(name)
    config = points(of, emulated, short_m=short_m, **width(of, short_m, 4))[0]
    certify(emulated, compiled(emulated, FAMILY, config, of), FAMILY, config, of)


@pytest.mark.parametrize(
    "name", thorough_but({"sNT", "dTN", "cTC", "zCN", "fp16NN", "e5m2TN", "tf32NN"}, VARIANTS)
)
def test_every_start_is_right(emulated: EmulatedDevice, name: str) -> None:
    of = variant(name)
    for config in FAMILY.starts(of, emulated.spec)[:2]:
        computes_the_product(emulated, FAMILY, config, of)


@pytest.mark.every(3)
@pytest.mark.parametrize("short_m", [0, 1])
@pytest.mark.parametrize("name", ["sNN", "dTT", "cTN", "zNT", "bf16NT", "int8TN"])
def test_threads_share_k_in_every_way(emulated: EmulatedDevice, name: str, short_m: int) -> None:
    """Rows that end within a chunk and within a block; columns aligned and not."""
    of = variant(name)
    for config in points(of, emulated, short_m=short_m, **width(of, short_m, 2)):
        run, rng = bench(emulated, FAMILY, config, of), np.random.default_rng(3)
        depth = config.integer("block_k")
        for k in (1, depth - 1, 2 * depth, 2 * depth + 5):
            sizes = (2, 70) if short_m else (70, 2)
            run.exact(Check(*sizes, k, beta=1), rng)
            sizes = (1, 133) if short_m else (133, 1)
            run.exact(Check(*sizes, k, alpha=-2, padding=1, offset=3, nan_in_c=True), rng)


@pytest.mark.thorough
@pytest.mark.parametrize("name", VARIANTS)
def test_any_point_is_right(emulated: EmulatedDevice, name: str) -> None:
    of = variant(name)
    for config in FAMILY.space(of, emulated.spec).sample(8, seed=5):
        computes_the_product(emulated, FAMILY, config, of)


@pytest.mark.parametrize("slices", [1, 2, 9, 40, 300])
def test_any_number_of_slices_is_right(emulated: EmulatedDevice, slices: int) -> None:
    """More than there are steps, too: those without a step leave zeros."""
    family, of = cut(Skinny, slices), variant("dTN")
    config = points(of, emulated, short_m=0, block_n=2)[0]
    run = Bench(emulated, compiled(emulated, family, config, of), family, config, of)
    rng = np.random.default_rng(slices)
    for check in (Check(70, 2, 700, beta=1), Check(65, 1, 647, -3, 2, padding=3, offset=5)):
        run.exact(check, rng)


@settings(max_examples=25)
@given(
    check=checks(4, 300),
    seed=st.integers(0, 2**32),
    short_m=st.integers(0, 1),
    slices=st.integers(1, 5),
    name=st.sampled_from(["sTT", "bf16TT", "bf16_f32NN", "int8TN", "e4m3_f32TN", "tf32TT"]),
)
def test_any_problem_is_computed_exactly(
    emulated: EmulatedDevice, check: Check, seed: int, short_m: int, slices: int, name: str
) -> None:
    """Long short sides, too: many tiles along either."""
    family, of = cut(Skinny, slices), variant(name)
    config = points(of, emulated, short_m=short_m, **{"block_m" if short_m else "block_n": 8})[0]
    bench(emulated, family, config, of).exact(check, np.random.default_rng(seed))


FAULTS = {
    "a part too few": ("part < PARTS / FEWER;", "part + 1 < PARTS / FEWER;"),
    "another slice's steps": ("range_of(p.k, BLOCK_ID / tiles,", "range_of(p.k, 0,"),
    "a slice too few": ("slice < slices; slice", "slice + 1 < slices; slice"),
    "rows beyond the last": ("row_from<WIDE>(i, v) < rows &&", "row_from<WIDE>(i, v) <= rows &&"),
    "beyond k": ("step_from<WIDE>(u, v) < left", "step_from<WIDE>(u, v) <= left"),
    "no new slab": ("if (number == 0) {", "if (l == r.from) {"),
    "sums in place of a slab in use": ("BARRIER(); /* sums", "/* sums"),
    "a slab that is not there yet": (
        "fill_slab(slab, p, at, l, r.to);\n        BARRIER();",
        "fill_slab(slab, p, at, l, r.to);",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_emulator_finds(emulated: EmulatedDevice, fault: str) -> None:
    whole = fault == "no new slab"  # slices of so short a sum are a slab each
    wrong, of = faulty(type(cut(Skinny, 1)) if whole else Skinny, *FAULTS[fault]), variant("dNN")
    config = points(of, emulated, short_m=1, block_m=16)[0]
    if whole:
        with pytest.raises(WrongResultError):
            bench(emulated, wrong, config, of).exact(Check(16, 9, 600), np.random.default_rng(1))
    else:
        fault_is_found(emulated, wrong, config, of)


TENSOR_FAULTS = {
    "unaligned chunks as they lie": (
        "shifted(mine->e[u][i], mine->high[u][i], shift)",
        "mine->e[u][i]",
    ),
    "half a word's shift": ("bytes % 4 * 8", "0"),
    "a byte's shift": ("bytes % 4 * 8", "bytes % 4 / 2 * 16"),
    "elements beyond k": ("if (v < count)", "if (v <= count)"),
    "the slab in use": ("slabs + (turn ? 0 : SLAB), p", "slabs + (turn ? SLAB : 0), p"),
    "a slab that is not there yet": ("wait_for_copies();\n", "\n"),
    "sums in place of a slab in use": ("BARRIER(); /* sums", "/* sums"),
    "rows of another pair": ("const int r = 2 * pair + e / 2;", "const int r = 2 * pair + e % 2;"),
    "a warp's part too few": ("part < PARTS / FEWER;", "part + 1 < PARTS / FEWER;"),
}


# Elements of 16 bits begin at no odd byte, and k ends within a chunk of rows along it alone.
ALONG_K = [fault for fault in TENSOR_FAULTS if fault != "a byte's shift"]
ALONG_ROWS = [fault for fault in ALONG_K if fault != "elements beyond k"]
# Integers beyond k are multiplied with zeros, whatever they are.
OF_BYTES = [fault for fault in TENSOR_FAULTS if fault != "elements beyond k"]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        *(("bf16TN", one) for one in ALONG_K),
        *(("fp16NN", one) for one in ALONG_ROWS),
        *(("int8TN", one) for one in OF_BYTES),
    ],
)
def test_the_emulator_finds_of_tensor_cores(
    emulated: EmulatedDevice, name: str, fault: str
) -> None:
    """Both orders of the long operand; Y's columns are copied in the second product alone."""
    wrong, of = faulty(type(cut(Skinny, 1)), *TENSOR_FAULTS[fault]), variant(name)
    config = points(of, emulated, short_m=0, block_n=8)[0]
    run, rng = bench(emulated, wrong, config, of), np.random.default_rng(1)

    def run_both() -> None:
        for check in (
            Check(133, 7, 2613, padding=1, offset=3),
            Check(70, 8, 2608),
            Check(300, 8, 496),
        ):
            run.exact(check, rng)

    with pytest.raises((WrongResultError, LaunchError)):
        run_both()


@pytest.mark.parametrize("name", ["sNN", "bf16TN", "fp16NN", "bf16NT", "int8TN", "tf32NN"])
def test_no_address_is_beyond_an_operand(
    emulated: EmulatedDevice, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A and B end with their last elements: a chunk that reaches further is a fault."""
    monkeypatch.setattr("tilewright.tuning.matrices._GUARD_ELEMENTS", 0)
    of, rng = variant(name), np.random.default_rng()
    config = points(of, emulated, short_m=0, **width(of, 0, 1))[0]
    run = bench(emulated, FAMILY, config, of)
    for m, k in itertools.product((1, 3, 5, 9, 16, 70, 1021), (9, 33, 260)):
        run.exact(Check(m, 1, k), rng)


def test_devices_that_multiply_no_fp8_have_no_such_kernels() -> None:
    of = variant("e4m3TN")
    assert FAMILY.default(of, architecture_spec("sm_89"))
    with pytest.raises(ValueError, match="sm_86"):
        FAMILY.default(of, architecture_spec("sm_86"))
    assert FAMILY.default(variant("int8TN"), architecture_spec("sm_86"))


@pytest.mark.parametrize("name", ["sNN", "bf16TN", "int8TN"])
def test_groups_have_no_such_kernels(emulated: EmulatedDevice, name: str) -> None:
    of = variant(name)
    assert FAMILY.grouped_config(FAMILY.default(of, emulated.spec), of) is None


@pytest.mark.parametrize("name", ["int8NN", "e4m3TT", "tf32NT"])
def test_orders_that_tensor_cores_do_not_read_have_no_such_kernels(
    emulated: EmulatedDevice, name: str
) -> None:
    of = variant(name)
    assert not FAMILY.computes(of)
    with pytest.raises(ValueError, match="has no skinny kernels"):
        FAMILY.space(of, emulated.spec)


def test_the_text_begins_with_a_drawing() -> None:
    text = (Path(__file__).parents[3] / "src/tilewright/stencil/skinny/kernel.cuh").read_text()
    assert "+-----+" in text[: text.index("*/")]
