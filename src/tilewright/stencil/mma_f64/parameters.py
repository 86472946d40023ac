"""Parameters of the DMMA stencil: tensor cores for doubles.  In capitals they are macros."""

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

__all__ = ["parameters"]


def parameters() -> tuple[Parameter, ...]:
    """Return what may be varied, the same for every variant and device."""
    return (*_tiles(), *_pipeline(), *grid())


def _tiles() -> tuple[Parameter, ...]:
    # Three quarters of a power of two leave fewer multiprocessors idle: a side of 1025 is eleven
    # blocks of 96, one of 513 eleven of 48, and 121 such squares are one wave.
    sides = (32, 48, 64, 96, 128, 192, 256)
    # Two instructions of 8 columns share the reads of 16, but of complex elements; beyond 64 a
    # tile's sums spill.
    warps = (16, 24, 32, 48, 64)
    return (
        *block_sides(sides, "warps"),
        Parameter(
            "warp_m",
            warps,
            "rows of C a warp computes",
            "registers: its part of C, and a step's fragments of A",
        ),
        Parameter(
            "warp_n",
            warps,
            "columns of C a warp computes",
            "registers: its part of C, and a step's fragments of B",
        ),
        WARPS_K,
        Parameter(
            "mma_m",
            (8, 16),
            "rows of an instruction",
            "8: half of Hopper's rate, the only one before; 16: compute capability 9.0",
        ),
        Parameter(
            "mma_k",
            (4, 8, 16),
            "steps along k of an instruction",
            "registers: fragments of as many steps; longer ones move sums less often",
        ),
    )


def _pipeline() -> tuple[Parameter, ...]:
    return (
        Parameter(
            "block_k",
            (8, 16, 32, 64),
            "steps along k between two barriers",
            "shared memory; waste where k is no multiple",
        ),
        STAGES,
        SPECIALISED_EPILOGUE,
        TMA,
        Parameter(
            "interleave",
            (1, 2, 4, 8, 16),
            "groups in which loads, copies and multiply-adds of a step interleave",
            "none but order; with few groups all warps load at once, and none multiplies",
        ),
        Parameter(
            "serpentine_rows",
            (0, 1),
            "serpentine order of a step's instructions: 0: along columns, 1: along rows",
            "none but another order of reads of the register file",
        ),
        MIN_BLOCKS,
    )
