"""What an instance costs that lacks some of what a problem's launch mode asks for.

An instance is a kernel compiled in one launch mode.  Any is right for any problem; where the one
for the problem's launch mode is not there, the nearest serves, and takes longer.
``core/native/choose.c`` reckons alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.stencil.geometry import MODES, Mode

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["NOT_CLAMPED", "NOT_SCALAR", "NOT_STAGED", "lacking", "next_best", "slower"]

# What a kernel's time counts for where its instance for the problem's launch mode is not there, and
# what serves lacks scalar copies or clamped loads: so many times, geometric means of 7,800
# launches of S, D, C and Z on an H100 (1.26 to 1.43, 1.06 to 1.16).
NOT_SCALAR, NOT_CLAMPED = 1.4, 1.15

# Where it lacks staged results, nanoseconds more for a million elements of C: 3 % of such launches
# in the mean, but SGEMM TN 11359 x 7219 x 72 took 480 us more on an H100.
NOT_STAGED = 6000.0

# Modes that are taken away from a problem's, one set after another, until there is machine code.
_STAGED, _CLAMPED, _SCALAR = (
    one.number for one in (Mode(staged=True), Mode(clamped=True), Mode(scalar=True))
)
_DROPPED = (0, _STAGED, _CLAMPED, _STAGED | _CLAMPED, _STAGED | _CLAMPED | _SCALAR)

# By what an instance lacks, a mode's number: the dearest of it.
_SLOWER = np.array(
    [
        NOT_SCALAR if lacks & _SCALAR
        else NOT_CLAMPED if lacks & _CLAMPED
        else 1.0
        for lacks in range(len(MODES))
    ]
)  # fmt: skip


def next_best(wanted: int) -> tuple[int, ...]:
    """Return the numbers of the instances that may serve a launch mode, the nearest first."""
    return tuple(dict.fromkeys(wanted & ~dropped for dropped in _DROPPED))


def lacking(compiled: NDArray[np.bool_], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what the instances lack that would serve.

    Parameters
    ----------
    compiled : array
        Whether there is machine code of each of `MODES`, a row a kernel.
    wanted : array
        The number of the launch mode, for each kernel.

    Returns
    -------
    array
        The number of a mode for each kernel: 0 where it has the instance.
    """
    rows = np.arange(len(wanted))
    lacks = np.full_like(wanted, _SCALAR)  # where there is no machine code at all
    for dropped in reversed(_DROPPED):
        lacks = np.where(compiled[rows, wanted & ~dropped], wanted & dropped, lacks)
    return lacks


def slower(ns: NDArray[np.float64], lacks: NDArray[np.int64], area: Any) -> NDArray[np.float64]:
    """Return the times to expect of instances that lack something.

    Parameters
    ----------
    ns : array
        Of the instances that lack nothing.
    lacks : array
        As `lacking` has it.
    area : float or array of float
        Elements of C.
    """
    more = np.where(lacks & _STAGED > 0, NOT_STAGED, 0.0)
    made: NDArray[np.float64] = ns * _SLOWER[lacks] + area * 1e-6 * more
    return made
