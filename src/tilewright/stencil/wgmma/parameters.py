"""Parameters of the tensor-core stencil.  In capitals they are macros."""

from __future__ import annotations

from dataclasses import replace

from tilewright.space import Parameter
from tilewright.stencil.asynchronous.parameters import CLUSTER_K, PARALLEL_SPLIT_K, block_sides
from tilewright.stencil.wgmma.arithmetic import FLOAT_BITS, WHOLE_RESULTS, Arithmetic

__all__ = ["parameters"]

# Rows of a tile that lies along k are so many bytes: as many as pieces are exchanged within.
_ROWS = (64, 128)

# Columns of an instruction's result, and a block's side along them.  Those that are no multiple of
# 64, for which that operand must lie along k, fill the last wave of some results better.
_COLUMNS = (64, 96, 128, 144, 160, 176, 192, 208, 256)

# Multiprocessors of Hopper's models: H20, H100 PCIe, H100 SXM and H200.  A part of one has others.
_MULTIPROCESSORS = (78, 114, 132)


def parameters(
    arithmetic: Arithmetic, multiprocessors: int = 1, *, rows_of_a: bool = False
) -> tuple[Parameter, ...]:
    """Return what may be varied for an arithmetic, on a device of so many multiprocessors.

    1 stands for an architecture without a device.  With `rows_of_a` an instruction's rows run along
    m, and what usually is along m is along n.
    """
    return (
        *_tiles(arithmetic, rows_of_a),
        *_pipeline(arithmetic),
        *_grid(multiprocessors),
        PARALLEL_SPLIT_K,
        _cluster_k(arithmetic),
        _copies(arithmetic),
    )


def _tiles(arithmetic: Arithmetic, rows_of_a: bool) -> tuple[Parameter, ...]:
    block_m, block_n = block_sides((64, 128, 192, 256), "registers")
    if rows_of_a:
        block_n = replace(block_n, values=_COLUMNS)
    else:
        block_m = replace(block_m, values=_COLUMNS)
    columns, rows = "nm" if rows_of_a else "mn"
    return (
        block_m,
        block_n,
        Parameter(
            "block_k",
            tuple(row // arithmetic.element_bytes for row in _ROWS),
            "steps in k of a stage: rows of 64 or 128 bytes",
            "shared memory; fewer steps are more waits and more copies to start",
        ),
        Parameter(
            "instruction_m",
            _COLUMNS,
            f"columns of an instruction's result, along {columns}; its 64 rows are along {rows}",
            "short ones read more of shared memory for each multiply-add",
        ),
        Parameter(
            "consumers",
            (1, 2, 3),
            "warpgroups that multiply, each a part of the block's columns",
            "registers of each",
        ),
        Parameter(
            "pingpong",
            (0, 1),
            "1: ping-pong: each consumer has tiles of its own; one writes while another multiplies",
            "smaller tiles: a consumer holds all of one, so operands are read more often",
        ),
    )


def _pipeline(arithmetic: Arithmetic) -> tuple[Parameter, ...]:
    promotions: tuple[int, ...] = (0, 32, 64, 128, 256)
    if arithmetic.result in WHOLE_RESULTS:
        promotions = (0,)
    if arithmetic.kept_bits < FLOAT_BITS:  # longer intervals would lose too much
        promotions = (32, 64, 128)
    return (
        Parameter(
            "stages",
            (2, 3, 4, 5, 6, 7, 8),
            "tiles of each operand in shared memory: one is multiplied, the others arrive",
            "shared memory",
        ),
        Parameter(
            "promote_k",
            promotions,
            "steps in k after which sums leave the tensor core, which truncates; 0: at the end",
            "additions beside multiplies; a second set of registers",
        ),
        Parameter(
            "partials",
            (1, 2),
            "sets of sums that promotion alternates between: it adds one as the next is computed; "
            "with one for each instruction's result, sums of products in parts are compensated",
            "registers",
        ),
        Parameter(
            "min_blocks",
            (1, 2),
            "thread blocks that a multiprocessor holds at least (__launch_bounds__)",
            "registers and shared memory of each",
        ),
    )


def _copies(arithmetic: Arithmetic) -> Parameter:
    """Return how operands are copied."""
    return Parameter(
        "tma",
        (1, 0) if arithmetic.any_alignment else (1,),
        "how operands are copied: 1: TMA, 0: by the producer's threads, whatever their alignment",
        "0: registers, of 16 bits; more instructions for each tile, on one in four of the warps",
        unnamed=1,
    )


def _cluster_k(arithmetic: Arithmetic) -> Parameter:
    """Return how many blocks share a tile's steps along k: one but of whole operands."""
    values = CLUSTER_K.values if arithmetic.is_plain else (1,)
    return replace(CLUSTER_K, values=values, unnamed=1)


def _grid(multiprocessors: int) -> tuple[Parameter, ...]:
    own = () if multiprocessors <= 1 else (multiprocessors,)
    return (
        Parameter(
            "cluster_m",
            (1, 2, 4),
            "blocks of a cluster along m, which bring a tile of B together",
            "they wait for each other; clusters must fit the device's groups of multiprocessors",
        ),
        Parameter(
            "cluster_n",
            (1, 2, 4),
            "blocks of a cluster along n, which bring a tile of A together",
            "as for cluster_m",
        ),
        Parameter(
            "swizzle_rows",
            (0, 4, 8, 16),
            "threadblock swizzle: rows of clusters in a band of the grid, whose columns run one "
            "after another; 0: one band",
            "tall bands read B's tiles anew, flat ones A's",
        ),
        Parameter(
            "multiprocessors",
            tuple(sorted({0, *_MULTIPROCESSORS, *own})),
            "multiprocessors that persistent blocks fill; 0: a block for each tile of C",
            "persistent: a block that is late has no other to take its work",
        ),
    )
