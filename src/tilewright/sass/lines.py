"""Lines that an asynchronous copy meets in device memory and in shared memory.

What a copy of 16 bytes a lane costs a multiprocessor is the pairs of a line of the caches and a
line of shared memory between which its pieces go, and more where eight lanes meet more than two
(``docs/microbenchmarks.md``, asynchronous copies).  A copy whose rows are whole lines in both
memories meets four, one by eight lanes; one that takes half of a line from each row, or whose rows
are padded, meets eight; one that takes quarters sixteen, four by eight lanes.

Where lines begin is not known of an address that is known only up to some number.  Of rows in
device memory the first piece is then taken for a line's beginning, as where leading dimensions are
multiples of a line and tiles begin at such; and rows that an unknown leading dimension keeps apart
for different lines.  In shared memory the fewest pairs are counted that any beginning gives.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from tilewright.sass.lane_values import LaneValue

__all__ = ["LINE_BYTES", "PIECE_BYTES", "LinePairs", "line_pairs"]

# A line of the caches, and of shared memory: 32 banks of 4 bytes.
LINE_BYTES = 128
# What a lane copies past the first cache, and to which its addresses are aligned.
PIECE_BYTES = 16
_WARP = 32
# Lanes that ask for a line's bytes together, and how many pairs these may meet at no more each.
_EIGHT, _FREE = LINE_BYTES // PIECE_BYTES, 2

_Place = tuple[int, int, int]  # of a lane: whose unknown number, device and shared address


@dataclass(frozen=True)
class LinePairs:
    """Pairs of lines that a warp's copy meets, in the mean of a block's warps.

    Parameters
    ----------
    free : float
        Of eight lanes that meet one or two.
    crowded : float
        Of eight lanes that meet more.
    """

    free: float
    crowded: float

    @property
    def count(self) -> float:
        """All of them."""
        return self.free + self.crowded


def line_pairs(device: LaneValue, shared: LaneValue, warps: int) -> LinePairs | None:
    """Return the pairs of lines that a copy of 16 bytes a lane meets.

    Parameters
    ----------
    device, shared : LaneValue
        Its addresses, in bytes.
    warps : int
        Warps of a thread block.

    Returns
    -------
    LinePairs or None
        None where the addresses cannot be those of such a copy.
    """
    if not shared.shared:
        return None
    found = []
    for warp in range(warps):
        rows, there = _of(device.first, warp), _of(device.lanes, warp)
        here = _of(shared.lanes, warp)
        if shared.step < PIECE_BYTES:
            here = [at - here[0] for at in here]
        if device.step < LINE_BYTES:
            begin = {
                row: min(at for name, at in zip(rows, there, strict=True) if name == row)
                for row in rows
            }
            if device.step >= PIECE_BYTES:  # what is known of where they begin stays
                begin = {row: at // device.step * device.step for row, at in begin.items()}
            there = [at - begin[row] for row, at in zip(rows, there, strict=True)]
        if any(at % PIECE_BYTES for at in (*there, *here)):
            return None
        step = max(PIECE_BYTES, min(shared.step, LINE_BYTES))
        found.append(_fewest(tuple(zip(rows, there, here, strict=True)), step))
    return LinePairs(*(float(sum(part)) / warps for part in zip(*found, strict=True)))


def _of(lanes: np.ndarray[tuple[int, ...], np.dtype[np.uint64]], warp: int) -> list[int]:
    """Return what a warp's lanes have, as signed numbers."""
    own = np.broadcast_to(lanes[min(warp, len(lanes) - 1)], (_WARP,))
    signed: list[int] = own.astype(np.uint32).view(np.int32).tolist()
    return signed


@functools.lru_cache(maxsize=256)
def _fewest(places: tuple[_Place, ...], step: int) -> tuple[int, int]:
    """Return free and crowded pairs of a warp where shared lines begin so that there are fewest."""
    ways = []
    for shift in range(0, LINE_BYTES, step):
        pairs = [(row, at // LINE_BYTES, (to + shift) // LINE_BYTES) for row, at, to in places]
        eights = [set(pairs[first : first + _EIGHT]) for first in range(0, _WARP, _EIGHT)]
        crowded = set().union(*(met for met in eights if len(met) > _FREE))
        ways.append((len(set(pairs)) - len(crowded), len(crowded)))
    return min(ways, key=lambda way: (sum(way), way[1]))
