"""Parameters of the stencil fed by asynchronous copies.  In capitals they are macros."""

from __future__ import annotations

from tilewright.space import Parameter
from tilewright.stencil.schedule import schedule_parameter

__all__ = ["parameters"]


def parameters() -> tuple[Parameter, ...]:
    """Return what may be varied, the same for every variant and device."""
    return (*_tiles(), *_pipeline(), *_grid(), schedule_parameter())


def _tiles() -> tuple[Parameter, ...]:
    # Three quarters of a power of two would leave some threads without copies.
    sides = (32, 64, 128, 256)
    # 4 to 16 elements a side: fewer leave reads of shared memory in the way, more spill.
    tiles = (4, 8, 16)
    return (
        Parameter(
            "block_m",
            sides,
            "rows of C a thread block computes",
            "shared memory; threads; fewer blocks to spread over the device",
        ),
        Parameter(
            "block_n",
            sides,
            "columns of C a thread block computes",
            "shared memory; threads; fewer blocks to spread over the device",
        ),
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
    )


def _pipeline() -> tuple[Parameter, ...]:
    return (
        Parameter(
            "block_k",
            (8, 16, 32),
            "steps in k between two barriers",
            "shared memory; length of the loop; waste where k is no multiple",
        ),
        Parameter(
            "stages",
            (2, 3, 4, 5),
            "tiles of each operand in shared memory: one is multiplied, the others arrive",
            "shared memory",
        ),
        Parameter(
            "unroll_k",
            (4, 8, 16),
            "steps in k that the loop's text has",
            "code: a loop larger than the nearest instruction cache waits for instructions",
        ),
        Parameter(
            "copy_groups",
            (1, 2, 4),
            "groups in which the copies of a step start, spread over the step",
            "compilers put empty instructions before each group; few groups crowd the queue",
        ),
        Parameter(
            "k_vectors",
            (0, 1),
            "how an operand contiguous along k is transposed: 0: copies of single elements, "
            "1: 16 bytes to registers, written one by one",
            "1: registers; slow where leading dimensions or k are no multiples of 16 bytes",
        ),
        Parameter(
            "narrow",
            (0, 1),
            "how an operand contiguous along m or n is copied: 0: 16 bytes at once, where columns "
            "are aligned to them, 1: single elements, wherever columns begin",
            "four times the copies (of floats)",
            unnamed=0,
        ),
        Parameter(
            "walk",
            (0, 1, 2, 3),
            "order of a step's multiply-adds: 0: by columns, 1: by rows, each there and back, "
            "2, 3: the same two at once",
            "none but another choice of registers by the compiler, and so of conflicts",
        ),
        Parameter(
            "b_first",
            (0, 1),
            "1: a step reads its row of B before its column of A",
            "none but another choice of registers, as for walk",
        ),
        Parameter(
            "resident",
            (1, 2, 3, 4),
            "thread blocks that a multiprocessor shall hold: caps a thread's registers",
            "registers: too few spill",
        ),
    )


def _grid() -> tuple[Parameter, ...]:
    return (
        Parameter(
            "raster_rows",
            (0, 4, 8, 16),
            "block rows in a band of the grid, walked column by column; 0: all",
            "tall bands read B's tiles anew, flat ones A's",
        ),
        Parameter(
            "split_k",
            (1, 2, 4, 8),
            "blocks of a cluster that share the steps along k of one tile of C",
            "the parts of C pass through shared memory; fewer steps for each block",
        ),
        # A config without one of these is older than they are: a block for each tile.
        Parameter(
            "persistent",
            (0, 1),
            "1: as many blocks as fit stay and take tiles in turns; the next tile's first copies "
            "are on their way while a result is stored",
            "registers: where the block is",
            unnamed=0,
        ),
        Parameter(
            "stream_k",
            (0, 1, 2),
            "tiles of C that all blocks share evenly, steps along k apart: 0: none, 1: those of "
            "the last wave where it is not full, 2: of the last full wave, too",
            "parts of C pass through device memory",
            unnamed=0,
        ),
    )
