"""Parameters of the portable stencil.  In capitals they are the kernel's macros."""

from __future__ import annotations

from tilewright.precision import Precision
from tilewright.space import Parameter

__all__ = ["parameters"]


def parameters(precision: Precision | None = None) -> tuple[Parameter, ...]:
    """Return what may be varied, the same for every device and operation.

    The three tile sizes and the three thread shapes are ASTRA's (Kurzak et al.,
    section 4 and figure 3): its best kernels on a GTX 680, 224 x 128 x 32 and
    192 x 160 x 32 with reads shaped 32 x 32 and 64 x 16, are points of this
    space.  Whether an operand passes through shared memory is Nakasato's choice
    (section 4.1.3).  Blocks of double-double have further sides.
    """
    return _blocks(precision) + _reads() + _pipeline() + _order()


def _blocks(precision: Precision | None) -> tuple[Parameter, ...]:
    # Three quarters of a power of two, and ASTRA's 160 and 224, fill multiprocessors
    # whose number is no power of two; 16 serves small results and CPUs.
    sides: tuple[int, ...] = (16, 32, 64, 96, 128, 160, 192, 224, 256)
    if precision is not None and precision.parts == 2:
        # Reads of shared memory are few beside 12 instructions a multiply-add, so that small
        # blocks are as fast as large ones, and whole blocks fit more sizes evenly.
        sides = tuple(sorted((*sides, 24, 40, 48, 80)))
    return (
        Parameter(
            "block_m",
            sides,
            "rows of C a thread block computes",
            "registers or threads; shared memory; fewer blocks to spread over the device",
        ),
        Parameter(
            "block_n",
            sides,
            "columns of C a thread block computes",
            "registers or threads; shared memory; fewer blocks to spread over the device",
        ),
        Parameter(
            "block_k",
            (4, 8, 16, 32),
            "steps in k between two barriers",
            "shared memory; registers where tiles are fetched ahead; waste where k is no multiple",
        ),
        Parameter(
            "threads_m",
            (4, 8, 16, 32),
            "threads along m when computing C (ASTRA's first shape)",
            "less of C in each thread, so more reads of shared memory a multiply-add",
        ),
        Parameter(
            "threads_n",
            (4, 8, 16, 32),
            "threads along n when computing C (ASTRA's first shape)",
            "less of C in each thread, so more reads of shared memory a multiply-add",
        ),
        Parameter(
            "fragment_vector",
            (1, 2, 4),
            "rows, and columns, of C side by side in a thread: what one read of a tile's row gives",
            "bank conflicts if wider than the banks serve at once; tile sizes must be multiples",
        ),
        Parameter(
            "strided",
            (0, 1),
            "a thread's chunks of fragment_vector lie 0: side by side, 1: a thread shape apart",
            "0: neighbouring threads read and write far apart; 1: none but dearer addresses",
        ),
    )


def _reads() -> tuple[Parameter, ...]:
    threads = (0, 2, 4, 8, 16, 32, 64, 128)
    return (
        Parameter(
            "read_a_m",
            threads,
            "threads along m when reading A's tile into shared memory, the others along k "
            "(ASTRA's second shape); 0: A is not shared, threads read it through the cache",
            "shared memory and barriers; 0: one read from the cache for each use",
        ),
        Parameter(
            "read_b_n",
            threads,
            "threads along n when reading B's tile into shared memory, the others along k "
            "(ASTRA's third shape); 0: B is not shared, threads read it through the cache",
            "shared memory and barriers; 0: one read from the cache for each use",
        ),
        Parameter(
            "read_vector",
            (1, 2, 4),
            "elements side by side in one read of device memory, where memory is aligned",
            "fewer, wider reads: tiles must be multiples, unaligned matrices gain nothing",
        ),
        Parameter(
            "pad",
            # 16 bytes in all are what an operand contiguous along k wants: a warp that writes
            # 8 rows of 4 elements of 4 bytes then meets each bank once.  With fragment_vector 4
            # that is 1, with 2 it is 2, with 1 it is 4.
            (0, 1, 2, 4),
            "fragment vectors put behind each row of a tile in shared memory",
            "shared memory; too few: a column of a tile falls on few banks, and operands "
            "contiguous along k are written by columns",
        ),
    )


def _pipeline() -> tuple[Parameter, ...]:
    return (
        Parameter(
            "shared_buffers",
            (1, 2),
            "tiles of each operand in shared memory: with 2 one barrier a step is enough",
            "twice the shared memory, so perhaps half the resident blocks",
        ),
        Parameter(
            "prefetch",
            (0, 1),
            "1: fetch the next tiles into registers before multiplying (ASTRA's figure 1)",
            "registers for a thread's share of both tiles",
        ),
        Parameter(
            "unroll_k",
            (1, 4, 8, 16),
            "steps in k that a trip of the inner loop does",
            "code size: beyond the instruction cache each trip waits; compile time",
        ),
    )


def _order() -> tuple[Parameter, ...]:
    return (
        Parameter(
            "swizzle_rows",
            (0, 1, 8),
            "threadblock swizzle: rows of blocks in a band of the grid; 0: one band, 1: row by row",
            "tall bands read B's tiles anew, flat ones A's; 8 keeps both in a shared cache",
        ),
    )
