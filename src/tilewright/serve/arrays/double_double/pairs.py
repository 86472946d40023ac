"""Arithmetic of double-double arrays, element by element."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any, Self

import numpy as np

from tilewright.double_double import add, divide, multiply, root
from tilewright.double_double.arithmetic import Pair, namespace_of
from tilewright.double_double.convert import DIGITS, text_of
from tilewright.serve.arrays.double_double.storage import Storage

__all__ = ["Pairs"]


class Pairs(Storage):
    """Numbers of double-double: + - * / and comparisons with broadcasting, and norms.

    The other operand may be anything that `DoubleDouble` takes.  Bounds on errors are in
    `tilewright.double_double.arithmetic`; a complex product or quotient is made of real
    ones by the plain formulas.
    """

    def _both(self, other: Any) -> tuple[list[Pair], list[Pair]]:
        """Return the parts of both operands, both complex if one is."""
        mine = self
        theirs = mine._like(other)
        is_complex = mine.is_complex or theirs.is_complex
        return mine._as(is_complex), theirs._as(is_complex)

    def __neg__(self) -> Self:
        return self._made([_negative(part) for part in self._views()])

    def __pos__(self) -> Self:
        return self

    def __add__(self, other: Any) -> Self:
        return self._made([add(x, y) for x, y in zip(*self._both(other), strict=True)])

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        return self._made([add(x, _negative(y)) for x, y in zip(*self._both(other), strict=True)])

    def __rsub__(self, other: Any) -> Self:
        difference: Self = self - other
        return -difference

    def __mul__(self, other: Any) -> Self:
        return self._made(_product(*self._both(other)))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        return self._made(_quotient(*self._both(other)))

    def __rtruediv__(self, other: Any) -> Self:
        return self._made(_quotient(*self._both(other)[::-1]))

    # -- comparison ------------------------------------------------------------------

    def __eq__(self, other: Any) -> Any:
        if type(other) is int and other in (0, 1) and not (self.ndim or self.is_complex):
            # What every call asks of its scalars: pairs of both take 20 us.
            return (self.words[0] == other) & (self.words[1] == 0)
        try:
            pairs = self._both(other)
        except ValueError:
            return NotImplemented
        same = [(x[0] == y[0]) & (x[1] == y[1]) for x, y in zip(*pairs, strict=True)]
        return same[0] if len(same) == 1 else same[0] & same[1]

    def __ne__(self, other: Any) -> Any:
        same = self.__eq__(other)
        return same if same is NotImplemented else ~same

    def _order(self, other: Any, compare: Callable[[Any, Any], Any]) -> Any:
        x, y = self._both(other)
        if len(x) > 1:
            raise TypeError("complex numbers have no order")
        equal = x[0][0] == y[0][0]
        return (~equal & compare(x[0][0], y[0][0])) | (equal & compare(x[0][1], y[0][1]))

    def __lt__(self, other: Any) -> Any:
        return self._order(other, lambda x, y: x < y)

    def __le__(self, other: Any) -> Any:
        return self._order(other, lambda x, y: x <= y)

    def __gt__(self, other: Any) -> Any:
        return self._order(other, lambda x, y: x > y)

    def __ge__(self, other: Any) -> Any:
        return self._order(other, lambda x, y: x >= y)

    # -- sizes -----------------------------------------------------------------------

    def __abs__(self) -> Self:
        parts = self._views()
        if len(parts) == 1:
            return self._made([_absolute(parts[0])])
        namespace = namespace_of(parts[0][0])
        # Scaled by a power of two so that squares neither overflow nor underflow.
        scale, near = _near_one(parts)
        size = root(add(*(multiply(x, x) for x in near)))
        with np.errstate(all="ignore"):
            plain = namespace.hypot(parts[0][0], parts[1][0])
            finite = plain < np.inf
            words = (namespace.where(finite, size[0] * scale, plain),
                     namespace.where(finite, size[1] * scale, 0.0))  # fmt: skip
        return self._made([words])

    def sum(self, axis: int | tuple[int, ...] | None = None) -> Self:
        """Return the sum along an axis or several, or of all elements, added in pairs.

        Raises
        ------
        ValueError
            If an axis is no dimension, or one is given twice.
        """
        if axis is None:
            return self.reshape(self.size).sum(0)
        given = axis if isinstance(axis, tuple) else (axis,)
        for one in given:
            if not isinstance(one, Integral) or not -self.ndim <= one < self.ndim:
                raise ValueError(f"axis={axis!r} is none of {self.ndim} dimensions")
        axes = {int(one) % self.ndim for one in given}
        if len(axes) < len(given):
            raise ValueError(f"axis={axis!r} names a dimension twice; give each once")
        # Where nothing is added the result would share memory with the array.
        x = self.copy() if all(self.shape[one] == 1 for one in axes) else self
        for one in sorted(axes, reverse=True):
            x = x._sum_along(one)
        return x

    def _sum_along(self, axis: int) -> Self:
        x = self
        before = (slice(None),) * axis
        if x.shape[axis] == 0:
            kind = complex if x.is_complex else float
            return x._like(np.zeros(x.shape[:axis] + x.shape[axis + 1 :], kind))
        while x.shape[axis] > 1:
            half = x.shape[axis] // 2
            total = x[(*before, slice(0, half))] + x[(*before, slice(half, 2 * half))]
            if x.shape[axis] % 2:
                total[(*before, slice(0, 1))] = (
                    total[(*before, slice(0, 1))] + x[(*before, slice(2 * half, None))]
                )
            x = total
        return x[(*before, 0)]

    def norm(self, order: str | float = "fro") -> Self:
        """Return a norm as a double-double scalar.

        Parameters
        ----------
        order : {"fro", 1, inf, "max"}
            The root of the sum of squares, the largest sum of a column or of a row, or the
            largest element.

        Raises
        ------
        ValueError
            If there is no such norm, or 1 and inf are asked of what is no matrix.
        """
        size: Self = self.__abs__()
        if order == "fro":
            top = float(size.hi.max()) if size.size else 0.0
            scale = float(_power_of_two(np.float64(top)))
            with np.errstate(all="ignore"):  # an element beyond every double is infinite
                if np.isfinite(top):
                    size = self._made([(w[0] / scale, w[1] / scale) for w in size._views()])
                hi, lo = root((size * size).sum()._views()[0])
                return self._made([(hi * scale, lo * scale)])
        if order == "max":
            return size.reshape(size.size)._largest()
        if order in (1, np.inf) and size.ndim == 2:
            return size.sum(axis=0 if order == 1 else 1)._largest()
        raise ValueError(f"order={order!r} is no norm of shape {size.shape}; use fro, 1, inf, max")

    def _largest(self) -> Self:
        """Return the largest of a vector of numbers of 0 or more."""
        x = self
        if not x.size:
            return x._like(0.0)
        hi, lo = x._views()[0]
        namespace = namespace_of(hi)
        top = hi.max()
        at = namespace.argmax(namespace.where((hi == top) | (top != top), lo, -np.inf))
        return x[int(at)] if bool(top == top) else x._like(float("nan"))

    # -- scalars and text --------------------------------------------------------------

    def __float__(self) -> float:
        if self.is_complex:
            raise TypeError("a complex number is no float; take .real")
        return float(self.hi)

    def __complex__(self) -> complex:
        return complex(self.hi)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __repr__(self) -> str:
        x = self.on_host()
        kind = "complex " if x.is_complex else ""
        flat = x.words.reshape(x.size, 4 if x.is_complex else 2)

        def one(index: int) -> str:
            words = [float(w) for w in flat[index]]
            texts = [text_of(words[i], words[i + 1], DIGITS) for i in range(0, len(words), 2)]
            if len(texts) == 1:
                return texts[0]
            return texts[0] + ("" if texts[1].startswith("-") else "+") + texts[1] + "j"

        # NumPy lays out the numbers of the elements; each is shown as its element.
        numbers = np.arange(x.size).reshape(x.shape)
        text = np.array2string(numbers, separator=", ", formatter={"int": one})  # type: ignore[arg-type]
        return f"{kind}DoubleDouble({text})"


def _negative(x: Pair) -> Pair:
    return -x[0], -x[1]


def _absolute(x: Pair) -> Pair:
    namespace = namespace_of(x[0])
    below = x[0] < 0
    return abs(x[0]), namespace.where(below, -x[1], x[1])


def _power_of_two(x: Any) -> Any:
    """Return a power of two near x; 1 where x is zero or not finite."""
    namespace = namespace_of(x)
    usable = (x > 0) & (x < np.inf)
    _, exponent = namespace.frexp(namespace.where(usable, x, 1.0))
    # ldexp(1, 1024) would overflow.
    return namespace.ldexp(1.0, namespace.minimum(exponent, 1023))


def _product(x: list[Pair], y: list[Pair]) -> list[Pair]:
    if len(x) == 1:
        return [multiply(x[0], y[0])]
    re = add(multiply(x[0], y[0]), _negative(multiply(x[1], y[1])))
    im = add(multiply(x[0], y[1]), multiply(x[1], y[0]))
    return [re, im]


def _quotient(x: list[Pair], y: list[Pair]) -> list[Pair]:
    if len(x) == 1:
        return [divide(x[0], y[0])]
    (one, x), (other, y) = _near_one(x), _near_one(y)
    size = _product(y, [y[0], _negative(y[1])])[0]
    top = _product(x, [y[0], _negative(y[1])])
    with np.errstate(all="ignore"):
        scale = one / other
        return [(w[0] * scale, w[1] * scale) for w in (divide(part, size) for part in top)]


def _near_one(x: list[Pair]) -> tuple[Any, list[Pair]]:
    """Return a power of two and complex numbers that times it are x, the larger part near 1."""
    scale = _power_of_two(namespace_of(x[0][0]).maximum(abs(x[0][0]), abs(x[1][0])))
    with np.errstate(all="ignore"):
        return scale, [(w[0] / scale, w[1] / scale) for w in x]
