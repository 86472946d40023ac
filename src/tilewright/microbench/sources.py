"""Kernel sources of microbenchmarks: files in ``kernels/``, compiled after a dialect's prelude."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.stencil import Dialect, Source
from tilewright.stencil.source_files import read_source

__all__ = ["FACTOR", "OFFSET", "kernel_file", "kernel_source", "words_sum"]

# Arrays are filled with w * FACTOR + OFFSET modulo 2^32, w the word's number: an odd factor near
# 2^32 / golden ratio (Knuth, volume 3, section 6.4) spreads neighbours over all bits.
FACTOR, OFFSET = 2654435769, 12345


def kernel_file(name: str) -> str:
    """Return a file of ``kernels/`` with its includes in place."""
    return read_source(f"kernels/{name}", "tilewright.microbench")


def kernel_source(
    dialect: Dialect,
    entry: str,
    defines: Mapping[str, int | str],
    real: str = "",
    dynamic_shared_bytes: int = 0,
) -> Source:
    """Return the kernel `entry` of the file ``entry.cl`` after the preludes it needs.

    Parameters
    ----------
    dialect : Dialect
        ``"cuda"`` or ``"opencl"``.
    entry : str
        Name of the kernel and of its file.
    defines : Mapping
        Macros.
    real : {"", "s", "d"}
        Real precision whose prelude comes first, for a source in terms of REAL.
    dynamic_shared_bytes : int
        Asked for at launch besides; see `tilewright.microbench.timing.alone`.
    """
    prelude = read_source(f"prelude/dialect_{dialect}.h")
    if real:
        prelude += read_source(f"prelude/{real}.h")
    macros = {"FACTOR": f"{FACTOR}u", "OFFSET": f"{OFFSET}u", **defines}
    return Source(prelude + kernel_file(f"{entry}.cl"), macros, entry, dynamic_shared_bytes)


def words_sum(count: int) -> int:
    """Return the sum modulo 2^32 of the first `count` words of a filled array."""
    return (FACTOR * (count * (count - 1) // 2) + OFFSET * count) % 2**32
