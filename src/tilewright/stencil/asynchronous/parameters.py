"""Parameters of kernels with asynchronous copies: a block's tile, its pipeline and its grid.

Those with an `unnamed` value are absent in configs stored before them, which mean that value.
"""

from __future__ import annotations

from tilewright.space import Parameter

__all__ = [
    "MIN_BLOCKS",
    "PARALLEL_SPLIT_K",
    "SPECIALISED_EPILOGUE",
    "STAGES",
    "STREAM_K",
    "TMA",
    "TREE_REDUCTION",
    "WARPS_K",
    "block_sides",
    "grid",
]

STAGES = Parameter(
    "stages",
    (2, 3, 4, 5),
    "tiles of each operand in shared memory: one is multiplied, the others arrive",
    "shared memory",
)
MIN_BLOCKS = Parameter(
    "min_blocks",
    (1, 2, 3, 4, 5, 6, 8),
    "thread blocks that a multiprocessor holds at least (__launch_bounds__)",
    "registers: a thread has fewer, and spills if they are too few",
)
TMA = Parameter(
    "tma",
    (0, 1),
    "how operands are copied: 0: cp.async by all threads, 1: TMA, whole tiles (compute capability "
    "9.0)",
    "columns of A and B are aligned to 16 bytes",
    unnamed=0,
)
SPECIALISED_EPILOGUE = Parameter(
    "specialised_epilogue",
    (0, 1),
    "0: the epilogue tests alignment and beta for each chunk, 1: once, with straight code for each "
    "case",
    "code; another choice of registers by the compiler",
    unnamed=0,
)
WARPS_K = Parameter(
    "warps_k",
    (1, 2, 4, 8),
    "sliced-K: groups of warps along k, each of which multiplies its part of a stage's steps",
    "registers and threads; the parts of C pass through shared memory",
    unnamed=1,
)
STREAM_K = Parameter(
    "stream_k",
    (0, 1, 2),
    "tiles of C whose steps along k persistent blocks share evenly: 0: none, 1: those of the last "
    "wave where it is not full, 2: those of the last full wave, too",
    "parts of C pass through device memory",
    unnamed=0,
)
TREE_REDUCTION = Parameter(
    "tree_reduction",
    (0, 1),
    "stream-K: parts of a shared tile are added up 0: one after another by the tile's owner, 1: "
    "pairwise, by the blocks that computed them, too",
    "more blocks wait for others",
    unnamed=0,
)
CLUSTER_K = Parameter(
    "cluster_k",
    (1, 2, 4, 8),
    "split-K within a cluster: blocks that share the steps along k of one tile of C",
    "the parts of C pass through shared memory; fewer steps for each block",
)
PARALLEL_SPLIT_K = Parameter(
    "parallel_split_k",
    (0, 1),
    "1: split-K over independent blocks, as many parts as fill the device, and a reduction kernel "
    "that adds them up",
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
            "swizzle_rows",
            (0, 4, 8, 16),
            "threadblock swizzle: rows of blocks in a band of the grid, whose columns run one "
            "after another; 0: one band",
            "tall bands read B's tiles anew, flat ones A's",
        ),
        CLUSTER_K,
        Parameter(
            "persistent",
            (0, 1),
            "1: as many blocks as fit compute tile after tile; the next tile's first copies are on "
            "their way while a result is stored",
            "registers for the place in the grid",
            unnamed=0,
        ),
        STREAM_K,
        TREE_REDUCTION,
        PARALLEL_SPLIT_K,
    )
