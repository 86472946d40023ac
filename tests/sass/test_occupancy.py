"""Occupancy against cases computed with NVIDIA's cuda_occupancy.h rules by hand."""

from __future__ import annotations

import pytest

from tilewright.sass import occupancy
from tilewright.sass.occupancy import limits_of


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "blocks", "limit"),
    [
        (90, 256, 128, 16384, 2, "registers"),  # 4096 a warp: 4 in a partition, 16 in all
        (90, 128, 242, 16384, 2, "registers"),  # 7936 a warp (7744 rounded up): 2 in a partition
        (90, 256, 254, 49152, 1, "registers"),
        (90, 256, 32, 1024, 8, "warps"),
        (90, 32, 16, 0, 32, "blocks"),
        (90, 128, 64, 100 * 1024, 2, "shared memory"),  # 101 KiB each with the system's
        (90, 128, 64, 227 * 1024, 1, "shared memory"),
        (80, 128, 32, 163 * 1024, 1, "shared memory"),
        (80, 128, 32, 163 * 1024 + 1, 0, "shared memory"),
        (86, 256, 40, 0, 6, "warps"),  # 48 warps
        (86, 128, 32, 24 * 1024, 4, "shared memory"),  # 25 KiB each of 100
        (89, 32, 16, 0, 24, "blocks"),
        (75, 256, 64, 0, 4, "warps"),
        (70, 64, 32, 48 * 1024, 2, "shared memory"),  # no reserved KiB before sm_80
        (90, 1024, 65, 0, 0, "registers"),  # 2304 a warp: 7 in a partition, 8 are needed
        (90, 96, 255, 0, 2, "registers"),  # 8192 a warp: 2 in a partition, 8 warps, 3 a block
    ],
)
def test_blocks_and_what_limits_them(
    arch: int, threads: int, registers: int, shared: int, blocks: int, limit: str
) -> None:
    found = occupancy(arch, threads, registers, shared)
    assert (found.blocks, found.limited_by) == (blocks, limit)
    assert found.warps == blocks * -(-threads // 32)
    assert found.fraction == found.warps / limits_of(arch).warps


@pytest.mark.parametrize("arch", [70, 75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121])
def test_every_architecture_holds_a_small_kernel_fully(arch: int) -> None:
    assert occupancy(arch, 128, 32).fraction == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((61, 128, 32), "arch=sm_61 has no occupancy limits here; known are sm_70"),
        ((90, 0, 32), "threads=0 is no block size; give 1 to 1024"),
        ((90, 1025, 32), "threads=1025"),
        ((90, 128, 256), "registers=256 is out of range; give 0 to 255"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[int, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        occupancy(*arguments)
