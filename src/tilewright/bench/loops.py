"""Machine code of a loop's steady state as text in a results file, and back.

Compressed records of 20 bytes an instruction: its address in 4, its code in 16, both with
the least byte first.
"""

from __future__ import annotations

import base64
import lzma
import struct
from collections.abc import Sequence

from tilewright.sass.decode import decode_one
from tilewright.sass.instruction import Instruction

__all__ = ["pack_trace", "unpack_trace"]

_RECORD_BYTES = 20
# Far above any unrolled loop (the largest kept ones have some ten thousand instructions);
# a file from elsewhere cannot make us fill the memory.
_LIMIT_BYTES = 1 << 24


def pack_trace(trace: Sequence[Instruction]) -> str:
    """Return a trace's addresses and codes as text."""
    raw = b"".join(struct.pack("<I", i.address) + i.raw.to_bytes(16, "little") for i in trace)
    return base64.b85encode(lzma.compress(raw)).decode()


def unpack_trace(text: str, arch: int) -> list[Instruction]:
    """Return the instructions that `pack_trace` wrote, decoded for an architecture.

    Parameters
    ----------
    text : str
        What `pack_trace` returned.
    arch : int
        Such as 90 for sm_90.

    Raises
    ------
    ValueError
        If the text is none of that.
    """
    try:
        raw = lzma.LZMADecompressor().decompress(base64.b85decode(text), _LIMIT_BYTES)
    except (ValueError, lzma.LZMAError) as problem:
        raise ValueError(f"trace is not machine code as pack_trace writes it: {problem}") from None
    if not raw or len(raw) % _RECORD_BYTES:
        raise ValueError(f"trace has {len(raw)} bytes, which is no number of whole records")
    pieces = (raw[at : at + _RECORD_BYTES] for at in range(0, len(raw), _RECORD_BYTES))
    return [
        decode_one(int.from_bytes(piece[4:], "little"), struct.unpack("<I", piece[:4])[0], arch)
        for piece in pieces
    ]
