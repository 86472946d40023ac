"""Operands that a kernel does not take as they lie, copied so that it does."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES
from tilewright.stencil.geometry import Launch
from tilewright.stencil.source import Dialect, Source
from tilewright.stencil.source_files import read_sources

__all__ = ["Realigned", "aligned_ld"]

VERSION = 3  # raised when what realign.cl computes changes, or how it is launched
_THREADS = 256  # of a block: realign.cl

# A tile's side.  Of 4 bytes tiles of 64 moved 2.7 and 2.8 TB/s at 8192 and 16384, of 32 2.65 and
# 2.7 (H100); of 8 bytes they are alike, and of 16 bytes those of 64 find no room.
_SIDE_BELOW_EIGHT, _SIDE = 64, 32


def aligned_ld(inner: int, element_bytes: int) -> int:
    """Return the least leading dimension of whole 16 bytes, in elements."""
    unit = CHUNK_BYTES // element_bytes
    return -(-max(1, inner) // unit) * unit


@dataclass(frozen=True)
class Realigned:
    """A copy of an operand, in memory that begins at a multiple of 16 bytes, as each column does.

    Parameters
    ----------
    element_bytes : int
        1, 2, 4, 8 or 16.
    inner, outer : int
        Elements along the copy's memory, and across it.
    transposed : bool
        Whether the operand's memory runs across it instead.
    conjugated : bool
        Whether elements, complex ones of 8 or 16 bytes, become their conjugates.
    batch : int
        Matrices that are copied, one behind the other.
    """

    element_bytes: int
    inner: int
    outer: int
    transposed: bool
    conjugated: bool = False
    batch: int = 1

    @property
    def ld(self) -> int:
        """The leading dimension, in elements."""
        return aligned_ld(self.inner, self.element_bytes)

    @property
    def size(self) -> int:
        """All of it in bytes."""
        return self.ld * self.outer * self.element_bytes * self.batch

    @property
    def side(self) -> int:
        """Elements along each side of the tile that a block moves."""
        return _SIDE_BELOW_EIGHT if self.element_bytes < 8 else _SIDE

    def source(self, dialect: Dialect) -> Source:
        """Return the kernel that copies."""
        defines: dict[str, int | str] = {
            "ELEMENT_BYTES": self.element_bytes,
            "SIDE": self.side,
            "ALONG_INNER": int(not self.transposed),
            "CONJUGATED": int(self.conjugated),
            "BATCHED": int(self.batch > 1),
        }
        text = read_sources(f"prelude/dialect_{dialect}.h", "asynchronous/realign.cl")
        return Source(text, defines, "realign", unit=f"realign {VERSION}")

    @property
    def launch(self) -> Launch:
        """A block for each tile."""
        tiles = -(-self.inner // self.side) * -(-self.outer // self.side) * self.batch
        return Launch(grid=(tiles, 1), block=(_THREADS, 1), early=True)

    def arguments(
        self, memory: Any, offset: int, step_inner: int, step_outer: int, made: Any,
        within: int = 1, step_within: int = 0, step_beyond: int = 0,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Return the kernel's arguments.

        Parameters
        ----------
        memory, made : object
            The backend's handles: of what is copied, and of the copy's memory.
        offset, step_inner, step_outer : int
            Elements before the operand's first one, and from one to the next; steps may be
            negative.
        within, step_within, step_beyond : int
            Of a batch: how many matrices lie how far apart, and how far from these the ones behind
            them do.
        """
        numbers = [np.int64(x) for x in (self.inner, self.outer, offset, step_inner, step_outer)]
        found = (*numbers[:2], memory, *numbers[2:], made, np.int64(self.ld))
        if self.batch == 1:
            return found
        return (*found, np.uint32(within), np.int64(step_within), np.int64(step_beyond))
