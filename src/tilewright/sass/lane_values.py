"""What the lanes of a block's warps hold in one register, as far as the code says.

A value is known exactly, or up to one unknown number that a warp's lanes share (a base address, a
kernel parameter, a loop counter): sums and multiples of such values stay so, and differences
between lanes are all that a shared access's wavefronts depend on.  Anything else is None: not
known, never guessed.  Arithmetic is modulo 2^32, as the registers'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = [
    "MASK",
    "UNIFORM",
    "LaneValue",
    "Lanes",
    "add",
    "join",
    "literal",
    "multiply",
    "negate",
    "pointwise",
    "same",
    "select",
]

Lanes = npt.NDArray[np.uint64]  # one row a warp, one column a lane; or 1 x 1 for the same in all
MASK = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, eq=False, slots=True)
class LaneValue:
    """One register of all lanes.

    Parameters
    ----------
    lanes : ndarray of uint64, shape (warps, 32) or (1, 1)
        The values modulo 2^32; where `exact` is false, their differences from
        lane 0 of the same warp.
    exact : bool
        Whether these are the values themselves.
    """

    lanes: Lanes
    exact: bool

    @property
    def uniform(self) -> bool:
        """Whether all lanes of each warp hold the same, known or not."""
        return bool((self.lanes == self.lanes[:, :1]).all())

    def relative(self) -> LaneValue:
        """Forget all but the differences between lanes."""
        return LaneValue((self.lanes - self.lanes[:, :1]) & MASK, False) if self.exact else self


Value = LaneValue | None
UNIFORM = LaneValue(np.zeros((1, 1), np.uint64), False)
"""The same number in all lanes of a warp, and nobody knows which."""


def literal(number: int) -> LaneValue:
    """Return a number that all lanes hold."""
    return LaneValue(np.full((1, 1), number & int(MASK), np.uint64), True)


def _made(lanes: Lanes, exact: bool) -> LaneValue:
    value = LaneValue(lanes & MASK, True)
    return value if exact else value.relative()


def add(first: Value, second: Value) -> Value:
    """Return the sum."""
    if first is None or second is None:
        return None
    return _made(first.lanes + second.lanes, first.exact and second.exact)


def negate(value: Value) -> Value:
    """Return the value with its sign changed."""
    return None if value is None else _made(~value.lanes + np.uint64(1), value.exact)


def multiply(first: Value, second: Value) -> Value:
    """Return the low 32 bits of the product.

    An unknown base times a number that the lanes share is another unknown base;
    times numbers that differ between lanes it would differ between lanes.
    """
    if first is None or second is None:
        return None
    if first.exact and second.exact:
        return _made(first.lanes * second.lanes, True)
    if first.uniform and second.uniform:
        return UNIFORM
    for factor in (first, second):
        if factor.exact and factor.uniform:
            return _made(first.lanes * second.lanes, False)
    return None


def pointwise(function: Callable[..., Lanes], *values: Value) -> Value:
    """Return a function of each lane's values; unknown ones give what all lanes share, or None."""
    known = [value for value in values if value is not None]
    if len(known) != len(values):
        return None
    if all(value.exact for value in known):
        return _made(function(*(value.lanes for value in known)), True)
    return UNIFORM if all(value.uniform for value in known) else None


def select(condition: Value, yes: Value, no: Value) -> Value:
    """Return `yes` in the lanes where the condition is 1, `no` where it is 0."""
    if yes is None or no is None:
        return None
    if yes.exact and no.exact and _equal(yes.lanes, no.lanes):
        return yes
    if condition is None:
        return None
    if not condition.exact:
        return join(yes, no) if condition.uniform else None
    if yes.exact and no.exact:
        return _made(np.where(condition.lanes == 1, yes.lanes, no.lanes), True)
    if not condition.uniform:
        return None
    lanes = np.where(condition.lanes == 1, yes.relative().lanes, no.relative().lanes)
    return LaneValue(lanes, False)


def join(first: Value, second: Value) -> Value:
    """Return what holds of both values, of which every warp has one or the other."""
    if first is None or second is None:
        return None
    if same(first, second):
        return first
    one, other = first.relative(), second.relative()
    return one if _equal(one.lanes, other.lanes) else None


def same(first: Value, second: Value) -> bool:
    """Whether as much is known of both, and the same."""
    if first is second:
        return True
    if first is None or second is None or first.exact != second.exact:
        return False
    return _equal(first.lanes, second.lanes)


def _equal(first: Lanes, second: Lanes) -> bool:
    return bool((first == second).all())
