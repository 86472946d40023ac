"""What the lanes of a block's warps hold in one register, as far as the code says.

A value is known exactly, or but for a number that lanes share: a base address, a kernel parameter,
a loop counter.  Of that number the largest power of two that surely divides it is kept, because
kernels exchange bits of addresses below a base's alignment, and lanes that share it, because those
of different rows of a matrix are an unknown leading dimension apart.  Sums and multiples of such
values stay so, and differences between lanes are all that a shared access's wavefronts depend on.
Anything else is None: not known, never guessed.  Arithmetic is modulo 2^32, as the registers'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = [
    "EXACT",
    "MASK",
    "UNIFORM",
    "UNWRITTEN",
    "LaneValue",
    "Lanes",
    "add",
    "bitwise",
    "join",
    "literal",
    "multiply",
    "negate",
    "pointwise",
    "same",
    "select",
    "shift_right",
]

Lanes = npt.NDArray[np.uint64]  # one row a warp, one column a lane; or 1 x 1 for the same in all
EXACT = 1 << 32
"""What divides nothing but 0 modulo 2^32."""
MASK = np.uint64(EXACT - 1)
_ALONE: Lanes = np.zeros((1, 1), np.uint64)
_WARP = 32


@dataclass(frozen=True, eq=False, slots=True)
class LaneValue:
    """One register of all lanes: ``lanes`` plus a number that is not known, modulo 2^32.

    Parameters
    ----------
    lanes : ndarray of uint64, shape (warps, 32) or (1, 1)
        The values; of those that share an unknown number up to a multiple of
        `step`, so that the first of them is below it.
    step : int
        A power of two that divides the unknown numbers; `EXACT` if there are
        none.
    first : ndarray of uint64, shape (warps, 32) or (1, 1)
        Of each lane, the first lane of its warp that shares its unknown number;
        0 for all, mostly.
    """

    lanes: Lanes
    step: int
    first: Lanes = field(default_factory=lambda: _ALONE)

    @property
    def exact(self) -> bool:
        """Whether these are the values themselves."""
        return self.step == EXACT

    @property
    def shared(self) -> bool:
        """Whether all lanes of a warp share what is unknown."""
        return self.exact or not self.first.any()

    @property
    def uniform(self) -> bool:
        """Whether all lanes of each warp hold the same, known or not."""
        return self.shared and bool((self.lanes == self.lanes[:, :1]).all())


Value = LaneValue | None
UNIFORM = LaneValue(_ALONE, 1)
"""The same number in all lanes of a warp, and nobody knows which."""


def literal(number: int) -> LaneValue:
    """Return a number that all lanes hold."""
    return LaneValue(np.full((1, 1), number & int(MASK), np.uint64), EXACT)


UNWRITTEN = literal(0)
"""What a register holds that nothing wrote yet: no result depends on it, so that any value will do.

Where another way wrote it, that is what it holds (`join`)."""


def made(lanes: Lanes, step: int, first: Lanes = _ALONE) -> LaneValue:
    """Return a value, its unknown numbers as small as they can be taken."""
    lanes = lanes & MASK
    if step == EXACT:
        return LaneValue(lanes, EXACT)
    if not first.any():
        first, base = _ALONE, lanes[:, :1]
    else:
        lanes, first = np.broadcast_arrays(lanes, first)
        base = np.take_along_axis(lanes, first.astype(np.intp), axis=1)
    return LaneValue((lanes - (base & ~np.uint64(step - 1))) & MASK, step, first)


def _divides(numbers: Lanes) -> int:
    """Return the largest power of two that divides all of some numbers modulo 2^32."""
    bits = int(np.bitwise_or.reduce(numbers & MASK, axis=None))
    return bits & -bits or EXACT


def _apart(one: LaneValue, other: LaneValue) -> Lanes:
    """Return which lanes share the sum of two values' unknown numbers."""
    if one.shared or other.shared:
        return _ALONE if one.shared and other.shared else other.first if one.shared else one.first
    return _first(one.first * np.uint64(_WARP) + other.first)


def _first(names: Lanes) -> Lanes:
    """Return the first lane of each warp that has a lane's name."""
    equal = names[:, :, None] == names[:, None, :]
    found: Lanes = equal.argmax(axis=2).astype(np.uint64)
    return found


def add(one: Value, other: Value) -> Value:
    """Return the sum."""
    if one is None or other is None:
        return None
    return made(one.lanes + other.lanes, min(one.step, other.step), _apart(one, other))


def negate(value: Value) -> Value:
    """Return the value with its sign changed."""
    if value is None:
        return None
    return made(~value.lanes + np.uint64(1), value.step, value.first)


def multiply(one: Value, other: Value) -> Value:
    """Return the low 32 bits of the product.

    An unknown number times one that the lanes share is another one that they share; times numbers
    that differ between lanes it is shared by those for which these are equal.
    """
    if one is None or other is None:
        return None
    if one.exact and other.exact:
        return made(one.lanes * other.lanes, EXACT)
    if one.uniform:
        one, other = other, one
    if not other.uniform:
        return None
    steps = _divides(one.lanes) * other.step, one.step * _divides(other.lanes)
    step = min(*steps, one.step * other.step, EXACT)
    if one.uniform or other.exact:
        return made(one.lanes * other.lanes, step, one.first)
    lanes = np.broadcast_to(one.lanes, (len(one.lanes), _WARP))
    names = (one.first << np.uint64(_WARP)) + lanes
    return made(lanes * other.lanes, step, _first(names))


def pointwise(function: Callable[..., Lanes], *values: Value) -> Value:
    """Return a function of each lane's values; unknown ones give what all lanes share, or None."""
    known = [value for value in values if value is not None]
    if len(known) != len(values):
        return None
    if all(value.exact for value in known):
        return made(function(*(value.lanes for value in known)), EXACT)
    return UNIFORM if all(value.uniform for value in known) else None


def bitwise(function: Callable[..., Lanes], *values: Value) -> Value:
    """Return a function of each bit of the values.

    Bits below what divides the unknown numbers are known.  Those above are, too, if the function
    gives them whatever the unknown ones are; or they are a value's own if it leaves them alone.
    """
    known = [value for value in values if value is not None]
    if len(known) != len(values):
        return None
    step = min(value.step for value in known)
    lanes = [value.lanes for value in known]
    if step == EXACT:
        return made(function(*lanes), EXACT)
    low, high = np.uint64(step - 1), np.uint64(EXACT - step)
    below: Lanes = function(*lanes) & low
    unknown = [place for place, value in enumerate(known) if not value.exact]
    if len(unknown) == 1:
        place = unknown[0]
        none, all_ones = (
            function(*(np.full_like(x, bits) if i == place else x for i, x in enumerate(lanes)))
            & high
            for bits in (np.uint64(0), MASK)
        )
        if (none == all_ones).all():
            return made(below | none, EXACT)
        if not none.any() and (all_ones == high).all():
            return made(below + (lanes[place] & high), step, known[place].first)
    if all(value.shared for value in known):
        above = [x & high for x in lanes]
        if all((x == x[:, :1]).all() for x in above):
            return made(below, step)
    return None


def shift_right(value: Value, by: int, signed: bool) -> Value:
    """Return the value divided by 2^by, by 0 to 31, rounded down; of its sign if so asked."""

    def shift(lanes: Lanes) -> Lanes:
        if not signed:
            return lanes >> np.uint64(by)
        shifted: Lanes = (
            (lanes.astype(np.uint32).view(np.int32) >> np.int32(by)).view(np.uint32)
        ).astype(np.uint64)
        return shifted

    if value is None or value.exact or (value.uniform and value.step <= 1 << by):
        return pointwise(shift, value)
    # What is above the unknown number's step is then the same in all lanes, whatever it is.
    if value.shared and value.step >= 1 << by and bool((value.lanes < value.step).all()):
        return made(value.lanes >> np.uint64(by), value.step >> by)
    return None


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
    if not ((yes.exact and no.exact) or (condition.uniform and yes.shared and no.shared)):
        return None
    lanes = np.where(condition.lanes == 1, yes.lanes, no.lanes)
    return made(lanes, min(yes.step, no.step))


def join(one: Value, other: Value) -> Value:
    """Return what holds of both values, of which every warp has one or the other."""
    if one is None or other is None:
        return None
    if one is UNWRITTEN or other is UNWRITTEN:
        return other if one is UNWRITTEN else one
    if same(one, other):
        return one
    first = other.first if one.exact else one.first
    if not (one.exact or other.exact or _equal(one.first, other.first)):
        return None
    more = one.lanes - other.lanes & MASK
    if first.any():
        more, first = np.broadcast_arrays(more, first)
        even = more == np.take_along_axis(more, first.astype(np.intp), axis=1)
    else:
        even = more == more[:, :1]
    if not even.all():
        return None
    return made(one.lanes, min(one.step, other.step, _divides(more)), first)


def same(one: Value, other: Value) -> bool:
    """Whether as much is known of both, and the same."""
    if one is other:
        return True
    if one is None or other is None or one.step != other.step:
        return False
    return _equal(one.lanes, other.lanes) and (one.exact or _equal(one.first, other.first))


def _equal(one: Lanes, other: Lanes) -> bool:
    return bool((one == other).all())
