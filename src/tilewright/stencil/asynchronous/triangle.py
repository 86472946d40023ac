"""Triangles moved: those of diagonal blocks between matrices, or one to a matrix's other side."""

from __future__ import annotations

from tilewright.dataclass import dataclass
from tilewright.stencil.geometry import Launch
from tilewright.stencil.source import Dialect, Source
from tilewright.stencil.source_files import read_sources

__all__ = ["MovedTriangle"]

VERSION = 6  # raised when what triangle.cl computes changes
_SIDE, _THREADS = 32, 256  # triangle.cl
_SHORT, _SIDE_OF_SHORT = 4, 64  # the same, of what is mirrored


@dataclass(frozen=True)
class MovedTriangle:
    """The pass of triangle.cl for one kind of elements.

    Parameters
    ----------
    element_bytes : int
        2, 4, 8, 16 or 32.
    mirrored : bool
        Whether a triangle goes to its matrix's other side; else those of diagonal blocks are
        copied.
    hermitian : bool
        Whether elements are complex, mirrored ones become their conjugates, and the diagonal real.
    """

    element_bytes: int
    mirrored: bool
    hermitian: bool = False

    def source(self, dialect: Dialect) -> Source:
        """Return the kernel."""
        defines: dict[str, int | str] = {
            "ELEMENT_BYTES": self.element_bytes,
            "MIRRORED": int(self.mirrored),
            "HERMITIAN": int(self.hermitian),
        }
        text = read_sources(f"prelude/dialect_{dialect}.h", "asynchronous/triangle.cl")
        entry = "mirror_triangle" if self.mirrored else "copy_triangles"
        return Source(text, defines, entry, unit=f"triangle {VERSION}")

    def launch(self, n: int, block: int, most: int | None = None) -> Launch:
        """Return the launch for a matrix of n columns in diagonal blocks; a thread block a tile.

        `most`: thread blocks of a copy at most, which then go on to further tiles.
        """
        if self.mirrored:
            down = -(-n // (_SIDE_OF_SHORT if self.element_bytes <= _SHORT else _SIDE))
            tiles = down * (down + 1) // 2
        else:
            tiles = -(-n // block) * (-(-block // _SIDE)) ** 2
            tiles = tiles if most is None else min(tiles, most)
        return Launch(grid=(tiles, 1), block=(_THREADS, 1))
