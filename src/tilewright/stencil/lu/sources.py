"""The kernel sources of this folder, specialised, with their launches; CUDA's alone.

All matrices are row-major; the factored one and workspaces begin at multiples of 16 bytes, and so
do their rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.precision import Precision
from tilewright.stencil.geometry import Launch
from tilewright.stencil.source import Source
from tilewright.stencil.source_files import read_sources

__all__ = ["BLOCKS", "CLUSTER", "SHARED_BYTES", "TOP", "TOP_OF_PIVOTS", "LUKernels", "Way"]

VERSION = 2  # raised when what these kernels compute, or how they are launched, changes

# Shared memory of a block that the largest kernel takes; blocks of Hopper have 227 KB.
SHARED_BYTES = 208 << 10

_THREADS = 256

# Columns whose elements a thread of a panel's kernel keeps in registers: fewer are more launches'
# worth of reading what lies left of them, more leave no room for a second row.
_SLAB = 16

# Rows that one permutation brings to the top at most: rows.cuh keeps parts of them in shared memory
# where they move in place.  Those of pivots alone are found one after the other (order.cuh).
TOP, TOP_OF_PIVOTS = 2048, 512

# Blocks of a panel's kernel, which stay and wait for one another.  A column takes a block for each
# lane of a warp in the same time as one.
BLOCKS, _MOST_BLOCKS = 32, 128

# Blocks of a cluster: as many as Hopper takes.
CLUSTER = 16

# rows.cuh moves so much of a row at once: a line of the caches, and in place half of one.
_LINE_BYTES, _LINE_BYTES_IN_PLACE = 128, 64

_CHUNK_BYTES = 16


class Way(IntEnum):
    """Where rows go: to another matrix, to the top in place, or back from there."""

    OUT = 0
    IN_PLACE = 1
    BACK = 2


@dataclass(frozen=True)
class LUKernels:
    """The kernels for matrices of a precision.

    Parameters
    ----------
    precision : Precision
        S, D, C or Z.
    """

    precision: Precision

    @property
    def width(self) -> int:
        """Columns of a panel, and rows of the diagonal blocks that are inverted.

        A panel's inverse lies in shared memory.
        """
        return 64 if self.precision.element_bytes > 8 else 128

    @property
    def unit(self) -> int:
        """What leading dimensions are multiples of, in elements."""
        return max(1, _CHUNK_BYTES // self.precision.element_bytes)

    @property
    def message_bytes(self) -> int:
        """Of what blocks of a panel's kernel send, two columns' worth."""
        words = _SLAB * self.precision.element_bytes // 4
        return 2 * _MOST_BLOCKS * (1 + words // 2) * _CHUNK_BYTES

    @property
    def _pitch(self) -> int:
        return self.width + 2 * self.unit

    @property
    def _rows_of_a_thread(self) -> tuple[int, ...]:
        """How many rows a thread may have: more do not fit its registers."""
        return (1, 2) if self.precision.words > 1 else (1, 2, 4)

    def _source(self, name: str, shared: int = 0, **defines: int) -> Source:
        letter = self.precision.letter
        text = read_sources("prelude/dialect_cuda.h", f"prelude/{letter}.h", f"lu/{name}.cuh")
        every: dict[str, int | str] = {**defines, "PRECISION": letter, "THREADS": _THREADS}
        return Source(text, every, f"lu_{name}", shared, unit=f"lu {VERSION}")

    def sources(self) -> Iterator[Source]:
        """Yield all."""
        for cluster in (0, CLUSTER):
            yield from (self.panel(rows, cluster) for rows in self._rows_of_a_thread)
        yield from map(self.rows, Way)
        yield from map(self.invert, (False, True))

    # -- panel ---------------------------------------------------------------------------

    def panel(self, rows: int, cluster: int = 0) -> Source:
        """Return the kernel of panel.cuh of which a thread has so many rows."""
        words = _SLAB * self.precision.element_bytes // 4
        elements = self._pitch * (self.width + 2 * _SLAB) + self.width * (_SLAB + 2 * self.unit)
        shared = elements * self.precision.element_bytes + _MOST_BLOCKS * (4 + words) * 4
        return self._source(
            "panel", shared, ROWS=rows, WIDTH=self.width, SLAB=_SLAB, CLUSTER=cluster
        )

    def cluster_holds(self, rows: int) -> bool:
        """Whether a cluster's threads hold so many rows."""
        return rows <= CLUSTER * _THREADS * self._rows_of_a_thread[-1]

    def panel_rows(self, rows: int, blocks: int = BLOCKS) -> int:
        """Return how many rows a thread has in a panel of so many, given about so many blocks."""
        able = self._rows_of_a_thread
        return next((one for one in able if one * blocks * _THREADS >= rows), able[-1])

    def panel_launch(
        self, rows: int, blocks: int = BLOCKS, most: int = _MOST_BLOCKS, cluster: int = 0
    ) -> Launch:
        """Return the launch for a panel of so many rows.

        All its blocks have to be there at once: `most` of them.

        Raises
        ------
        ValueError
            If there are more rows than blocks can hold.
        """
        if cluster:
            return Launch((cluster, 1), (_THREADS, 1))
        needed = -(-rows // (_THREADS * self.panel_rows(rows, blocks)))
        most = min(most, _MOST_BLOCKS)
        if needed > most:
            able = most * _THREADS * self._rows_of_a_thread[-1]
            raise ValueError(f"a has {rows} rows; this device factors at most {able}")
        return Launch((needed, 1), (_THREADS, 1))

    # -- all others ----------------------------------------------------------------------

    def rows(self, way: Way) -> Source:
        """Return the kernel of rows.cuh."""
        shared = 0 if way == Way.OUT else TOP * _LINE_BYTES_IN_PLACE
        return self._source("rows", shared, WAY=int(way), LINE_BYTES=self._line(way))

    def _line(self, way: Way) -> int:
        return _LINE_BYTES if way == Way.OUT else _LINE_BYTES_IN_PLACE

    def rows_launch(self, way: Way, columns: int) -> Launch:
        """Return the launch for so many columns."""
        each = self._line(way) // self.precision.element_bytes
        return Launch((-(-columns // each), 1), (_THREADS, 1))

    def rows_arguments(
        self, a: Any, ld: int, columns: int, top: int, order: Any, to: Any = None, to_ld: int = 0
    ) -> tuple[Any, ...]:
        """Return the arguments of `rows`; see rows.cuh."""
        return a, np.int64(ld), np.int64(columns), np.int32(top), order, to, np.int64(to_ld)

    def invert(self, upper: bool) -> Source:
        """Return the kernel of invert.cuh."""
        shared = self._pitch * (self.width + 2 * _SLAB) * self.precision.element_bytes
        return self._source("invert", shared, UPPER=int(upper), WIDTH=self.width, SLAB=_SLAB)

    def invert_launch(self, n: int) -> Launch:
        """Return the launch for a matrix of n rows."""
        return Launch((-(-n // self.width), 1), (_THREADS, 1))

    def order(self) -> Source:
        """Return the kernel of order.cuh, which is the same for all precisions."""
        text = read_sources("prelude/dialect_cuda.h", "lu/order.cuh")
        return Source(
            text, {"TOP": TOP_OF_PIVOTS, "THREADS": _THREADS}, "lu_order", unit=f"lu {VERSION}"
        )

    def order_launch(self, n: int) -> Launch:
        """Return the launch for n pivots."""
        return Launch((-(-n // TOP_OF_PIVOTS), 1), (_THREADS, 1))
