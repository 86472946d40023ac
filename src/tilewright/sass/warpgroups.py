"""Warpgroup multiplies in machine code: how many run between two waits.

A compiler that cannot prove that sums stay untouched while multiplies are under way waits after
every one of them (ptxas says so, C7510 to C7520, but NVRTC keeps what ptxas says to itself from
a process's second compilation on).  The code shows it::

    WARPGROUP.ARRIVE                     WARPGROUP.ARRIVE
    HGMMA  HGMMA  HGMMA  HGMMA           HGMMA
    WARPGROUP.DEPBAR                     WARPGROUP.DEPBAR, WARPGROUP.ARRIVE
                                         HGMMA
                                         ...
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.sass.instruction import Instruction

__all__ = ["MULTIPLIES", "WarpgroupLoop", "multiply_runs"]

MULTIPLIES = frozenset(("HGMMA", "IGMMA", "QGMMA"))


def multiply_runs(instructions: Iterable[Instruction]) -> tuple[int, ...]:
    """Return how many multiplies stand in each run without a wait, in the order of the code.

    Parameters
    ----------
    instructions : iterable of Instruction
        A kernel's machine code, as `tilewright.sass.decode` gives it.
    """
    runs = [0]
    for instruction in instructions:
        if instruction.mnemonic in MULTIPLIES:
            runs[-1] += 1
        elif instruction.mnemonic == "WARPGROUP" and runs[-1]:
            runs.append(0)
    return tuple(run for run in runs if run)


@dataclass(frozen=True)
class WarpgroupLoop:
    """What a loop of warpgroup multiplies asks of the tensor cores in a trip.

    Parameters
    ----------
    runs : tuple of int
        Multiplies between two waits, as `multiply_runs` gives them.
    cycles : float
        Cycles of each tensor core, operands and sums never waited for.
    """

    runs: tuple[int, ...]
    cycles: float

    @property
    def multiplies(self) -> int:
        """Multiplies of a trip."""
        return sum(self.runs)

    @property
    def verdict(self) -> str:
        """Return one line: how they follow each other, and where their limits are told."""
        runs = ", ".join(map(str, sorted(set(self.runs))))
        return (
            f"{self.multiplies} warpgroup multiplies a trip over k, {runs} between two waits:"
            f" {self.cycles:.0f} cycles of a tensor core, which other warpgroups fill too;"
            " what limits them is not in the loop, see: tilewright bound --arithmetic"
        )
