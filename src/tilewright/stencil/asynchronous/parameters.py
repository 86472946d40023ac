"""Parameters of a thread block's sides, and of what it does with its place in the grid."""

from __future__ import annotations

from tilewright.space import Parameter

__all__ = [
    "RESIDENT",
    "SLICED",
    "STAGES",
    "STREAM_K",
    "TMA",
    "TREE",
    "WARPS_K",
    "WAYS_APART",
    "block_sides",
    "grid",
]

STAGES = Parameter(
    "stages",
    (2, 3, 4, 5),
    "tiles of each operand in shared memory: one is multiplied, the others arrive",
    "shared memory",
)
RESIDENT = Parameter(
    "resident",
    (1, 2, 3, 4, 5, 6, 8),
    "thread blocks that a multiprocessor shall hold: caps a thread's registers",
    "registers: too few spill",
)
# As old as those without it.
TMA = Parameter(
    "tma",
    (0, 1),
    "who copies operands: 0: all threads, 1: the copy engine, whole tiles that one thread asks for "
    "(compute capability 9.0)",
    "none; columns aligned to 16 bytes",
    unnamed=0,
)
WAYS_APART = Parameter(
    "ways_apart",
    (0, 1),
    "text that stores results: 0: each chunk asks whether it is aligned and whether C counts, 1: "
    "asked once, each answer with a text of its own, side by side",
    "none but another choice of registers by the compiler",
    unnamed=0,
)
# As old as that without it: one layer of warps.
WARPS_K = Parameter(
    "warps_k",
    (1, 2, 4, 8),
    "layers of a block's warps, each of which multiplies its part of the steps of a stage",
    "registers and threads; the parts of C pass through shared memory",
    unnamed=1,
)
STREAM_K = Parameter(
    "stream_k",
    (0, 1, 2),
    "tiles of C that all blocks share evenly, steps along k apart: 0: none, 1: those of "
    "the last wave where it is not full, 2: of the last full wave, too",
    "parts of C pass through device memory",
    unnamed=0,
)
TREE = Parameter(
    "tree",
    (0, 1),
    "who adds up the parts of a tile that blocks share: 0: its owner, one after another, 1: those "
    "who left them, too, by halves",
    "others wait, too",
    unnamed=0,
)
# As old as that without it.
SLICED = Parameter(
    "sliced",
    (0, 1),
    "1: k is cut into slices, so many that blocks for each fill the device; a second kernel adds "
    "up their parts of C",
    "parts of C pass through device memory; a second launch",
    unnamed=0,
)


def block_sides(sides: tuple[int, ...], taken: str) -> tuple[Parameter, Parameter]:
    """Return a block's sides; larger ones take shared memory, and what `taken` names."""
    cost = f"shared memory; {taken}; fewer blocks to spread over the device"
    return (
        Parameter("block_m", sides, "rows of C a thread block computes", cost),
        Parameter("block_n", sides, "columns of C a thread block computes", cost),
    )


def grid() -> tuple[Parameter, ...]:
    """Return who computes which tile of C, and who shares one."""
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
        STREAM_K,
        TREE,
        SLICED,
    )
