"""Parameters of the skinny stencil.  In capitals they are the kernel's macros."""

from __future__ import annotations

from tilewright.space import Parameter

__all__ = ["parameters"]


def parameters() -> tuple[Parameter, ...]:
    """Return what may be varied, the same for every variant and device.

    Sides and steps are named, so that a config says what its kernel does; all but the short side
    follow from the threads along k.
    """
    sides = tuple(2**power for power in range(11))
    return (
        Parameter(
            "short_m",
            (0, 1),
            "C's short side, 0: n, 1: m: the other one's operand is streamed",
            "none; the wrong one reads the long operand by columns of the short one",
        ),
        Parameter(
            "block_m",
            sides,
            "rows of C a thread block computes",
            "along the short side: registers, and work for rows that are not there",
        ),
        Parameter(
            "block_n",
            sides,
            "columns of C a thread block computes",
            "along the short side: registers, and work for columns that are not there",
        ),
        Parameter(
            "block_k",
            tuple(2**power for power in range(1, 14)),
            "steps in k for which all loads are on their way at once",
            "registers; waste where k is shorter",
        ),
        Parameter(
            "lanes_k",
            (2, 8, 16, 32, 64, 256),
            "threads along k, the other ones of a block along the long side",
            "sums of so many threads are added up; fewer rows a block use the short operand",
        ),
        Parameter(
            "min_blocks",
            (2, 3),
            "thread blocks that a multiprocessor holds at least (__launch_bounds__)",
            "registers of a thread",
        ),
    )
