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

Matrices on devices are cut alike, for several devices to share: each copies one operand slab by
slab, the first of which is a part of k, and its own strips of the other one, which come whole.

Tiles and pieces of k follow from sizes and the limit alone: bits depend on no device's speed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise, product
from typing import NamedTuple

__all__ = [
    "Early",
    "HostCuts",
    "Piece",
    "Place",
    "PlacedCuts",
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


class PlacedCuts(NamedTuple):
    """What decides how matrices on devices are cut that fit a device.

    By simulation (`tilewright.bench.shared`); the first slab by measurement of two and of four
    H200s: more pieces of k begin earlier, and read and write C once more each.

    Parameters
    ----------
    by_rows : bool
        Whether C's lines are rows.
    strips : int
        Pieces of the side that strips are of, at most.
    first, first_of_parts : float
        Part of k that the first slab is, and of "fp32": until it is there, devices have nothing to
        multiply.
    """

    by_rows: bool = True
    strips: int = 16
    first: float = 1 / 4
    first_of_parts: float = 1 / 2


# A product that takes less than this part of the time of copies keeps up with what comes: two slabs
# are enough.
_MOSTLY_COPIES = 0.6

# Strips are at least so long, and slabs, for products that keep a GPU busy.
_LEAST_STRIP, _LEAST_SLAB = 512, 256

# Slabs are multiples of this, strips of twice as much: whole tiles of kernels.
_UNIT = 128

# Of matrices on devices, the longest slab behind the first: C is read and written again for each,
# and parts of "fp32" are multiplied by so many steps at a time (promise.MOST_K).
_LONGEST_SLAB = 8192

# Of matrices on devices, strips that devices begin together: the others are left to who is first.
_EARLY_PLACED = 0.9

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
    placed : bool
        Whether the matrices are on devices, where strips come about as fast as they are begun.
    """

    m: tuple[Piece, ...]
    n: tuple[Piece, ...]
    k: tuple[Piece, ...]
    panels: int = 0
    tiles: int = 0
    early: int = 0
    together: int = 0
    split: bool = False
    placed: bool = False

    @classmethod
    @lru_cache(maxsize=64)  # with the order of arrivals: calls like another are cut alike
    def of(
        cls, m: int, n: int, k: int, itemsize: int, limit: int,
        cuts: HostCuts | PlacedCuts = _CUTS, name: str = "max_device_memory", *,
        split: bool = False,
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
        cuts : HostCuts or PlacedCuts
            Of matrices on the host, or on devices.
        name : str
            What the caller knows the limit by.
        split : bool
            Whether A and B are held in parts, where these fit, too.

        Raises
        ------
        ValueError
            If not even the smallest tiles fit.
        """
        if isinstance(cuts, PlacedCuts):
            whole = cls._placed(m, n, k, cuts, cuts.first_of_parts if split else cuts.first)
        else:
            whole = cls._streamed(m, n, k, itemsize, cuts)
        few = replace(whole, tiles=min(_TILES, len(whole.m) * len(whole.n)), early=0)
        for found in (replace(whole, split=split), whole, few):
            if found.device_bytes(itemsize) <= limit:
                return found
        return cls._out_of_core(m, n, k, itemsize, limit, name)

    @classmethod
    def _streamed(cls, m: int, n: int, k: int, itemsize: int, cuts: HostCuts) -> Tiling:
        """Return how matrices are cut that come from the host and fit."""
        strips, rows, columns = _in_strips(m, n, cuts)
        # How much longer than copies products take; the part of the operand that slabs are of.
        ratio = m * n * k / (max((m + n) * k, m * n) * itemsize * cuts.balance)
        whole = (n if strips is rows else m) / (m + n)
        if ratio < _MOSTLY_COPIES:
            slabs = _slabs(k, 2)
            return cls(rows, columns, slabs, early=1, together=len(slabs))
        found = cuts.longer if ratio > 1 else cuts.shorter
        least = max(_LEAST_SLAB, k // found.slabs)
        slabs = _equal(k, least) if found.equal else _slabs(k, found.slabs)
        # What comes early keeps the device busy until the rest of the operand of slabs is there.
        needed = whole / (ratio - 1 + whole) if ratio > 1 else 1.0
        until = min(found.steps, needed) * k
        together = next(at for at, (_, stop) in enumerate(slabs, 1) if stop >= until)
        early = max(1, round(found.strips * len(strips)))
        return cls(rows, columns, slabs, early=early, together=together)

    @classmethod
    def _placed(cls, m: int, n: int, k: int, cuts: PlacedCuts, part: float) -> Tiling:
        """Return how matrices on devices are cut: a slab of a part of k, then equal ones."""
        strips, rows, columns = _in_strips(m, n, cuts)
        first = max(_LEAST_SLAB, int(k * part) // _LEAST_SLAB * _LEAST_SLAB)
        slabs: tuple[Piece, ...] = ((0, k),)
        if k >= 2 * first:
            rest = _equal(k - first, _LONGEST_SLAB)
            slabs = ((0, first), *((first + start, first + stop) for start, stop in rest))
        early = max(1, round(_EARLY_PLACED * len(strips)))
        return cls(rows, columns, slabs, early=early, together=len(slabs), placed=True)

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

    @property
    def apart(self) -> bool:
        """Whether each product is of one piece of k, however many are there.

        Exponents of operands in parts are those of one piece.  Of matrices on devices no product
        is to span a whole k of several pieces: see `has_wide_operands`.
        """
        return self.split or self.placed

    @property
    def has_wide_operands(self) -> bool:
        """Whether A or B of each product is a part of longer lines, as no dense matrix is."""
        return self.placed and len(self.k) > 1 and len(self.m) * len(self.n) > 1

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
        return list(product(range(len(self.m)), range(len(self.n))))

    def elements(self, place: Place) -> int:
        """Return how many elements of C a tile has."""
        return _length(self.m[place[0]]) * _length(self.n[place[1]])

    def tasks(self, places: Sequence[Place]) -> Iterator[Task]:
        """Yield the products of tiles that are begun together, in their order."""
        last = len(self.k)
        if not self.early:
            for place, p in product(places, range(last)):
                yield Task(place, (p, p + 1), p == 0, p == last - 1)
            return
        wanted = set(places)
        for place, (begin, end) in self._arrivals:
            if place not in wanted:
                continue
            for first in range(begin, end, 1 if self.apart else end - begin):
                until = first + 1 if self.apart else end
                yield Task(place, (first, until), first == 0, until == last)

    def unit(self, number: int, p: int) -> Piece:
        """Return the pieces of k that come together with one, of a strip."""
        if not self.early:
            return p, p + 1
        if number >= self.early:
            return 0, len(self.k)
        return (0, self.together) if p < self.together else (self.together, len(self.k))

    @cached_property
    def _arrivals(self) -> list[tuple[Place, Piece]]:
        """Tiles, and pieces of k that they can be multiplied by, as strips and slabs come."""
        found: list[tuple[Place, Piece]] = []
        every, last = self.places(), len(self.k)
        there, done = [0] * len(every), [0] * len(every)  # of k, by strips
        strips, slabs = 0, 0

        def ready() -> None:
            for at, place in enumerate(every):
                end = min(there[at], slabs)
                if end > done[at]:
                    found.append((place, (done[at], end)))
                    done[at] = end

        for slabs in range(1, last + 1):
            ready()
            come = self.early if self.placed else max(1, round(self.early * slabs / last))
            while strips < come:
                there[strips] = self.together
                strips += 1
                ready()
        for at in range(len(every)):
            there[at] = last
            ready()
        return found


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


def _in_strips(
    m: int, n: int, cuts: HostCuts | PlacedCuts
) -> tuple[tuple[Piece, ...], tuple[Piece, ...], tuple[Piece, ...]]:
    """Return strips of C, and the pieces of m and n that they make."""
    across = cuts.by_rows if max(m, n) < 2 * min(m, n) else m > n  # whether strips are rows
    strips = _strips(m if across else n, cuts.strips)
    return (strips, strips, ((0, n),)) if across else (strips, ((0, m),), strips)


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


def _equal(side: int, most: int) -> tuple[Piece, ...]:
    """Return pieces of a side of nearly equal length, at most so long."""
    count = max(1, -(-side // most))
    length = -(-side // count)
    length = min(most, -(-length // 128) * 128) if most >= 128 else length
    starts = range(0, max(1, side), max(1, length))
    return tuple(pairwise([*starts, side]))
