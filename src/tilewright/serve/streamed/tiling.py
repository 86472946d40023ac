"""How a product is cut into tiles that pass through a device's memory, and in which order.

Where A, B and C fit, each is copied once and stays.  One operand is cut into slabs along k, the
other one into strips across C, the first of which are cut along k once more::

    A 0 0 0 | 9 9    B 1 1 1 1     when parts of A and of B come, where C is cut into rows:
      2 2 2 | 10     3 3 3 3       0 to 7 bring work to begin with, for the link takes as long as
      5 5 5 | 11     4 4 4 4       the device, 8 the rest of B, and 9 on finish strips of C, which
      12 12 12 12    6 7 8 8       are copied back each beside the next

A part is multiplied with all that is there of the other operand, in one product where nothing
came between.  Strips are rows of a row-major C, else columns, or across a side that is far longer:
lines of most copies are whole ones, as the link is half as fast with lines of some KiB.  The last
strips are short: after the last copy to the device there is the last product, and the last copy
back (Nakasato 2010, equations 3 to 5, has the sum of all).

Where they do not fit, tiles of C are as large as the memory allows, and panels along k stream past
each.

Tiles and pieces of k follow from sizes and the limit alone: bits depend on no device's speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import NamedTuple

__all__ = [
    "Early",
    "HostCuts",
    "Piece",
    "Place",
    "Task",
    "Tiling",
    "aligned",
    "longest",
    "span",
    "tile_line",
]


class Early(NamedTuple):
    """How much comes early.

    Parameters
    ----------
    slabs : int
        Pieces of k at most.
    equal : bool
        Whether they are alike; else the second is twice as long as the first, and so on.
    strips, steps : float
        Parts of strips that come early, and of k that comes early of these, at most.
    """

    slabs: int
    equal: bool
    strips: float
    steps: float


class HostCuts(NamedTuple):
    """What decides how matrices on the host are cut that fit a device.

    By simulation of 8192 to 32768 in three precisions, at the rates of an H100.

    Parameters
    ----------
    by_rows : bool
        Whether C's lines are rows.
    balance : float
        Multiply-adds a byte that is copied for which products take as long as copies.
    strips : int
        Pieces of the side that strips are of, at most.
    longer, shorter : Early
        Where products take longer than copies, and where they do not.
    """

    by_rows: bool = True
    balance: float = 600
    strips: int = 12
    longer: Early = Early(8, False, 2 / 3, 0.3)
    shorter: Early = Early(6, True, 1 / 2, 0.7)


_CUTS = HostCuts()

# A product that takes less than this part of the time of copies keeps up with what comes: two slabs
# are enough.
_MOSTLY_COPIES = 0.6

# Strips are at least so long, and slabs, for products that keep a GPU busy.
_LEAST_STRIP, _LEAST_SLAB = 512, 256

# Slabs are multiples of this, strips of twice as much: whole tiles of kernels.
_UNIT = 128

# Of matrices on devices: 2048 x 2048 are 256 blocks of 128 x 128, which leave few of 132
# multiprocessors idle.  From device to device a copy takes a tenth of the host's time, and C is
# read and written again for each piece of k, of which there are two or more.
_LEAST_PLACED, _MOST_PLACED, _LONGEST_STEPS = 2048, 4096, 8192

# A piece is at most so long, that several devices have something to share.
_LONGEST = 8192

# Of a side that is far longer than the others, pieces at most: 2442 of 4096 rows by 8 columns take
# the host longer than the link takes for all of it.
_MOST_PIECES = 56

# What is in flight where matrices do not fit: panels of each operand, and tiles of C, one of which
# is computed while another is copied.  Panels of so many steps along k, or more where sides leave
# room for them.
_PANELS, _TILES, _STEPS, _MOST_STEPS = 4, 3, 1024, 4096

# Of a side, and of a piece of sides, at most: numbers of each piece of k (SplitOperand).
_SIDE_BYTES, _PIECE_BYTES = 32, 1024

# Lines begin at multiples of so many bytes on the device: what its copy engine takes, and a sector.
_LINE_BYTES = 128


Piece = tuple[int, int]
"""Where a piece of a side begins, and where it ends."""

Place = tuple[int, int]
"""A tile of C: the numbers of its pieces of m and n."""


@dataclass(frozen=True)
class Task:
    """One product of panels: what pieces of k add to a tile of C.

    Parameters
    ----------
    place : Place
        The tile.
    steps : (int, int)
        The first of the pieces of k, and the one behind the last.
    is_first, is_last : bool
        Whether nothing was added to the tile before, and whether nothing is afterwards.
    """

    place: Place
    steps: Piece
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
        How many panels of each operand a device holds at a time; 0 if it holds all of A and B.
    tiles : int
        The same of C.
    early : int
        Tiles that are begun together, before one of them is finished.
    together : int
        Pieces of k that come at once of the strips of these.
    split : bool
        Whether A and B are held once more, in parts (`tilewright.serve.streamed.parts`).
    """

    m: tuple[Piece, ...]
    n: tuple[Piece, ...]
    k: tuple[Piece, ...]
    panels: int = 0
    tiles: int = 0
    early: int = 0
    together: int = 0
    split: bool = False

    @classmethod
    def of(
        cls, m: int, n: int, k: int, itemsize: int, limit: int,
        cuts: HostCuts | None = _CUTS, name: str = "max_device_memory", *, split: bool = False,
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
        cuts : HostCuts, optional
            Of matrices on the host; None of those on devices.
        name : str
            What the caller knows the limit by.
        split : bool
            Whether A and B are held in parts, where these fit, too.

        Raises
        ------
        ValueError
            If not even the smallest tiles fit.
        """
        whole = cls._placed(m, n, k) if cuts is None else cls._streamed(m, n, k, itemsize, cuts)
        few = replace(whole, tiles=min(_TILES, len(whole.m) * len(whole.n)), early=0)
        for found in (replace(whole, split=split), whole, few):
            if found.device_bytes(itemsize) <= limit:
                return found
        return cls._out_of_core(m, n, k, itemsize, limit, name)

    @classmethod
    def _streamed(cls, m: int, n: int, k: int, itemsize: int, cuts: HostCuts) -> Tiling:
        """Return how matrices are cut that come from the host and fit."""
        across = cuts.by_rows if max(m, n) < 2 * min(m, n) else m > n  # whether strips are rows
        # How much longer than copies products take; the part of the operand that slabs are of.
        ratio = m * n * k / (max((m + n) * k, m * n) * itemsize * cuts.balance)
        whole = (n if across else m) / (m + n)
        strips = _strips(m if across else n, cuts.strips)
        rows, columns = (strips, ((0, n),)) if across else (((0, m),), strips)
        if ratio < _MOSTLY_COPIES:
            slabs = _slabs(k, 2)
            return cls(rows, columns, slabs, early=1, together=len(slabs))
        found = cuts.longer if ratio > 1 else cuts.shorter
        slabs = _equal(k, max(_LEAST_SLAB, k // found.slabs)) if found.equal else _slabs(
            k, found.slabs
        )  # fmt: skip
        # What comes early keeps the device busy until the rest of the operand of slabs is there.
        needed = whole / (ratio - 1 + whole) if ratio > 1 else 1.0
        until = min(found.steps, needed) * k
        together = next(at for at, (_, stop) in enumerate(slabs, 1) if stop >= until)
        early = max(1, round(found.strips * len(strips)))
        return cls(rows, columns, slabs, early=early, together=together)

    @classmethod
    def _placed(cls, m: int, n: int, k: int) -> Tiling:
        """Return how matrices on devices are cut: pieces are half of what remains."""
        rows, columns = _halves(m), _halves(n)
        length = max(512, min(_LONGEST_STEPS, k // 2) // 512 * 512)
        starts = [0, *range(length // 2, k, length)]
        if len(starts) > 1 and k - starts[-1] < length // 4:
            starts.pop()
        return cls(rows, columns, tuple(pairwise([*starts, k])))

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
        while steps < min(k, _MOST_STEPS):  # a tile is read and written again for each panel
            longer = cls._cut(m, n, k, side, 2 * steps)
            if longer.device_bytes(itemsize) > limit:
                break
            steps *= 2
        return cls._cut(m, n, k, side, steps)

    @classmethod
    def _cut(cls, m: int, n: int, k: int, side: int, steps: int) -> Tiling:
        return cls(_equal(m, side), _equal(n, side), _equal(k, steps), _PANELS, _TILES)

    # -- memory ----------------------------------------------------------------------------

    def panel_bytes(self, sides: Sequence[Piece], itemsize: int) -> list[int]:
        """Return what a device takes for A (of `m`) or B (of `n`): the whole, or panel by panel."""
        if not self.panels:
            return [matrix_bytes(sides[-1][1], self.k[-1][1], itemsize)]
        largest = matrix_bytes(longest(sides), longest(self.k), itemsize)
        return [largest] * min(self.panels, len(sides) * len(self.k))

    def parts_bytes(self, sides: Sequence[Piece], itemsize: int) -> int:
        """Return what a device takes for A or B in parts, and for numbers of their sides."""
        if not self.split:
            return 0
        numbers = _SIDE_BYTES * sides[-1][1] + _PIECE_BYTES * len(sides)
        return matrix_bytes(sides[-1][1], self.k[-1][1], itemsize) + len(self.k) * numbers

    def tile_bytes(self, itemsize: int) -> list[int]:
        """Return the same of C: the whole, or tile by tile."""
        if not self.tiles:
            return [tile_bytes(self.m[-1][1], self.n[-1][1], itemsize)]
        largest = tile_bytes(longest(self.m), longest(self.n), itemsize)
        return [largest] * min(self.tiles, len(self.m) * len(self.n))

    def device_bytes(self, itemsize: int) -> int:
        """Return all of that."""
        of_panels = [sum(self.panel_bytes(sides, itemsize)) for sides in (self.m, self.n)]
        parts = sum(self.parts_bytes(sides, itemsize) for sides in (self.m, self.n))
        return sum(of_panels) + parts + sum(self.tile_bytes(itemsize))

    def _most_bytes(self, itemsize: int) -> int:
        """Return the same where there are as many panels and tiles as a device holds."""
        panel, tile = self.panel_bytes(self.m, itemsize)[0], self.tile_bytes(itemsize)[0]
        return 2 * self.panels * panel + self.tiles * tile

    # -- order -----------------------------------------------------------------------------

    def places(self) -> list[Place]:
        """Return all tiles in the order in which they are finished."""
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

    def tasks(self, places: Sequence[Place]) -> Iterator[Task]:
        """Yield the products of tiles that are begun together, in their order."""
        last = len(self.k)
        if not self.early:
            for place, p in product(places, range(last)):
                yield Task(place, (p, p + 1), p == 0, p == last - 1)
            return
        wanted = set(places)
        for place, (begin, end) in self._arrivals():
            for first in range(begin, end, 1 if self.split else end - begin):  # by their numbers
                until = first + 1 if self.split else end
                if place in wanted:
                    yield Task(place, (first, until), first == 0, until == last)

    def unit(self, number: int, p: int) -> Piece:
        """Return the pieces of k that come together with one, of a strip."""
        if not self.early:
            return p, p + 1
        if number >= self.early:
            return 0, len(self.k)
        return (0, self.together) if p < self.together else (self.together, len(self.k))

    def _arrivals(self) -> Iterator[tuple[Place, Piece]]:
        """Yield tiles, and pieces of k that they can be multiplied by, as strips and slabs come."""
        every, last = self.places(), len(self.k)
        there, done = [0] * len(every), [0] * len(every)  # of k, by strips
        strips, slabs = 0, 0

        def ready() -> Iterator[tuple[Place, Piece]]:
            for at, place in enumerate(every):
                end = min(there[at], slabs)
                if end > done[at]:
                    yield place, (done[at], end)
                    done[at] = end

        for slabs in range(1, last + 1):
            yield from ready()
            while strips < max(1, round(self.early * slabs / last)):
                there[strips] = self.together
                strips += 1
                yield from ready()
        for at in range(len(every)):
            there[at] = last
            yield from ready()


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


def span(pieces: Sequence[Piece], numbers: Piece) -> Piece:
    """Return where neighbouring pieces begin and end: from one number, and before another."""
    return pieces[numbers[0]][0], pieces[numbers[1] - 1][1]


def longest(pieces: Sequence[Piece]) -> int:
    """Return the length of the longest piece."""
    return max(map(_length, pieces))


def _length(piece: Piece) -> int:
    return piece[1] - piece[0]


def _strips(side: int, most: int) -> tuple[Piece, ...]:
    """Return strips of a side of nearly equal lengths, of which the last is halved, and again."""
    length = max(_LEAST_STRIP, -(-side // (most * 2 * _UNIT)) * 2 * _UNIT)
    starts = list(range(0, side, length))
    if side - starts[-1] < length // 2 and len(starts) > 1:
        starts.pop()
    for _ in range(2):
        if (left := side - starts[-1]) >= _LEAST_STRIP:
            starts.append(starts[-1] + left // 2 // _UNIT * _UNIT)
    return tuple(pairwise([*starts, side]))


def _slabs(k: int, most: int) -> tuple[Piece, ...]:
    """Return pieces of k, the second twice as long as the first, the third three times ..."""
    length = max(_LEAST_SLAB, k * 2 // (most * (most + 1)) // _UNIT * _UNIT)
    starts = [0]
    while k - starts[-1] > len(starts) * length * 3 // 2 and len(starts) < most:
        starts.append(starts[-1] + len(starts) * length)
    return tuple(pairwise([*starts, k]))


def _halves(side: int) -> tuple[Piece, ...]:
    """Return pieces of a side, each half of what remains, in whole units."""
    unit = max(_LEAST_PLACED, min(_MOST_PLACED, side // 4 // 256 * 256))
    most = max(_LONGEST, -(-side // _MOST_PIECES // unit) * unit)
    starts = [0]
    while (left := side - starts[-1]) > unit * 3 // 2:
        starts.append(starts[-1] + min(most, max(unit, left // 2 // unit * unit)))
    return tuple(pairwise([*starts, side]))


def _equal(side: int, most: int) -> tuple[Piece, ...]:
    """Return pieces of a side of nearly equal length, at most so long."""
    count = max(1, -(-side // most))
    length = -(-side // count)
    length = min(most, -(-length // 128) * 128) if most >= 128 else length
    starts = range(0, max(1, side), max(1, length))
    return tuple(pairwise([*starts, side]))
