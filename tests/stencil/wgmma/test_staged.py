"""Results on their way to C: through shared memory, and from registers without room for that."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.stencil.contract import faulty, thorough_but
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.wgmma.harness import (
    EVERY,
    FAMILY,
    FP16X3,
    PLAIN,
    Case,
    Few,
    Run,
    promoted,
    small,
    variant,
)
from tilewright.backend import LaunchError
from tilewright.space import Config
from tilewright.stencil import Source
from tilewright.stencil.wgmma import TensorVariant, Wgmma
from tilewright.tuning.verify import WrongResultError

pytestmark = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")

# Blocks that stay, which have room for results to pass through shared memory.
STAYS = {"multiprocessors": 78}


def is_staged(of: TensorVariant, config: Config) -> bool:
    """Whether a kernel's results pass through shared memory."""
    return FAMILY.source(config, of, "cuda").defines["STAGED"] == 1


def check_places(run: Run, block_m: int, n: int = 300) -> None:
    """Check tiles inside and at the edge; columns of 16 bytes, 8, and any; C read, and not."""
    places = (2 * block_m, 8, 8), (block_m + 8, 0, 0), (block_m, 4, 4), (77, 1, 3)
    for m, padding, offset in places:
        run.check(Case(m, n, 50, -2, padding_c=padding, offset_c=offset))
    run.check(Case(2 * block_m, n, 50, 1, 3))
    run.check(Case(block_m + 5, n, 50, 1, 3, padding_c=2))


def check_often(run: Run, case: Case) -> None:
    """Check in orders of threads of which some let two warps meet."""
    for _ in range(8):
        run.check(case)


@pytest.mark.parametrize("kind", thorough_but(["f16", "s8", "e4m3"], PLAIN))
@pytest.mark.parametrize(
    "sides",
    [{}, {"block_m": 96, "instruction_m": 96}, {"block_m": 144, "instruction_m": 144},
     {"block_n": 256}],
)  # fmt: skip
def test_results_pass_through_shared_memory(
    emulated: EmulatedDevice, kind: str, sides: dict[str, int]
) -> None:
    """Lines of all lengths."""
    of = variant("TN", PLAIN[kind])
    promoted = {"promote_k": 128} if kind.startswith("e") else {}
    config = small(of, emulated, **STAYS, **sides, **promoted)
    assert is_staged(of, config)
    check_places(Run(emulated, config, of), config.integer("block_m"))


# Rows of A that run along m.
ROWS = {"block_m": 128, "block_n": 64, **STAYS}


@pytest.mark.parametrize(
    "sides",
    [{}, {"block_n": 128}, {"block_m": 64, "consumers": 1}, {"block_m": 256},
     {"block_n": 144, "instruction_m": 144}, {"block_m": 64, "pingpong": 1, "stages": 3}],
)  # fmt: skip
def test_rows_of_a_pass_through_shared_memory(
    emulated: EmulatedDevice, sides: dict[str, int]
) -> None:
    of = variant("NN", PLAIN["tf32"])
    config = small(of, emulated, **ROWS | sides)
    assert is_staged(of, config)
    check_places(Run(emulated, config, of, Few()), config.integer("block_m"), 197)


def test_results_of_ping_pong_pass_through_shared_memory_each_its_own(
    emulated: EmulatedDevice,
) -> None:
    of = variant("TN", PLAIN["s8"])
    config = small(of, emulated, pingpong=1, **STAYS)
    assert is_staged(of, config)
    Run(emulated, config, of, Few()).check(Case(256, 520, 300, -2))
    shared = "THREAD_ID / 32 * LINES_OF_WARP", "THREAD_ID / 32 % 4 * LINES_OF_WARP"
    run = Run(emulated, config, of, faulty(Few, *shared))
    with pytest.raises((WrongResultError, LaunchError)):
        check_often(run, Case(256, 520, 300, -2))


def test_results_are_stored_from_registers_where_nothing_is_won_or_there_is_no_room() -> None:
    of = variant("TN", PLAIN["f16"])
    whole = {
        "block_m": 128, "block_n": 256, "block_k": 64, "instruction_m": 128, "consumers": 2,
        "pingpong": 0, "stages": 4, "promote_k": 0, "partials": 1, "min_blocks": 1, "cluster_m": 1,
        "cluster_n": 1, "swizzle_rows": 4, "multiprocessors": 132,
    }  # fmt: skip
    assert is_staged(of, Config("wgmma", whole))
    assert not is_staged(of, Config("wgmma", whole | {"multiprocessors": 0}))
    assert is_staged(of, Config("wgmma", whole | {"pingpong": 1, "block_n": 128}))
    assert not is_staged(of, Config("wgmma", whole | {"block_m": 192, "instruction_m": 192}))
    assert not is_staged(variant("TN", FP16X3), Config("wgmma", whole))


@pytest.mark.parametrize("kind", ["tf32", "s8", "f16-f32", "fp16x3"])
def test_results_of_four_bytes_pass_through_shared_memory_in_all_kernels_with_room(
    emulated: EmulatedDevice, kind: str
) -> None:
    of = variant("TN", EVERY[kind])
    assert is_staged(of, small(of, emulated, **promoted(kind)))
    if not of.arithmetic.scaled:
        assert not is_staged(of, small(of, emulated, parallel_split_k=1))


class FromRegisters(Wgmma):
    """Kernels that have no room in shared memory for results."""

    def source(self, *arguments: Any) -> Source:
        made = super().source(*arguments)
        return replace(made, defines={**made.defines, "STAGED": 0})


@pytest.mark.parametrize(
    ("order", "kind"), [("TN", "fp16x3"), ("TN", "s8"), ("TN", "tf32"), ("NN", "tf32")]
)
def test_results_of_four_bytes_are_stored_from_registers_without_room(
    emulated: EmulatedDevice, order: str, kind: str
) -> None:
    of = variant(order, EVERY[kind])
    rows = ROWS if order == "NN" else STAYS
    config = small(of, emulated, **rows, **promoted(kind))
    check_places(Run(emulated, config, of, FromRegisters()), config.integer("block_m"))


# By order of the operands and arithmetic: configs, and what the emulator finds of their kernels.
FAULTY = {
    ("TN", "f16"): {"block_m": 128, "instruction_m": 128, **STAYS},
    ("TN", "fp16x3"): promoted("fp16x3"),
    ("NN", "tf32"): ROWS,
}
FAULTS = {
    ("TN", "f16"): {
        "lines that are not there yet": ("warp_barrier();\n            const isize", "const isize"),
        "lines that others still read": (
            "lines, rows);\n            warp_barrier();",
            "lines, rows);",
        ),
        "another warp's lines": ("THREAD_ID / 32 * LINES_OF_WARP", "0"),
        "a pair of other rows": ("eight + lane % 4 * 2", "eight + lane % 2 * 2"),
        "half of the columns": ("piece_at(lines, lane / 4 + 8 * h", "piece_at(lines, lane / 4"),
        "a scalar that is left out": ("to.alpha * scaled_by_power(from", "scaled_by_power(from"),
        "barriers in place of lines": ("#define STAGED_AT (", "#define STAGED_AT (0 * "),
    },
    ("TN", "fp16x3"): {
        "a row too few": ("if (row < rows && column", "if (row + 1 < rows && column"),
        "a column too few": ("rows && column < columns", "rows && column + 1 < columns"),
        "a C that is written unread": ("to.beta == 0 ? v : v + to.beta * *into", "v"),
        "exponents of other rows": ("to.exponents_a[at_a]", "to.exponents_a[at_a - e]"),
        "columns that are outside": (" && column < columns", ""),
        "exponents of rows that are outside": ("SCALED && at_a < to.m", "SCALED"),
        "exponents of columns that are outside": ("SCALED && j + 8 * h < to.n", "SCALED"),
        "exponents of another column": ("to.exponents_b[j + 8 * h]", "to.exponents_b[at.j0]"),
    },
    ("NN", "tf32"): {
        "columns that are not there yet": ("group_barrier();\n            if", "if"),
        "columns that others still read": (
            "GROUP_ROWS), inside);\n            group_barrier();",
            "GROUP_ROWS), inside);",
        ),
        "another group's columns": ("group * (GROUP / 32 * LINES_OF_WARP)", "0"),
        "a row too few": (" && row < rows", " && row + 1 < rows"),
        "a column too few": ("if (column < columns && row", "if (column + 1 < columns && row"),
        "pieces of another column": ("% 4 * 2 + lane / 16", "% 4 * 2"),
    },
}


@pytest.mark.parametrize(
    ("kernel", "fault"), [(one, name) for one in FAULTS for name in FAULTS[one]]
)
def test_the_emulator_finds_of_results_in_shared_memory(
    emulated: EmulatedDevice, kernel: tuple[str, str], fault: str
) -> None:
    order, kind = kernel
    of = variant(order, EVERY[kind])
    config = small(of, emulated, **FAULTY[kernel])
    assert is_staged(of, config)
    run = Run(emulated, config, of, faulty(Wgmma, *FAULTS[kernel][fault]))
    with pytest.raises((WrongResultError, LaunchError)):
        check_places(run, config.integer("block_m"))
