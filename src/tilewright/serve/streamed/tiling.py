"""How a product is cut into tiles that pass through a device's memory, and in which order.

::

              n[0]   n[1]      n[2]     where the sides are cut
            +------+---------+------+
       m[0] |  0   |    1    |   4  |   tiles of C in the order in which their panels of A and B
            +------+---------+------+   can be there: a square that grows, while the next row and
       m[1] |  2   |    3    |   5  |   column of panels are on their way
            +------+---------+------+
       m[2] |  6   |    7    |   8  |
            +------+---------+------+

Where A, B and C fit, k is not cut and every panel is copied once: T_comm and T_kernel overlap but
for the first panels and the last tile (Nakasato 2010, equations 3 to 5, has their sum).  So the
first piece is half as long.  Where they do not fit, tiles of C are as large as the memory allows,
and panels along k stream past each of them: a tile of t x t reads 2 t k elements for t t k
multiply-adds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

__all__ = ["Piece", "Task", "Tiling", "aligned", "longest", "slot_elements"]

# Pieces of a side, and how long each is at most: more let products begin and end sooner, but larger
# tiles have the better kernels, and each costs the host 0.1 ms.  Products of parts split a panel
# anew for each of its tiles, so that theirs are larger.
IEEE, PARTS = (6, 4096), (3, 8192)
_LEAST_SIDE = 512

# Of a side that is far longer than the others, pieces at most: 2442 of 4096 rows by 8 columns take
# the host longer than the link takes for all of it.
_MOST_PIECES = 64

# What is in flight where matrices do not fit: panels of each operand, and tiles of C, one of which
# is computed while another is copied.  Panels of so many steps along k.
_PANELS, _TILES, _STEPS = 4, 3, 1024

# Lines begin at multiples of so many bytes on the device: what its copy engine takes, and a sector.
_LINE_BYTES = 128


Piece = tuple[int, int]
"""Where a piece of a side begins, and where it ends."""


@dataclass(frozen=True)
class Task:
    """One product of panels: a tile of C, or what a piece of k adds to it.

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
    panels_a, panels_b, tiles_c : int
        How many panels and tiles a device holds at a time.
    """

    m: tuple[Piece, ...]
    n: tuple[Piece, ...]
    k: tuple[Piece, ...]
    panels_a: int
    panels_b: int
    tiles_c: int

    @classmethod
    def of(
        cls, m: int, n: int, k: int, itemsize: int, limit: int, pieces: tuple[int, int] = IEEE,
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
        pieces : (int, int)
            Of a side, and the length of each at most.
        name : str
            What the caller knows the limit by.

        Raises
        ------
        ValueError
            If not even the smallest tiles fit.
        """
        whole = cls._in_core(m, n, k, pieces)
        for found in (whole, whole._with_few_tiles()):
            if found._bytes(itemsize) <= limit:
                return found
        return cls._out_of_core(m, n, k, itemsize, limit, name)

    @classmethod
    def _in_core(cls, m: int, n: int, k: int, pieces: tuple[int, int]) -> Tiling:
        rows, columns = _ramped(m, pieces), _ramped(n, pieces)
        return cls(rows, columns, ((0, k),), len(rows), len(columns), len(rows) * len(columns))

    def _with_few_tiles(self) -> Tiling:
        tiles = min(_TILES, self.tiles_c)
        return Tiling(self.m, self.n, self.k, self.panels_a, self.panels_b, tiles)

    @classmethod
    def _out_of_core(cls, m: int, n: int, k: int, itemsize: int, limit: int, name: str) -> Tiling:
        # t x t tiles and panels of t x s: _TILES t^2 + 2 _PANELS t s = room.
        unit, room = max(1, _LINE_BYTES // itemsize), limit // itemsize
        steps = max(1, min(k, _STEPS))
        half = _PANELS * steps / _TILES
        side = math.sqrt(half * half + room / _TILES) - half
        if side < steps:  # as many steps as rows
            side = steps = math.isqrt(room // (_TILES + 2 * _PANELS))
        side, steps = int(side) // unit * unit, max(unit, steps // unit * unit)
        while side and cls._cut(m, n, k, side, steps)._bytes(itemsize) > limit:
            side -= unit
            steps = min(steps, max(side, unit))
        if not side:
            least = (_TILES + 2 * _PANELS) * unit * unit * itemsize
            raise ValueError(f"{name}={limit} holds no tiles; give at least {least} bytes")
        return cls._cut(m, n, k, side, steps)

    @classmethod
    def _cut(cls, m: int, n: int, k: int, side: int, steps: int) -> Tiling:
        rows, columns, sums = _equal(m, side), _equal(n, side), _equal(k, steps)
        panels_a = min(_PANELS, len(rows) * len(sums))
        panels_b = min(_PANELS, len(columns) * len(sums))
        return cls(rows, columns, sums, panels_a, panels_b, min(_TILES, len(rows) * len(columns)))

    def _bytes(self, itemsize: int) -> int:
        m, n, k = (longest(pieces) for pieces in (self.m, self.n, self.k))
        sizes = (self.panels_a, m, k), (self.panels_b, k, n), (self.tiles_c, m, n)
        return itemsize * sum(count * slot_elements(x, y, itemsize) for count, x, y in sizes)

    def tasks(self) -> Iterator[Task]:
        """Yield all products of panels in the order in which they are computed."""
        places = [(i, j) for i in range(len(self.m)) for j in range(len(self.n))]
        if len(self.k) == 1:
            rows, columns = self.m[-1][1], self.n[-1][1]

            def when(at: tuple[int, int]) -> tuple[float, ...]:
                down, across = self.m[at[0]][0] / rows, self.n[at[1]][0] / columns
                return max(down, across), down >= across, down + across

            places.sort(key=when)
        last = len(self.k) - 1
        for i, j in places:
            for p in range(last + 1):
                yield Task(i, j, p, p == 0, p == last)


def aligned(length: int, itemsize: int) -> int:
    """Return how many elements a line of so many takes on the device."""
    unit = max(1, _LINE_BYTES // itemsize)
    return -(-length // unit) * unit


def slot_elements(rows: int, columns: int, itemsize: int) -> int:
    """Return what a matrix takes, whichever way its lines run."""
    return aligned(rows, itemsize) * aligned(columns, itemsize)


def longest(pieces: tuple[Piece, ...]) -> int:
    """Return the length of the longest piece."""
    return max(stop - start for start, stop in pieces)


def _ramped(side: int, pieces: tuple[int, int]) -> tuple[Piece, ...]:
    """Return pieces of a side, the first half as long, the last what remains."""
    count, most = pieces
    length = min(most, max(_LEAST_SIDE, side // count // 256 * 256))
    length = max(length, -(-side // _MOST_PIECES // 256) * 256)
    starts = [0, *range(length // 2, side, length)]
    if len(starts) > 1 and side - starts[-1] < length // 4:
        starts.pop()  # a sliver would keep few multiprocessors busy
    return tuple(pairwise([*starts, side]))


def _equal(side: int, most: int) -> tuple[Piece, ...]:
    """Return pieces of a side of nearly equal length, at most so long."""
    count = max(1, -(-side // most))
    length = -(-side // count)
    length = min(most, -(-length // 128) * 128) if most >= 128 else length
    starts = range(0, max(1, side), max(1, length))
    return tuple(pairwise([*starts, side]))
