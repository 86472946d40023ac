"""Triangles moved: those of diagonal blocks between matrices, or one to a matrix's other side."""

from __future__ import annotations

from tilewright.dataclass import dataclass
from tilewright.stencil.geometry import Launch
from tilewright.stencil.source import Dialect, Source
from tilewright.stencil.source_files import read_sources

__all__ = ["MovedTriangle"]

VERSION = 2  # raised when what triangle.cl computes changes
_SIDE, _COLUMNS, _THREADS = 32, 64, 256  # triangle.cl


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

    def launch(self, n: int, block: int) -> Launch:
        """Return the launch for a matrix of n columns in diagonal blocks; a block a tile."""
        tiles = -(-block // _SIDE) * -(-block // (_SIDE if self.mirrored else _COLUMNS))
        return Launch(grid=(-(-n // block) * tiles, 1), block=(_THREADS, 1))
