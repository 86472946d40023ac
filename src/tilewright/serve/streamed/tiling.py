"""How a product is cut into tiles that pass through a device's memory, and in which order.

::

              n[0]        n[1] n[2]     where the sides are cut
            +----------+-----+---+
       m[0] |          |     |   |      tiles of C in the order in which their panels of A and B
            |    0     |  2  | 6 |      can be there: a square that grows, while the next row and
            |          |     |   |      column of panels are on their way
            +----------+-----+---+
       m[1] |    1     |  3  | 7 |
            +----------+-----+---+
       m[2] |    4     |  5  | 8 |
            +----------+-----+---+

Where A, B and C fit, all that is copied stays, and a product begins with the first piece of k of
its two panels: a tile of s x s takes 2 s k elements and s s k multiply-adds, so the first tile is
half as wide as C, for the device to keep up with the link.  Later ones become smaller: after the
last copy to the device there is the last one to multiply, and to copy back (Nakasato 2010,
equations 3 to 5, has the sum of all).  Where they do not fit, tiles of C are as large as the memory
allows, and panels along k stream past each.

Tiles and pieces of k follow from sizes and the limit alone: bits depend on no device's speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import NamedTuple

__all__ = [
    "HOST",
    "PLACED",
    "Cuts",
    "Piece",
    "Place",
    "Task",
    "Tiling",
    "aligned",
    "longest",
    "tile_line",
]


class Cuts(NamedTuple):
    """Lengths of pieces where all of it fits.

    Parameters
    ----------
    share : int
        A piece is a multiple of a unit: a side divided by this,
    least, most : int
        but at least and at most so long.
    parts, steps : int
        A piece of k is so many a part of it, and at most so long.
    """

    share: int
    least: int
    most: int
    parts: int
    steps: int


# 2048 x 2048 are 256 blocks of 128 x 128, which leave few of 132 multiprocessors idle.  Lines of
# fewer than 4096 elements are copied below the link's rate while products run: 16384 x 16384 in
# lines of 2048 at 32 GB/s, in whole ones at 54 (H100).  From device to device a copy takes a tenth,
# and C is read and written again for each piece of k.
HOST, PLACED = Cuts(4, 1024, 4096, 4, 4096), Cuts(4, 2048, 4096, 2, 8192)

# A piece is at most so long, that several devices have something to share.
_LONGEST = 8192

# Panels' pieces of k are at least so many bytes, as each costs the host 0.1 ms.
_LEAST_COPY = 16 << 20

# Of a side that is far longer than the others, pieces at most: 2442 of 4096 rows by 8 columns take
# the host longer than the link takes for all of it.
_MOST_PIECES = 56

# What is in flight where matrices do not fit: panels of each operand, and tiles of C, one of which
# is computed while another is copied.  Panels of so many steps along k.
_PANELS, _TILES, _STEPS = 4, 3, 1024

# Lines begin at multiples of so many bytes on the device: what its copy engine takes, and a sector.
_LINE_BYTES = 128


Piece = tuple[int, int]
"""Where a piece of a side begins, and where it ends."""

Place = tuple[int, int]
"""A tile of C: the numbers of its pieces of m and n."""


@dataclass(frozen=True)
class Task:
    """One product of panels: what a piece of k adds to a tile of C.

    Parameters
    ----------
    i, j, p : int
        Numbers of the pieces of m, n and k.
    is_first, is_last : bool
        Whether nothing was added to the tile before, and whether nothing is afterwards.
    """

    i: int
    j: int
    p: int
    is_first: bool
    is_last: bool


@dataclass(frozen=True)
class Tiling:
    """A product in pieces.

    Parameters
    ----------
    m, n, k : tuple of (int, int)
        Pieces of the sides.
    panels : int
        How many panels of each operand a device holds at a time; 0 if it holds all.
    tiles : int
        The same of C.
    """

    m: tuple[Piece, ...]
    n: tuple[Piece, ...]
    k: tuple[Piece, ...]
    panels: int = 0
    tiles: int = 0

    @classmethod
    def of(
        cls, m: int, n: int, k: int, itemsize: int, limit: int, cuts: Cuts = HOST,
        name: str = "max_device_memory",
    ) -> Tiling:  # fmt: skip
        """Return how a product is cut.

        Parameters
        ----------
        m, n, k : int
            Its sizes; m and n at least 1.
        itemsize : int
            Bytes of an element.
        limit : int
            Bytes of device memory.
        cuts : Cuts
            Of sides, where all fits.
        name : str
            What the caller knows the limit by.

        Raises
        ------
        ValueError
            If not even the smallest tiles fit.
        """
        rows, columns = _halves(m, cuts), _halves(n, cuts)
        steps = _steps(k, cuts, (longest(rows) + longest(columns)) * itemsize)
        for tiles in (0, min(_TILES, len(rows) * len(columns))):
            found = cls(rows, columns, steps, 0, tiles)
            if found.device_bytes(itemsize) <= limit:
                return found
        return cls._out_of_core(m, n, k, itemsize, limit, name)

    @classmethod
    def _out_of_core(cls, m: int, n: int, k: int, itemsize: int, limit: int, name: str) -> Tiling:
        # t x t tiles and panels of t x s: about _TILES t^2 + 2 _PANELS t s = room.
        unit, room = max(1, _LINE_BYTES // itemsize), limit // itemsize
        steps = max(1, min(k, _STEPS))
        half = _PANELS * steps / _TILES
        side = math.sqrt(half * half + room / _TILES) - half
        if side < steps:  # as many steps as rows
            side = steps = math.isqrt(room // (_TILES + 2 * _PANELS))
        side, steps = int(side) // unit * unit, max(unit, steps // unit * unit)
        while side and cls._cut(m, n, k, side, steps).device_bytes(itemsize) > limit:
            side -= unit
            steps = min(steps, max(side, unit))
        if not side:
            least = cls._cut(unit, unit, unit, unit, unit)._most_bytes(itemsize)
            raise ValueError(f"{name}={limit} holds no tiles; give at least {least} bytes")
        return cls._cut(m, n, k, side, steps)

    @classmethod
    def _cut(cls, m: int, n: int, k: int, side: int, steps: int) -> Tiling:
        return cls(_equal(m, side), _equal(n, side), _equal(k, steps), _PANELS, _TILES)

    # -- memory ----------------------------------------------------------------------------

    def panel_bytes(self, sides: Sequence[Piece], itemsize: int) -> list[int]:
        """Return what a device takes for panels of A (of `m`) or B (of `n`), one by one.

        Where it holds all, they are in the order of the sides' pieces, those of k within.
        """
        if not self.panels:
            every = product(sides, self.k)
            return [matrix_bytes(_length(x), _length(y), itemsize) for x, y in every]
        largest = matrix_bytes(longest(sides), longest(self.k), itemsize)
        return [largest] * min(self.panels, len(sides) * len(self.k))

    def tile_bytes(self, itemsize: int) -> list[int]:
        """Return the same of tiles of C, which are in the order of rows."""
        if not self.tiles:
            every = product(self.m, self.n)
            return [tile_bytes(_length(x), _length(y), itemsize) for x, y in every]
        largest = tile_bytes(longest(self.m), longest(self.n), itemsize)
        return [largest] * min(self.tiles, len(self.m) * len(self.n))

    def device_bytes(self, itemsize: int) -> int:
        """Return all of that."""
        of_panels = [sum(self.panel_bytes(sides, itemsize)) for sides in (self.m, self.n)]
        return sum(of_panels) + sum(self.tile_bytes(itemsize))

    def _most_bytes(self, itemsize: int) -> int:
        """Return the same where there are as many panels and tiles as a device holds."""
        panel, tile = self.panel_bytes(self.m, itemsize)[0], self.tile_bytes(itemsize)[0]
        return 2 * self.panels * panel + self.tiles * tile

    # -- order -----------------------------------------------------------------------------

    def places(self) -> list[Place]:
        """Return all tiles in the order in which they are computed."""
        return self.grown(range(len(self.m)), range(len(self.n)))

    def grown(self, rows: Sequence[int], columns: Sequence[int]) -> list[Place]:
        """Return the tiles of some rows and columns in that order."""
        places = list(product(rows, columns))
        if self.panels or not places:
            return places
        top, left = self.m[rows[0]][0], self.n[columns[0]][0]
        height, width = self.m[rows[-1]][1] - top, self.n[columns[-1]][1] - left

        def when(at: Place) -> tuple[float, ...]:
            down, across = (self.m[at[0]][0] - top) / height, (self.n[at[1]][0] - left) / width
            return max(down, across), down < across, down + across

        return sorted(places, key=when)

    def tasks(self, place: Place) -> Iterator[Task]:
        """Yield the products of a tile in the order in which they are added."""
        last = len(self.k) - 1
        for p in range(last + 1):
            yield Task(*place, p, p == 0, p == last)


def aligned(length: int, itemsize: int) -> int:
    """Return how many elements a line of so many takes on the device."""
    unit = max(1, _LINE_BYTES // itemsize)
    return -(-length // unit) * unit


def matrix_bytes(rows: int, columns: int, itemsize: int) -> int:
    """Return what a panel takes, whichever way its lines run."""
    return aligned(rows, itemsize) * aligned(columns, itemsize) * itemsize


def tile_line(length: int, itemsize: int) -> int:
    """Return how many elements a line of a tile of C takes on the device.

    Lines are never dense, as parts of larger matrices are not: which kernel serves a product may
    depend on it, and no bits are to depend on where a tile is.
    """
    return aligned(length + 1, itemsize)


def tile_bytes(rows: int, columns: int, itemsize: int) -> int:
    """Return what a tile takes, whichever way its lines run."""
    lines = rows * tile_line(columns, itemsize), columns * tile_line(rows, itemsize)
    return max(lines) * itemsize


def longest(pieces: Sequence[Piece]) -> int:
    """Return the length of the longest piece."""
    return max(map(_length, pieces))


def _length(piece: Piece) -> int:
    return piece[1] - piece[0]


def _halves(side: int, cuts: Cuts) -> tuple[Piece, ...]:
    """Return pieces of a side, each half of what remains, in whole units."""
    unit = max(cuts.least, min(cuts.most, side // cuts.share // 256 * 256))
    most = max(_LONGEST, -(-side // _MOST_PIECES // unit) * unit)
    starts = [0]
    while (left := side - starts[-1]) > unit * 3 // 2:
        starts.append(starts[-1] + min(most, max(unit, left // 2 // unit * unit)))
    return tuple(pairwise([*starts, side]))


def _steps(k: int, cuts: Cuts, step_bytes: int) -> tuple[Piece, ...]:
    """Return pieces of k, a step of which is so many bytes of two panels; the first is half."""
    length = max(512, min(cuts.steps, k // cuts.parts), _LEAST_COPY // step_bytes) // 512 * 512
    starts = [0, *range(length // 2, k, length)]
    if len(starts) > 1 and k - starts[-1] < length // 4:
        starts.pop()
    return tuple(pairwise([*starts, k]))


def _equal(side: int, most: int) -> tuple[Piece, ...]:
    """Return pieces of a side of nearly equal length, at most so long."""
    count = max(1, -(-side // most))
    length = -(-side // count)
    length = min(most, -(-length // 128) * 128) if most >= 128 else length
    starts = range(0, max(1, side), max(1, length))
    return tuple(pairwise([*starts, side]))
