"""What tiles of warpgroup multiplies leave of the tensor cores' rate: shared memory and the tail.

A warpgroup multiply (wgmma) reads B, 64 rows' worth of it at a time, and A from shared memory::

              n <= 256
           +-----------+         each step in k, for 64 x n multiply-adds of a product:
        k  |     B     |             64 elements of A, or none where registers hold them
           +-----------+             n elements of B
     +---+ +-----------+
     | A | |  64 rows  |         and once for the block, whatever its warpgroups share,
     +---+ +-----------+             block_m + block_n elements written by the copies

Both ways go through the same port of 32 words a cycle (for ordinary loads measured; that copies
and multiplies share it is an assumption, no measurement here refutes it).  Tall and narrow
tiles read B anew for every 64 rows and starve; registers end the tile's growth, and a second
set of sums, where they are taken out of the tensor cores, halves it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from tilewright.bounds import modern
from tilewright.bounds.units import Units
from tilewright.hardware.catalogue import CatalogueDevice
from tilewright.problem import Problem

__all__ = ["NEEDS", "TensorTile", "best_tensor_tile", "feed", "tensor_tiles"]

# What `best_tensor_tile` needs of a device beside the tensor cores' rate.
NEEDS = (
    "warpgroup_rows",
    "multiprocessors",
    "warp_size",
    "shared_load_lanes",
    "max_registers_per_thread",
    "registers_per_multiprocessor",
    "max_threads_per_block",
)
# PTX ISA, "Matrix shape" of wgmma: n is a multiple of 8 up to 256; a warpgroup is four warps.
_COLUMNS, _MOST_COLUMNS, _WARPS = 8, 256, 4
# Instructions of a warpgroup's tile along m: four of n = 64 have all the sums that registers hold.
_STACKED = (1, 2, 3, 4)
_WORD_BYTES = 4


@dataclass(frozen=True)
class TensorTile:
    """A block of warpgroups, and the shares of the tensor cores' rate that it leaves.

    Parameters
    ----------
    rows, columns : int
        Elements of C that a warpgroup holds; of a warp where `groups` is 0.
    block_m, block_n : int
        Elements of C that a block holds.
    groups : int
        Warpgroups that multiply; 0 for instructions of one warp.
    sums : int
        Registers of a thread for sums; of a block where `groups` is 0.
    feed : float
        Share of the rate that shared memory feeds.
    split_k : int
        Parts of k that different blocks take.
    tail : float
        Share of the multiprocessors' time that computes elements of C.
    """

    rows: int
    columns: int
    block_m: int
    block_n: int
    groups: int
    sums: int
    feed: float
    split_k: int = 1
    tail: float = 1.0

    @property
    def efficiency(self) -> float:
        """Share of the tensor cores' rate that is left."""
        return self.feed * self.tail

    @property
    def resource(self) -> str:
        """What takes most of the rest."""
        if self.efficiency == 1:
            return "tensor cores"
        return "shared memory" if self.feed < self.tail else "tail wave"


def feed(
    device: CatalogueDevice, units: Units, stacked: int, columns: int, groups: tuple[int, int]
) -> float:
    """Return the share of the tensor cores' rate at which shared memory brings operands.

    Parameters
    ----------
    device : CatalogueDevice
        Its `NEEDS` and the rate of `units` must be known.
    units : Units
        Bytes of an element, its parts and products.
    stacked, columns : int
        Of a warpgroup's tile: instructions along m, and elements along n.
    groups : tuple of int
        Warpgroups of a block along m and along n.

    Raises
    ------
    ValueError
        If a number of the device is unknown.
    """
    along_m, along_n = groups
    count, height = along_m * along_n, stacked * int(device.needs("warpgroup_rows"))
    part_bytes = units.element_bytes / units.parts
    # A's parts may stay in registers from product to product, B's cannot.
    read = count * (units.parts * height + units.products * stacked * columns)
    written = units.parts * (along_m * height + along_n * columns)
    cycles = (read + written) * part_bytes / (_WORD_BYTES * device.needs("shared_load_lanes"))
    useful = units.products * count * height * columns / device.needs(units.lane)
    return min(1.0, useful / cycles)


def tensor_tiles(device: CatalogueDevice, units: Units, promoted: bool) -> tuple[TensorTile, ...]:
    """Return every block of warpgroups that registers hold, the best fed first.

    Parameters
    ----------
    device : CatalogueDevice
        Its `NEEDS` and the rate of `units` must be known.
    units : Units
        What multiplies.
    promoted : bool
        Whether every sum has a register in the tensor cores' and one of its own.

    Raises
    ------
    ValueError
        If a number of the device is unknown.
    """
    return tuple(sorted(_every(device, units, promoted), key=lambda t: -t.feed))


def _every(device: CatalogueDevice, units: Units, promoted: bool) -> Iterator[TensorTile]:
    threads = int(device.needs("warp_size")) * _WARPS
    height = int(device.needs("warpgroup_rows"))
    most = int(device.needs("max_registers_per_thread"))
    held = int(device.needs("registers_per_multiprocessor"))
    groups = int(device.needs("max_threads_per_block")) // threads
    sides = [(p, q) for p, q in product(range(1, groups + 1), repeat=2) if p * q <= groups]
    for stacked, columns in product(_STACKED, range(_COLUMNS, _MOST_COLUMNS + 1, _COLUMNS)):
        rows = stacked * height
        sums = rows * columns // threads * (2 if promoted else 1)
        if sums > most:
            continue
        for p, q in sides:
            if p * q * threads * sums <= held:
                share = feed(device, units, stacked, columns, (p, q))
                yield TensorTile(rows, columns, rows * p, columns * q, p * q, sums, share)


def best_tensor_tile(
    problem: Problem, device: CatalogueDevice, units: Units, promoted: bool
) -> TensorTile:
    """Return the tile, block and split of k that leave most of the tensor cores' rate.

    Instructions of one warp have smaller tiles and, where `warp_matrix_share` says so, a lower
    rate; they count where that is better.

    Parameters
    ----------
    problem : Problem
        Sizes.
    device : CatalogueDevice
        Its `NEEDS` and the rate of `units` must be known.
    units : Units
        What multiplies.
    promoted : bool
        As of `tensor_tiles`.

    Raises
    ------
    ValueError
        If a number of the device is unknown.
    """
    best = _of_warps(problem, device, units)
    count = int(device.needs("multiprocessors"))
    for tile in tensor_tiles(device, units, promoted):
        if tile.feed <= best.efficiency:
            break  # sorted, and no tail is above 1
        for split in modern.SPLITS:
            if split > problem.k:
                break
            # Either operand may be the one of 64 rows: C^T = B^T A^T.
            for bm, bn in ((tile.block_m, tile.block_n), (tile.block_n, tile.block_m)):
                tail = modern.tail_efficiency(problem, count, bm, bn, split)
                if tile.feed * tail > best.efficiency:
                    best = TensorTile(tile.rows, tile.columns, bm, bn, tile.groups, tile.sums,
                                      tile.feed, split, tail)  # fmt: skip
    return best


def _of_warps(problem: Problem, device: CatalogueDevice, units: Units) -> TensorTile:
    """Return the best tile of instructions of one warp, fed without loss."""
    share = device.value("warp_matrix_share") or 1.0
    transposed = replace(problem, m=problem.n, n=problem.m, lda=0, ldb=0, ldc=0)
    both = [modern.best_tile(p, device, units.lane, units.products) for p in (problem, transposed)]
    t = max(both, key=lambda one: one.tail)
    bm, bn = (t.block_m, t.block_n) if t is both[0] else (t.block_n, t.block_m)
    return TensorTile(t.rows, t.columns, bm, bn, 0, bm * bn, share, t.split_k, t.tail)
