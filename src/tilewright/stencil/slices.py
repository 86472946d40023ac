"""How many pieces the steps along k of each tile of C are cut into."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Slices"]

# Slices of a tile: 132 multiprocessors hold four blocks each, and a part of C is written and read
# for each of them.
_MOST_SLICES = 64

# Estimates for an H100, in cycles; no fit.  What a wave of blocks takes beside its steps along k, 4
# us; and bytes of parts that are written, and read again by another kernel, in a cycle: half of
# what costs have for the L2 (library/cycles.py), less the kernel's start.
_WAVE_CYCLES, _PART_BYTES_A_CYCLE = 8000, 1500


@dataclass(frozen=True)
class Slices:
    """How a launch's work may be cut along k: a block for each slice of each tile of C.

    Parameters
    ----------
    steps : int
        Along k, of a tile: at most so many slices.
    step_cycles : float
        That a multiprocessor takes for a step of all its blocks.
    part_bytes : int
        Of the sums that a block leaves.
    resident : int
        Blocks of a multiprocessor at a time.
    """

    steps: int
    step_cycles: float
    part_bytes: int
    resident: int

    def count(self, tiles: int, multiprocessors: int) -> int:
        """Return the slices of a tile: those that are expected to take the shortest time.

        Whole waves of blocks are what counts, and what a wave and a part cost besides.
        """
        at_once = self.resident * multiprocessors

        def cycles(slices: int) -> float:
            waves = -(-tiles * slices // at_once)
            wave = -(-self.steps // slices) * self.step_cycles + _WAVE_CYCLES
            return waves * wave + slices * tiles * self.part_bytes / _PART_BYTES_A_CYCLE

        return min(range(1, max(1, min(_MOST_SLICES, self.steps)) + 1), key=cycles)
