"""Operands that the copy engine does not take as they lie, copied so that it does."""

from __future__ import annotations

from tilewright.stencil.base import Dialect, Launch, Source
from tilewright.stencil.text import read_text
from tilewright.stencil.wgmma.call import ALIGNMENT

__all__ = ["aligned_ld", "realign", "realign_launch"]

# realign.cl.
_SIDE, _THREADS = 64, 256


def aligned_ld(inner: int, element_bytes: int) -> int:
    """Return the least leading dimension of whole 16 bytes, in elements."""
    unit = ALIGNMENT // element_bytes
    return -(-max(1, inner) // unit) * unit


def realign(element_bytes: int, along_inner: bool, dialect: Dialect) -> Source:
    """Return the copy.

    ``(inner, outer, x, offset, step_inner, step_outer, made, ld)``: sizes, steps and `ld` in
    elements; steps may be anything.  `made` is aligned to 16 bytes.

    Parameters
    ----------
    element_bytes : int
        1 or 2.
    along_inner : bool
        Whether x's memory runs along the dimension that the copy's does.
    dialect : str
        Of the text.
    """
    text = "\n".join(
        read_text(part) for part in (f"prelude/dialect_{dialect}.h", "wgmma/realign.cl")
    )
    defines: dict[str, int | str] = {
        "ELEMENT_BYTES": element_bytes,
        "ALONG_INNER": int(along_inner),
    }
    return Source(text, defines, "realign")


def realign_launch(inner: int, outer: int) -> Launch:
    """Return the blocks for a whole operand."""
    return Launch(grid=(-(-inner // _SIDE) * -(-outer // _SIDE), 1), block=(_THREADS, 1))
