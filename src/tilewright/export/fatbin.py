"""Fat binaries: the container that CUDA's runtime, driver and linkers take kernels from.

NVIDIA does not publish the format.  It was read off what ``fatbinary`` (CUDA 13.0) writes
without compression, and tests compare the bytes and let ``cuobjdump`` read them::

    magic 0xba55ed50 | version 1, header 16 | size of what follows
    kind 2 (ELF), version 0x101 | header H | payload P, padded to 8
      0 | offset of extension E or 0 | code version 1.8 | architecture
      no name (offset 0, length 0) | flags
      0 | 0
      extension, from sm_100 on: offset, size | 0, the cubin's .nv.compat section
    payload: the cubin, padded with zeros
"""

from __future__ import annotations

import re
import struct

from tilewright.sass.elf import section_of

__all__ = ["fatbin_of"]

_MAGIC = 0xBA55ED50
_KIND_ELF = 2
_ENTRY_VERSION = 0x0101
_CODE_VERSION = (8, 1)  # minor, major

_64_BIT, _LINUX = 0x1, 0x10
# "sm_90a": no other architecture runs it; "sm_100f": its family does.
_FLAGS_OF_SUFFIX = {"": 0, "a": 0x100000, "f": 0x200000}
_COMPATIBILITY = 0x1000000
_COMPATIBILITY_SINCE = 100

_HEADER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_EXTENSION = struct.Struct("<II")


def fatbin_of(code: bytes, arch: str) -> bytes:
    """Return a fat binary that holds one cubin.

    Parameters
    ----------
    code : bytes
        The cubin.
    arch : str
        What it was compiled for, such as ``"sm_90a"``: a cubin itself does not tell
        ``sm_90a`` from ``sm_90``.

    Raises
    ------
    ValueError
        If `arch` is no architecture, or `code` no cubin.
    """
    found = re.fullmatch(r"sm_(\d+)([af]?)", arch)
    if found is None:
        raise ValueError(f"arch={arch!r} is no architecture; write sm_80, sm_90a or the like")
    number, flags = int(found[1]), _64_BIT | _LINUX | _FLAGS_OF_SUFFIX[found[2]]
    compatibility = section_of(code, ".nv.compat")
    extension = b""
    if number >= _COMPATIBILITY_SINCE:
        flags |= _COMPATIBILITY
        at = _ENTRY.size + _EXTENSION.size
        # One byte of zero comes before the section.
        extension = _padded(_EXTENSION.pack(at, len(compatibility)) + b"\0" + compatibility)
    payload = _padded(code)
    entry = _ENTRY.pack(
        _KIND_ELF, _ENTRY_VERSION, _ENTRY.size + len(extension), len(payload),
        0, _ENTRY.size if extension else 0, *_CODE_VERSION, number,
        0, 0, flags, 0, 0,
    )  # fmt: skip
    body = entry + extension + payload
    return _HEADER.pack(_MAGIC, 1, _HEADER.size, len(body)) + body


def _padded(data: bytes) -> bytes:
    """Return data with zeros up to the next multiple of eight bytes."""
    return data + bytes(-len(data) % 8)
