"""Shared-memory wavefronts: passes that the 32 banks need for one warp's access.

Shared memory has 32 banks of 4 bytes; different words of one bank go in different passes, equal
words are broadcast (CUDA C++ Programming Guide, "Shared Memory", compute capability 5.x and later).
A warp's 64-bit access is served by half-warps and a 128-bit one by quarter-warps (NVIDIA's
documentation of older architectures); that neighbouring parts which read the same words share a
pass is assumed, not measured.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["wavefronts"]

BANKS = 32
WORD = 4
WARP = 32


def wavefronts(addresses: Sequence[int], bits: int) -> int:
    """Return the passes that a warp's shared-memory access takes.

    Parameters
    ----------
    addresses : sequence of int
        Byte address of each active lane, at most 32.
    bits : int
        32, 64 or 128, what each lane reads.

    Raises
    ------
    ValueError
        If `bits` is none of these, an address is negative or not aligned to
        the access, or there are no lanes or more than 32.
    """
    if bits not in (32, 64, 128):
        raise ValueError(f"bits={bits} is no shared access; give 32, 64 or 128")
    if not 1 <= len(addresses) <= WARP:
        raise ValueError(f"addresses={len(addresses)} lanes are no warp; give 1 to {WARP}")
    size = bits // 8
    for address in addresses:
        if address < 0 or address % size:
            raise ValueError(f"addresses={address} is not aligned; give multiples of {size} bytes")
    words = bits // 32
    lanes = WARP // words
    total, before = 0, set[int]()
    for start in range(0, len(addresses), lanes):
        part = {a // WORD + i for a in addresses[start : start + lanes] for i in range(words)}
        if part != before:
            total += _passes(part)
        before = part
    return total


def _passes(words: set[int]) -> int:
    """Return the most different words that any bank holds."""
    counts = [0] * BANKS
    for word in words:
        counts[word % BANKS] += 1
    return max(counts)
