"""Whatever the space offers is right: points drawn from it, odd block sides among them.

A kernel that copies past its tile, or leaves part of it out, is found by the emulator, which checks
every address.
"""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.stencil.contract import compiled, has_mode, mode_rules, thorough_but
from tests.stencil.emulator import EmulatedDevice, compiler
from tests.stencil.portable_harness import variant
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.hardware import DeviceSpec
from tilewright.precision import precision
from tilewright.space import Config
from tilewright.stencil.simt_async import SimtAsync
from tilewright.stencil.simt_async.constraints import _even
from tilewright.stencil.simt_async.parameters import SECTOR_BYTES
from tilewright.stencil.source_files import read_source
from tilewright.tuning.verify import Bench, Check

FAMILY = SimtAsync()
HOPPER = architecture_spec("sm_90a")

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")

# Sides beneath a block, beyond one, and sums that end within a tile.
CHECKS = (Check(87, 118, 139), Check(301, 205, 50, beta=1, padding=3, offset=1))
# Of a cluster or a block that the emulator runs in a second.
MOST_THREADS = 256


@functools.cache
def points(name: str) -> list[Config]:
    """Return points with a side of 96 or 192 that threads copy, as their order is drawn."""
    of = variant(name)
    found = FAMILY.space(of, HOPPER).sample(4000, 7)
    return [
        one.replace(swizzle_rows=8)
        for one in found
        if {one["block_m"], one["block_n"]} & {96, 192} and FAMILY.threads(one) <= MOST_THREADS
    ]


def is_right(live: EmulatedDevice, name: str, config: Config, mode: str = "plain") -> None:
    of = variant(name)
    kernel = compiled(live, FAMILY, config, of, mode)
    for check in CHECKS:
        Bench(live, kernel, FAMILY, config, of).exact(check, np.random.default_rng(3))


@pytest.mark.every(2)
@needs_compiler
@pytest.mark.parametrize("mode", ["plain", "scalar"])
@pytest.mark.parametrize("name", ["sNN", "sNT", "sTT"])
def test_a_point_with_odd_sides_is_right(emulated: EmulatedDevice, name: str, mode: str) -> None:
    able = (one for one in points(name) if has_mode(FAMILY, one, variant(name), HOPPER, mode))
    is_right(emulated, name, next(able), mode)


# The fourth of NT has 48 persistent blocks.
@needs_compiler
@pytest.mark.parametrize("number", thorough_but([3], range(40)))
@pytest.mark.parametrize("name", ["sNN", "sNT", "sTN", "sTT"])
def test_any_point_is_right(emulated: EmulatedDevice, name: str, number: int) -> None:
    is_right(emulated, name, points(name)[number])


# 96 threads and rows of 64 once ran into other memory: side by side they were half a row too many.
NINETY_SIX = {
    "b_first": 0, "block_m": 96, "block_n": 64, "copy_groups": 2,
    "lanes_m": 4, "swizzle_rows": 8, "min_blocks": 2, "cluster_k": 8, "stages": 5,
    "tile_m": 8, "tile_n": 8, "serpentine_rows": 0,
}  # fmt: skip


@pytest.mark.parametrize("device", [HOPPER], ids=lambda one: one.name)
def test_scalar_copies_fill_whole_rows(device: DeviceSpec) -> None:
    """Three warps have three rows at once: of 12, not of 8."""
    rules = mode_rules(FAMILY, variant("sTT"), device, "scalar")

    def refused(block_k: int) -> list[str]:
        config = Config("simt_async", NINETY_SIX | {"block_k": block_k, "unroll_k": block_k})
        return [one.name for one in rules.violated(config)]

    assert refused(8) == ["B is copied evenly"]
    assert refused(12) == []


PROGRAM = """
#include <cstdio>
#define HELPER static
static int THREADS, BLOCK_K;
%s
int main()
{
    for (BLOCK_K = 4; BLOCK_K <= 32; BLOCK_K += 4)
        for (THREADS = 32; THREADS <= 512; THREADS += 32)
            for (int side = 32; side <= 256; side += 16) {
                const int alone = side_by_side(side, common(side, 32));
                const int pieces = 4 * common(side / 4, THREADS);
                std::printf("%%d %%d %%d 1 %%d\\n", BLOCK_K, THREADS, side, alone);
                std::printf("%%d %%d %%d 0 %%d\\n", BLOCK_K, THREADS, side, pieces);
            }
}
"""


@needs_compiler
def test_the_space_has_what_the_text_copies_evenly(tmp_path: Path) -> None:
    """Which threads copy side by side is said twice: in the text, and for constraints."""
    text = read_source("simt_async/copies.cuh")
    chosen = ""
    for name in ("common", "side_by_side"):
        begin = text.index(f"HELPER constexpr int {name}")
        chosen += text[begin : text.index("}", begin) + 1].replace("constexpr ", "") + "\n"
    (tmp_path / "rows.cc").write_text(PROGRAM % chosen)
    found = compiler()
    assert found is not None
    program = str(tmp_path / "rows")
    subprocess.run([found, "-o", program, str(tmp_path / "rows.cc")], check=True)
    told = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    rows = [tuple(map(int, line.split())) for line in told.splitlines()]
    for block_k, threads, side, scalar, elements in rows:
        across = elements if scalar else elements // 4
        whole = side % elements == 0 and threads % across == 0
        evenly = whole and block_k % (threads // across) == 0
        offered = _even(
            precision("s"), along_k=False, side=side, block_k=block_k, number=threads,
            scalar=bool(scalar), tma=0, run_bytes=SECTOR_BYTES,
        )  # fmt: skip
        assert bool(offered) == evenly, (block_k, threads, side, across)
    alone, pieces = ({row[-1] for row in rows if row[3] == scalar} for scalar in (1, 0))
    assert alone > {32, 64, 96, 128}
    assert pieces > {32, 64, 96, 128}


@needs_compiler
@pytest.mark.parametrize(
    "sides",
    [{"block_k": 12, "unroll_k": 12}, {"block_m": 192, "block_n": 96, "tile_m": 16, "tile_n": 12}],
    ids=["a warp a row", "all threads a row"],
)
def test_three_warps_copy_single_elements(emulated: EmulatedDevice, sides: dict[str, int]) -> None:
    values = NINETY_SIX | {"block_k": 8, "unroll_k": 8, "cluster_k": 1} | sides
    is_right(emulated, "sNT", Config("simt_async", values), "scalar")
