"""The stencil of short sums, its text run on the CPU: every way through it is right."""

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
    faulty,
    thorough_but,
)
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tilewright.backend import LaunchError
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.precision import PRECISIONS, SHORT, precision
from tilewright.problem import Trans, transposes_of
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.stencil.outer import Outer
from tilewright.tuning.verify import Bench, Check, WrongResultError, certify

FAMILY = Outer()
VARIANTS = [
    str(p.letter) + a + b
    for p in (PRECISIONS | SHORT).values()
    for a, b in transposes_of(p)
    if FAMILY.computes(Variant(p, Trans(a), Trans(b)))
]

QUICK = {"sNT", "dTN", "cTC", "zCN", "bf16TN", "fp16_f32TT"}

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> EmulatedDevice:
    """A device with this stencil's words."""
    directory = tmp_path_factory.mktemp("kernels")
    return EmulatedDevice(directory, multiprocessors=8, words="outer_words.h")


def all_steps(of: Variant, live: EmulatedDevice) -> list[int]:
    """Return the numbers of steps that points of the space hold, the least first."""
    return sorted({one.integer("block_k") for one in FAMILY.space(of, live.spec)})


def of_steps(of: Variant, live: EmulatedDevice, steps: int, columns: int = 32) -> Config:
    """Return the point of the space that holds so many steps."""
    (found,) = (
        one
        for one in FAMILY.space(of, live.spec)
        if (one["block_k"], one["block_n"]) == (steps, columns)
    )
    return found


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "name", ["sNN", "dTT", "cCN", "zNC", "sNT", "cTR", "bf16NN", "fp16TT", "fp16_f32NT"]
)
def test_the_contract_is_kept(emulated: EmulatedDevice, name: str) -> None:
    """All classes of alpha and beta, ragged sizes, paddings, offsets, NaN and Inf."""
    of = variant(name)
    config = of_steps(of, emulated, 4)
    certify(emulated, compiled(emulated, FAMILY, config, of), FAMILY, config, of)


@pytest.mark.parametrize("name", thorough_but(QUICK, VARIANTS))
def test_every_start_is_right(emulated: EmulatedDevice, name: str) -> None:
    of = variant(name)
    for config in FAMILY.starts(of, emulated.spec):
        assert config in FAMILY.space(of, emulated.spec)
        computes_the_product(emulated, FAMILY, config, of)


@pytest.mark.parametrize("padding", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "name", ["sNN", "sTT", "dNT", "cCN", "zTN", "bf16TN", "fp16NT", "bf16_f32TT"]
)
def test_columns_begin_anywhere(emulated: EmulatedDevice, name: str, padding: int) -> None:
    """Rows that end with a tile, within a chunk behind it and within it; C read and not."""
    of = variant(name)
    config = of_steps(of, emulated, all_steps(of, emulated)[0])
    run, rng = bench(emulated, FAMILY, config, of), np.random.default_rng(padding)
    rows = config.integer("block_m")
    for m in (1, rows - 1, rows, rows + 1, 2 * rows):
        for offset in range(4):
            run.exact(Check(m, 37, 2, -2, 3, padding=padding, offset=offset), rng)
            check = Check(m, 5, 1, padding=padding, offset=offset, nan_in_c=True)
            run.exact(check, rng)


@pytest.mark.parametrize("name", ["sNN", "dTN", "cNC", "bf16NN", "fp16TT", "bf16_f32TN"])
def test_sums_of_any_length_are_right(emulated: EmulatedDevice, name: str) -> None:
    of = variant(name)
    every = all_steps(of, emulated)
    for steps in (every[0], every[-1]):
        run = bench(emulated, FAMILY, of_steps(of, emulated, steps), of)
        for k in (0, 1, steps - 1, steps, steps + 1, 3 * steps + 2):
            run.exact(Check(131, 35, k, beta=1, padding=1), np.random.default_rng(k))


@pytest.mark.thorough
@pytest.mark.parametrize("name", VARIANTS)
def test_any_point_is_right(emulated: EmulatedDevice, name: str) -> None:
    of = variant(name)
    for config in FAMILY.space(of, emulated.spec):
        computes_the_product(emulated, FAMILY, config, of)


@settings(max_examples=40)
@given(
    check=checks(4, 20), seed=st.integers(0, 2**32), turn=st.integers(0, 1),
    columns=st.sampled_from([32, 128]), name=st.sampled_from(["sTN", "bf16TN", "fp16_f32NT"]),
)  # fmt: skip
def test_any_problem_is_computed_exactly(
    emulated: EmulatedDevice, check: Check, seed: int, turn: int, columns: int, name: str
) -> None:
    of = variant(name)
    every = all_steps(of, emulated)
    config = of_steps(of, emulated, (every[0], every[-1])[turn], columns)
    bench(emulated, FAMILY, config, of).exact(check, np.random.default_rng(seed))


FAULTS = {
    "no row behind the last tile": ("tile + 1 == down)", "false)"),
    "rows beyond the last": ("row + e < m;", "row + e <= m;"),
    "rows before the first": ("row + e >= 0 &&", ""),
    "a column too few": ("left < COLUMNS ? (int)left", "left < COLUMNS ? (int)left - 1"),
    "no steps but the first": ("} while (l < p->k);", "} while (false);"),
    "rows of the steps before": (
        "if (p->k > BLOCK_K)\n            read_rows",
        "if (false)\n            read_rows",
    ),
    "C read where it does not count": ("if (!elem_is_zero(p->beta)) {", "{"),
    "chunks where there are none": ("p.own[0] && p.own[CHUNK - 1] &&", "p.own[0] &&"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_emulator_finds(emulated: EmulatedDevice, fault: str) -> None:
    of = variant("sNN")
    family = faulty(Outer, *FAULTS[fault])
    config = of_steps(of, emulated, 2)
    run = bench(emulated, family, config, of)
    every = [Check(m, 37, 5, -2, padding=1, nan_in_c=True) for m in (127, 128, 130)]
    with pytest.raises((WrongResultError, LaunchError)):
        for_all(run, every)


STAGED_FAULTS = {
    "rows of the lane before": ("(int)(row - before), column", "(int)(row - before) - 1, column"),
    "rows before the first": ("x >= least &&", ""),
    "rows beyond the last": ("x < most &&", "x <= most &&"),
    "steps beyond k": ("&& i < steps;", ";"),
    "steps left out": ("if (i >= steps)", "if (i >= steps - 1)"),
    "a last part that is not staged": ("if (at < ALL)", "if (at < ALL - THREADS)"),
    "rows of another step": ("row[i * SIDE_A]", "row[0]"),
    "columns of other warps": ("place_of<BLOCK_N>(i, p->column)", "place_of<BLOCK_N>(i, 0)"),
    "a column too few": ("|| u < left)\n            write", "|| u + 1 < left)\n            write"),
    "nothing staged yet": ("        BARRIER();\n", ""),
    "no operand of an empty sum": ("if (k > 0 && k <= BLOCK_K)", "if (k <= BLOCK_K)"),
    "a column of a long sum": ("l < p->k; ++l", "l + 1 < p->k; ++l"),
}


@pytest.mark.parametrize("fault", STAGED_FAULTS)
def test_the_emulator_finds_of_16_bits(
    emulated: EmulatedDevice, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operands end with their last elements, so that nothing else may be read."""
    monkeypatch.setattr("tilewright.tuning.matrices._GUARD_ELEMENTS", 0)
    of, family = variant("bf16NN"), faulty(Outer, *STAGED_FAULTS[fault])
    run = bench(emulated, family, of_steps(of, emulated, 4), of)
    every = [Check(m, 37, k, -2, padding=1) for m in (255, 256, 259) for k in (0, 3, 4, 5)]
    with pytest.raises((WrongResultError, LaunchError)):
        for_all(run, every)


@pytest.mark.parametrize("name", ["bf16NN", "fp16NT", "bf16_f32TN", "fp16TT"])
def test_no_address_is_beyond_an_operand(
    emulated: EmulatedDevice, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A and B end with their last elements: what is read beyond them is a fault."""
    monkeypatch.setattr("tilewright.tuning.matrices._GUARD_ELEMENTS", 0)
    of, rng = variant(name), np.random.default_rng()
    for steps in (4, 8):
        run = bench(emulated, FAMILY, of_steps(of, emulated, steps), of)
        for m, k in itertools.product((1, 7, 130, 261), (0, 1, 3, 4, 9)):
            run.exact(Check(m, 5, k), rng)
            run.exact(Check(m, 33, k, beta=-1, padding=m % 3), rng)


def test_devices_that_round_to_no_bfloat16_have_no_kernels_of_short_elements() -> None:
    of = variant("bf16NN")
    assert FAMILY.default(of, architecture_spec("sm_80"))
    with pytest.raises(ValueError, match="sm_75"):
        FAMILY.default(of, architecture_spec("sm_75"))


def test_groups_have_no_kernels_of_short_elements(emulated: EmulatedDevice) -> None:
    for name in ("sNN", "bf16NN"):
        of = variant(name)
        config = FAMILY.default(of, emulated.spec)
        assert FAMILY.grouped_config(config, of) == (config if name == "sNN" else None)


def for_all(run: Bench, every: list[Check]) -> None:
    for check in every:
        run.exact(check, np.random.default_rng(check.m))


def test_pairs_and_other_short_elements_have_no_such_kernels(emulated: EmulatedDevice) -> None:
    for letter in ("e", "int8", "e4m3", "tf32"):
        of = Variant(precision(letter), Trans.T, Trans.N)
        assert not FAMILY.computes(of)
        with pytest.raises(ValueError, match=f"precision='{letter}'"):
            FAMILY.space(of, emulated.spec)


def test_the_text_begins_with_a_drawing() -> None:
    text = (Path(__file__).parents[3] / "src/tilewright/stencil/outer/kernel.cuh").read_text()
    assert "+----------+" in text[: text.index("*/")]
