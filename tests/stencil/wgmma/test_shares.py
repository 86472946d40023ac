"""Tensor-core blocks that share tiles: right whatever runs when, and the same bits always.

The emulator starts blocks in a random order, few at a time or all, and shows what one block
leaves for another as late as the memory model allows.  Shares may be as short as a step here, so
that small problems have many.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.stencil.contract import thorough_but
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.wgmma.harness import FAMILY, Case, Run, drawn, small, variant
from tests.stencil.wgmma.test_stencil import EVERY
from tilewright.backend import LaunchError
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.stencil import Launch, Source, Workspace
from tilewright.stencil.asynchronous.division import divide
from tilewright.stencil.wgmma import Arithmetic, Wgmma
from tilewright.stencil.wgmma.resources import least_steps
from tilewright.tuning.verify import WrongResultError

HOPPER = architecture_spec("sm_90a")
SHARING = {"multiprocessors": 132, "stream_k": 1}

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")


class Few(Wgmma):
    """Launches of a few blocks, whose shares may be short; perhaps with a fault in the text."""

    def __init__(self, blocks: int, fault: tuple[str, str] | None = None) -> None:
        self.blocks, self.fault = blocks, fault

    def launch(self, config: Any, m: int, n: int, k: int = 0) -> Launch:
        return replace(super().launch(config, m, n), grid=(self.blocks, 1))

    def source(self, *arguments: Any) -> Source:
        made = super().source(*arguments)
        text = made.text
        if self.fault:
            assert self.fault[0] in text
            text = text.replace(*self.fault)
        return replace(made, text=text, defines={**made.defines, "LEAST_STEPS": 1})


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> EmulatedDevice:
    return EmulatedDevice(
        tmp_path_factory.mktemp("kernels"), multiprocessors=132, words="wgmma_words.h"
    )


def run(live: EmulatedDevice, name: str, blocks: int, trans: str = "TN", **changes: int) -> Run:
    of = variant(trans, EVERY[name])
    return Run(live, small(of, live, **{**SHARING, **changes}), of, Few(blocks))


# Blocks, tiles across and steps: a tile for some; one for all; a wave and a rest, with a whole
# one before it or without; shares of many tiles; nothing to share.
PROBLEMS = {
    "ragged": (3, Case(70, 140, 200, 2, -1, padding=1)),
    "one tile": (3, Case(60, 100, 290)),
    "many tiles": (4, Case(330, 250, 150, beta=1)),
    "less than a step": (3, Case(130, 130, 5, -2, 1)),
    "no steps": (3, Case(70, 140, 0, 1, 3)),
    "more blocks than steps": (5, Case(64, 128, 70)),
    "several parts of a tile": (5, Case(150, 140, 500)),
    "shares across tiles": (5, Case(100, 140, 500)),
}


@pytest.mark.every(4)
@needs_compiler
@pytest.mark.parametrize("stream_k", [1, 2])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_any_problem_is_shared_rightly(
    emulated: EmulatedDevice, problem: str, stream_k: int
) -> None:
    blocks, case = PROBLEMS[problem]
    made = run(emulated, "f16-f32", blocks, stream_k=stream_k)
    for seed in range(2):
        made.check(case, seed)


@needs_compiler
@pytest.mark.parametrize("name", thorough_but(["s8", "fp16x3"], EVERY))
def test_every_arithmetic_is_shared(emulated: EmulatedDevice, name: str) -> None:
    """What is left to others are sums before exponents, alpha and rounding to C's type."""
    promotion = {"promote_k": 32} if len(EVERY[name].products) > 1 else {}
    k = 500 // EVERY[name].element_bytes
    made = run(emulated, name, 3, **promotion, stream_k=2)
    made.check(Case(135, 250, k, 2, 1))


@needs_compiler
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "trans", "changes"),
    [
        ("fp16x3", "NT", {"promote_k": 64, "block_m": 128, "instruction_m": 64, "partials": 2}),
        ("fp16x3", "NT", {"promote_k": 128, "block_k": 32}),
        ("f16", "TN", {"block_m": 192, "instruction_m": 96, "consumers": 3, "block_n": 192}),
        ("bf16", "NN", {"block_m": 128, "instruction_m": 128, "consumers": 1, "stages": 5}),
    ],
    ids=str,
)
def test_every_way_to_sum_is_shared(
    emulated: EmulatedDevice, name: str, trans: str, changes: dict[str, int]
) -> None:
    run(emulated, name, 3, trans, **changes).check(Case(200, 270, 233, padding=2))


@needs_compiler
def test_a_launch_that_is_held_back_draws_no_number(emulated: EmulatedDevice) -> None:
    of = variant("TN", Arithmetic("float16", routed=True))
    made = Run(emulated, small(of, emulated, **SHARING), of, Few(3))
    case = Case(64, 250, 300, beta=1)
    values = drawn(np.random.default_rng(1), case, of)
    assert np.array_equal(made.result(case, values, route=2), values[2])
    made.check(case)


@needs_compiler
def test_rounding_depends_on_the_grid_only(emulated: EmulatedDevice) -> None:
    """Bits of random data: the same for every order of blocks, others for other grids."""
    case, rng = Case(70, 130, 700), np.random.default_rng(5)
    a, b = rng.standard_normal((1, case.m, case.k)), rng.standard_normal((1, case.k, case.n))
    none = np.zeros((case.m, case.n)), np.zeros(case.m, int), np.zeros(case.n, int)

    def bits(blocks: int) -> bytes:
        made = run(emulated, "bf16-f32", blocks, promote_k=64)
        return made.result(case, (a, b, *none)).tobytes()

    assert len({bits(5) for _ in range(4)}) == 1
    assert bits(5) != bits(3)


FAULTS = {
    "a part is not waited for": ("await_flag(flag);", ""),
    "a flag stays raised": ("lower_flag(flag);", ""),
    "not all have left their sums": ("consumers_barrier();\n    if", "if"),
    "not all see that a part is there": ("consumers_barrier();\n        const", "const"),
    "the last part is forgotten": ("other <= last", "other < last"),
    "parts overlap": ("other * SUMS_BYTES", "other * SUMS_BYTES / 2"),
    "numbers are drawn from the first on": (
        "d.workers - 1 - draw_number((unsigned int *)workspace, GRID_BLOCKS - 1)",
        "draw_number((unsigned int *)workspace, GRID_BLOCKS - 1)",
    ),
    "a share is looked at before it is there": ("wait_for(from, 0);", ""),
    "operands of a tile's first steps": ("(int)((first + t) * BLOCK_K), p, rank_m",
                                         "(int)(t * BLOCK_K), p, rank_m"),
    "consumers do not go round for a share": ("(STREAM_K + 1) * GRID_BLOCKS", "GRID_BLOCKS"),
}  # fmt: skip


@pytest.mark.every(2)
@needs_compiler
@pytest.mark.parametrize("fault", thorough_but(list(FAULTS)[:5], FAULTS))
def test_the_emulator_finds(emulated: EmulatedDevice, fault: str) -> None:
    of = variant("TN", EVERY["f16-f32"])
    config = small(of, emulated, **SHARING)
    faulty = Run(emulated, config, of, Few(5, FAULTS[fault]))

    def try_often() -> None:
        for seed in range(3):  # which block runs first is drawn
            faulty.check(Case(150, 140, 500), seed)  # a wave, and a tile for all
            faulty.check(Case(100, 140, 500), seed)  # shares of two tiles and of one

    with pytest.raises((WrongResultError, LaunchError)):
        try_often()
    emulated.workspace.bytes[:] = 0  # as the fault left it


def test_clusters_and_turns_share_nothing() -> None:
    of = variant("TN", EVERY["f16"])
    space = FAMILY.space(of, HOPPER)
    config = FAMILY.default(of, HOPPER).replace(cluster_m=1, cluster_n=1)
    assert config.replace(stream_k=1) in space
    for changes in ({"cluster_n": 2}, {"multiprocessors": 0}, {"pingpong": 1}):
        with pytest.raises(ValueError, match="share"):
            space.config({**config, "stream_k": 1, **changes}, kinds=("divisibility",))
    assert "stream_k" not in space.config({**config, "stream_k": 0})


def test_there_are_blocks_and_memory_for_every_share() -> None:
    """A single tile is shared by many blocks, no more than the device has room for."""
    of = variant("TN", EVERY["f16"])
    config = FAMILY.default(of, HOPPER).replace(cluster_m=1, cluster_n=1, stream_k=2)
    assert FAMILY.launch(config, 1, 1) == Launch((64, 1), (384, 1), resident=1)
    assert FAMILY.launch(config, 9999, 9999).on(132).grid == (132, 1)
    assert FAMILY.launch(config, 9999, 9999).on(78).grid == (78, 1)
    source = FAMILY.source(config, of, "cuda")
    assert source.part_bytes == 256 * 128 * 4
    assert Workspace(132, source.part_bytes).size < 18e6
    # 512 tiles for 132 blocks: three whole waves, or two, and the rest in equal shares.
    found = divide(
        config, (4096, 4096, 4096), 132, least_steps(block_k=64, arithmetic=of.arithmetic)
    )
    assert (found.whole, found.shared, found.workers) == (264, 248, 132)
    assert found.longest_share == 121
