"""`tilewright.DoubleDouble`: arrays of numbers that are the sum of two doubles; @ is gemm()."""

from __future__ import annotations

import io
import zlib
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tilewright.double_double.convert import DIGITS, rational_of, text_of
from tilewright.serve.arrays.double_double.entry import floats
from tilewright.serve.arrays.double_double.pairs import Pairs
from tilewright.serve.checks import refuse_masked
from tilewright.serve.matmul import matmul

__all__ = ["DoubleDouble"]


class DoubleDouble(Pairs):
    """An array of double-double numbers, about 32 decimal digits each.

    Parameters
    ----------
    value : array_like
        Numbers that `hi` takes: float64 or complex128 arrays, longdouble, clongdouble,
        integers; nested lists or object arrays of Python's, mpmath's or python-flint's
        numbers, of decimal text (complex as ``a+bj``) or of elements of a DoubleDouble; a
        python-flint matrix; another DoubleDouble.  Each element becomes the pair nearest to it.
    lo : array_like, optional
        Added to `value`, both floating-point arrays; the sum is normalised.

    Attributes
    ----------
    words : array
        float64, the array's shape with 2 behind it (high word, low word); complex arrays
        have 2 x 2 behind it (real and imaginary part first).  NumPy's, CuPy's or pyopencl's.
    is_complex : bool
        Whether elements have an imaginary part.

    Raises
    ------
    ValueError
        If something is not a number, or shapes do not fit.
    TypeError
        If `value` or `lo` is a masked array.

    Notes
    -----
    Arithmetic is element by element with broadcasting; bounds on its errors are in
    `tilewright.double_double.arithmetic`.  Where a result is not finite it is IEEE's.
    """

    @classmethod
    def from_float64(cls, x: Any) -> Self:
        """Return float64 or complex128 numbers as they are."""
        return cls(floats("x", x))

    @classmethod
    def from_longdouble(cls, x: Any) -> Self:
        """Return longdouble or clongdouble numbers as they are."""
        refuse_masked(x=x)
        return cls(np.asarray(x))

    @classmethod
    def from_strings(cls, x: Any) -> Self:
        """Return the pairs nearest to decimal texts."""
        refuse_masked(x=x)
        return cls(np.asarray(x, dtype=object))

    @classmethod
    def from_mpmath(cls, x: Any) -> Self:
        """Return the pairs nearest to mpmath's numbers, in lists, arrays or a matrix."""
        return cls(x)

    @classmethod
    def from_flint(cls, x: Any) -> Self:
        """Return the pairs nearest to python-flint's numbers or (midpoints of) a matrix."""
        return cls(x)

    def __matmul__(self, other: Any) -> Self:
        """Return `tilewright.matmul`, where one operand may be real and the other complex."""
        a, b = self, self._like(other)
        if a.is_complex != b.is_complex:
            a, b = (x._made(x._as(True)) for x in (a, b))
        made: Self = matmul(a, b)
        return made

    def __rmatmul__(self, other: Any) -> Self:
        return self._like(other) @ self

    def to_float64(self) -> Any:
        """Return the nearest doubles: the high words."""
        return self.hi.copy()

    def to_longdouble(self) -> NDArray[Any]:
        """Return the sums of the words in the machine's long double."""
        host = self.on_host()
        wide = np.clongdouble if self.is_complex else np.longdouble
        total: NDArray[Any] = host.hi.astype(wide) + host.lo.astype(wide)
        return total

    def _elements(self, make: Any) -> NDArray[Any]:
        """Return an object array of what `make(hi, lo)` makes of each real part."""
        host = self.on_host()
        made = np.empty(host.words.shape[:-1], dtype=object)
        for at in np.ndindex(made.shape):
            made[at] = make(*map(float, host.words[at]))
        return made

    def to_strings(self, digits: int = DIGITS) -> NDArray[Any]:
        """Return decimal texts; complex numbers as ``a+bj``.

        Raises
        ------
        ValueError
            If `digits` is no number of digits.
        """
        if not isinstance(digits, Integral) or digits < 1:
            raise ValueError(f"digits={digits!r} is no number of digits; give 1 or more")
        digits = int(digits)
        texts = self._elements(lambda hi, lo: text_of(hi, lo, digits))
        if not self.is_complex:
            return texts
        joined: NDArray[Any] = np.empty(self.shape, dtype=object)
        for at in np.ndindex(self.shape):
            re, im = texts[at]
            joined[at] = re + ("" if im.startswith("-") else "+") + im + "j"
        return joined

    def to_mpmath(self) -> NDArray[Any]:
        """Return an object array of mpmath's numbers, exact if mpmath works with 107 bits."""
        import mpmath

        parts = self._elements(lambda hi, lo: mpmath.mpf(hi) + mpmath.mpf(lo))
        if not self.is_complex:
            return parts
        whole = np.frompyfunc(mpmath.mpc, 2, 1)(parts[..., 0], parts[..., 1])
        return np.asarray(whole, dtype=object)

    def to_flint(self) -> Any:
        """Return python-flint's ``fmpq_mat`` of a real matrix, exact.

        Raises
        ------
        ValueError
            If this is not a real matrix of finite numbers.
        """
        import flint

        if self.is_complex or self.ndim != 2 or not np.isfinite(self.on_host().words).all():
            raise ValueError("to_flint() takes a real matrix of finite numbers")
        exact = self._elements(rational_of)
        return flint.fmpq_mat(
            [[flint.fmpq(x.numerator, x.denominator) for x in row] for row in exact]
        )

    def save(self, path: str | Path) -> None:
        """Write an .npz file with arrays ``hi`` and ``lo``, all of it or nothing."""
        from tilewright.paths import write_atomically

        buffer = io.BytesIO()
        host = self.on_host()
        np.savez(buffer, hi=host.hi, lo=host.lo)
        write_atomically(path, buffer.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read an .npz file that `save` wrote; nothing in it is unpickled.

        Raises
        ------
        ValueError
            If the file holds something else.
        OSError
            If it cannot be read.
        """
        from tokenize import TokenError
        from zipfile import BadZipFile

        wrong: tuple[type[Exception], ...] = (BadZipFile, zlib.error, EOFError, TypeError)
        wrong += ValueError, AttributeError, SyntaxError, TokenError  # of a header's text
        wrong += NotImplementedError, RuntimeError  # of compressions, versions and encryption
        try:
            with open(path, "rb") as file:
                words = np.load(file, allow_pickle=False)
                if not isinstance(words, np.lib.npyio.NpzFile):
                    raise ValueError("it holds one array")
                for name in ("hi", "lo"):
                    if name not in words:
                        raise ValueError(f"it has no {name}")
                return cls(words["hi"], words["lo"])
        except wrong as problem:
            raise ValueError(f"{path} is not a double-double .npz file: {problem}") from None
