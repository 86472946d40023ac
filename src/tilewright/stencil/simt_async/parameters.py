"""Parameters of the stencil fed by asynchronous copies.  In capitals they are macros."""

from __future__ import annotations

from tilewright.space import Parameter
from tilewright.stencil.asynchronous.parameters import (
    MIN_BLOCKS,
    SPECIALISED_EPILOGUE,
    STAGES,
    TMA,
    WARPS_K,
    block_sides,
    grid,
)
from tilewright.stencil.simt_async.resources import SECTOR_BYTES

__all__ = ["parameters"]

RUN_BYTES = Parameter(
    "run_bytes",
    (SECTOR_BYTES, 2 * SECTOR_BYTES),
    "bytes side by side along k that copies of single elements take: 64: half as many lines of the "
    "caches at once, each of which takes its time",
    "none; 64 divide a tile along k",
    unnamed=SECTOR_BYTES,
)


def parameters() -> tuple[Parameter, ...]:
    """Return what may be varied, the same for every variant and device."""
    return (*_tiles(), *_pipeline(), *grid())


def _tiles() -> tuple[Parameter, ...]:
    # Three quarters of a power of two leave fewer multiprocessors idle beside multiples of these.
    sides = (32, 64, 96, 128, 192, 256)
    # 4 to 16 elements a side: fewer leave reads of shared memory in the way, more spill.
    tiles = (4, 8, 12, 16)
    return (
        *block_sides(sides, "threads"),
        Parameter(
            "tile_m",
            tiles,
            "rows of C a thread computes",
            "registers: its part of C, and two columns of A",
        ),
        Parameter(
            "tile_n",
            tiles,
            "columns of C a thread computes",
            "registers: its part of C, and two rows of B",
        ),
        Parameter(
            "lanes_m",
            (4, 8),
            "lanes of a warp along m, the other of its 32 along n",
            "which side of a warp's tile is the longer one",
        ),
        WARPS_K,
    )


def _pipeline() -> tuple[Parameter, ...]:
    return (
        Parameter(
            "block_k",
            (4, 6, 8, 12, 16, 24, 32, 64),
            "steps in k between two barriers",
            "shared memory; length of the loop; waste where k is no multiple",
        ),
        STAGES,
        Parameter(
            "unroll_k",
            (2, 4, 6, 8, 12, 16),
            "steps in k that the loop is unrolled by",
            "code: a loop larger than the nearest instruction cache waits for instructions",
        ),
        Parameter(
            "copy_groups",
            (1, 2, 4, 8),
            "groups in which the copies of a step start, spread over the step",
            "compilers put empty instructions before each group; few groups crowd the queue",
        ),
        RUN_BYTES,
        SPECIALISED_EPILOGUE,
        TMA,
        Parameter(
            "serpentine_rows",
            (0, 1),
            "serpentine order of a step's multiply-adds: 0: along columns, 1: along rows",
            "none but another choice of registers by the compiler, and so of conflicts",
        ),
        Parameter(
            "b_first",
            (0, 1),
            "1: a step reads its row of B before its column of A",
            "none but another choice of registers, as for serpentine_rows",
        ),
        MIN_BLOCKS,
    )
