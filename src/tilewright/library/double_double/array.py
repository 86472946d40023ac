"""`tilewright.DoubleDouble`: arrays of numbers that are the sum of two doubles."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.double_double import normalised
from tilewright.double_double.arithmetic import Pair
from tilewright.double_double.convert import pair_of
from tilewright.library.double_double.conversions import Conversions
from tilewright.library.double_double.operators import Operators
from tilewright.precision import DOUBLE_DOUBLE

__all__ = ["DoubleDouble"]


class DoubleDouble(Conversions, Operators):
    """An array of double-double numbers, about 32 decimal digits each.

    Parameters
    ----------
    value : array_like
        Numbers that `hi` takes: float64 or complex128 arrays, longdouble, clongdouble,
        integers; nested lists or object arrays of Python's, mpmath's or python-flint's
        numbers or of decimal text; a python-flint matrix; another DoubleDouble.  Each
        element becomes the pair nearest to it.
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

    Notes
    -----
    Arithmetic is element by element with broadcasting; bounds on its errors are in
    `tilewright.double_double.arithmetic`.  Where a result is not finite it is IEEE's.
    """

    __array_ufunc__ = None  # NumPy's arrays leave mixed operations to this class
    __hash__ = None  # type: ignore[assignment]  # equality is element by element

    def __init__(self, value: Any, lo: Any = None) -> None:
        if isinstance(value, DoubleDouble) and lo is None:
            self.words, self.is_complex = value.words.copy(), value.is_complex
            return
        if lo is not None:
            high, low = np.broadcast_arrays(_floats("value", value), _floats("lo", lo))
            made = made_of([normalised(*one) for one in zip(_parts(high), _parts(low), strict=True)])
        else:
            made = _of_anything(value)
        self.words, self.is_complex = made.words, made.is_complex

    @classmethod
    def of_words(cls, words: Any, is_complex: bool = False) -> DoubleDouble:
        """Return the array with these words, without a copy; they must be normalised.

        Raises
        ------
        ValueError
            If they are not float64 with 2, or 2 x 2, behind the shape.
        """
        tail = (2, 2) if is_complex else (2,)
        if words.dtype != np.float64 or tuple(words.shape[len(words.shape) - len(tail) :]) != tail:
            raise ValueError(
                f"words.shape={tuple(words.shape)} of {words.dtype} is not float64 ending in {tail}"
            )
        made = cls.__new__(cls)
        made.words, made.is_complex = words, is_complex
        return made

    # -- where it is -----------------------------------------------------------------

    def on_host(self) -> DoubleDouble:
        """Return the array in NumPy's memory; itself if it is there."""
        if isinstance(self.words, np.ndarray):
            return self
        return self.of_words(self.words.get(), self.is_complex)

    def on_cuda(self) -> DoubleDouble:
        """Return a copy on CuPy's current device."""
        import cupy

        return self.of_words(cupy.asarray(np.ascontiguousarray(self.words)), self.is_complex)

    def on_opencl(self, queue: Any) -> DoubleDouble:
        """Return a copy on the device of a pyopencl queue, for gemm()."""
        import pyopencl.array

        words = pyopencl.array.to_device(queue, np.ascontiguousarray(self.words))
        return self.of_words(words, self.is_complex)

    # -- shape -----------------------------------------------------------------------

    @property
    def _tail(self) -> int:
        return 2 if self.is_complex else 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, without the words."""
        return tuple(self.words.shape[: -self._tail])

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The structured type of an element in memory."""
        return DOUBLE_DOUBLE["w" if self.is_complex else "e"].dtype

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a double-double scalar has no length")
        return self.shape[0]

    @property
    def T(self) -> DoubleDouble:  # noqa: N802  # NumPy's name
        """The transpose, a view."""
        axes = (*range(self.ndim)[::-1], *range(self.ndim, self.ndim + self._tail))
        return self.of_words(self.words.transpose(axes), self.is_complex)

    def reshape(self, *shape: int) -> DoubleDouble:
        """Return the elements in another shape."""
        tail = self.words.shape[self.ndim :]
        return self.of_words(self.words.reshape(*shape, *tail), self.is_complex)

    def copy(self) -> DoubleDouble:
        """Return a copy in the same memory."""
        return DoubleDouble(self)

    def __getitem__(self, key: Any) -> DoubleDouble:
        return self.of_words(self.words[self._key(key)], self.is_complex)

    def __setitem__(self, key: Any, value: Any) -> None:
        other = self._like(value)
        if other.is_complex and not self.is_complex:
            raise ValueError("value is complex but the array is real")
        for part, given in zip(self._views(), other._as(self.is_complex), strict=True):
            for word, new in zip(part, given, strict=True):
                word[key] = new

    def _key(self, key: Any) -> Any:
        """Return an index of `words`: what an ellipsis stands for ends before the words."""
        keys = key if isinstance(key, tuple) else (key,)
        return keys + (slice(None),) * self._tail if any(k is Ellipsis for k in keys) else keys

    # -- parts -----------------------------------------------------------------------

    def _views(self) -> list[Pair]:
        """Return (hi, lo) of the real part, and of the imaginary one if there is one."""
        w = self.words
        if not hasattr(w, "__array_namespace__"):
            raise TypeError(
                f"{type(w).__module__}.{type(w).__name__} has no arithmetic here;"
                " bring it to the host with .on_host()"
            )
        if not self.is_complex:
            return [(w[..., 0], w[..., 1])]
        return [(w[..., 0, 0], w[..., 0, 1]), (w[..., 1, 0], w[..., 1, 1])]

    def _as(self, is_complex: bool) -> list[Pair]:
        """Return `_views`, with zero as the imaginary part of a real array if one is wanted."""
        parts = self._views()
        if is_complex and not self.is_complex:
            parts = [*parts, tuple(0 * word for word in parts[0])]  # type: ignore[list-item]
        return parts

    def _like(self, other: Any) -> DoubleDouble:
        """Return `other` as a DoubleDouble in the same memory."""
        made = other if isinstance(other, DoubleDouble) else DoubleDouble(other)
        here, there = type(self.words), type(made.words)
        if here is not there and there is np.ndarray:
            return self.of_words(
                self.words.__array_namespace__().asarray(made.words), made.is_complex
            )
        return made

    def _word(self, index: int) -> Any:
        parts = self._views()
        if not self.is_complex:
            return parts[0][index]
        made = parts[0][index].astype(np.complex128)
        made.imag = parts[1][index]
        return made

    @property
    def hi(self) -> Any:
        """High words: float64 (a view), or complex128."""
        return self._word(0)

    @property
    def lo(self) -> Any:
        """Low words: float64 (a view), or complex128."""
        return self._word(1)

    @property
    def real(self) -> DoubleDouble:
        """The real part, a view."""
        return self.of_words(self.words[..., 0, :]) if self.is_complex else self

    @property
    def imag(self) -> DoubleDouble:
        """The imaginary part: a view, or zeros."""
        return self.of_words(self.words[..., 1, :]) if self.is_complex else made_of(
            [tuple(0 * w for w in self._views()[0])]  # type: ignore[list-item]
        )  # fmt: skip

    def conj(self) -> DoubleDouble:
        """Return the complex conjugate."""
        if not self.is_complex:
            return self
        re, (im, im_low) = self._views()
        return made_of([re, (-im, -im_low)])


def made_of(parts: list[Pair]) -> DoubleDouble:
    """Return the array with these words, copied side by side: real part, imaginary part."""
    namespace = parts[0][0].__array_namespace__()
    stacked = [namespace.stack(part, axis=-1) for part in parts]
    whole = stacked[0] if len(parts) == 1 else namespace.stack(stacked, axis=-2)
    return DoubleDouble.of_words(whole, len(parts) == 2)


def _floats(name: str, x: Any) -> NDArray[Any]:
    """Return float64 or complex128; refuse what would lose digits."""
    array = np.asarray(x)
    if array.dtype.kind not in "biufc" or array.dtype.itemsize > 8 * (1 + (array.dtype.kind == "c")):
        raise ValueError(f"{name} has dtype {array.dtype}; give float64 or complex128")
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8:
        raise ValueError(f"{name} has dtype {array.dtype}, which float64 rounds; give it alone")
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _parts(x: NDArray[Any]) -> list[NDArray[Any]]:
    return [x.real, x.imag] if np.iscomplexobj(x) else [x]


def _of_anything(value: Any) -> DoubleDouble:
    """Return what `DoubleDouble(value)` says."""
    if hasattr(value, "__dlpack_device__") and not isinstance(value, np.ndarray | np.generic):
        if value.dtype != np.float64:  # CuPy's, say
            raise ValueError(f"value has dtype {value.dtype}; give float64")
        return made_of([(value, 0 * value)])
    if hasattr(value, "tolist") and not isinstance(value, np.ndarray | np.generic):
        value = value.tolist()  # mpmath's and python-flint's matrices
    elif hasattr(value, "table"):
        value = value.table()
    array = np.asarray(value)
    if array.dtype in (DOUBLE_DOUBLE["e"].dtype, DOUBLE_DOUBLE["w"].dtype):
        return _of_structured(array)
    if array.dtype.kind in "OUS":
        return _of_objects(np.asarray(value, dtype=object))
    wide = array.dtype.kind in "iu" or array.dtype in (np.longdouble, np.clongdouble)
    parts = []
    for one in _parts(array if wide else _floats("value", array)):
        high = one.astype(np.float64)
        with np.errstate(invalid="ignore"):
            rest = one.astype(np.longdouble) - high if wide else 0 * high
        low = np.where(np.isfinite(high), rest, 0).astype(np.float64)
        parts.append(normalised(high, low))
    return made_of(parts)


def _of_structured(array: NDArray[Any]) -> DoubleDouble:
    flat = np.ascontiguousarray(array).view(np.float64)
    is_complex = array.dtype == DOUBLE_DOUBLE["w"].dtype
    tail = (2, 2) if is_complex else (2,)
    return DoubleDouble.of_words(flat.reshape(*array.shape, *tail).copy(), is_complex)


def _of_objects(array: NDArray[Any]) -> DoubleDouble:
    """Return the pairs nearest to numbers or texts in an object array."""
    is_complex = any(_is_complex(x) for x in array.flat)
    words = np.empty((*array.shape, 2, 2) if is_complex else (*array.shape, 2))
    for at in np.ndindex(array.shape):
        x = array[at]
        if isinstance(x, bytes):
            x = x.decode()
        if is_complex:
            re, im = (x.real, x.imag) if _is_complex(x) else (x, 0.0)
            words[at] = pair_of(re() if callable(re) else re), pair_of(im() if callable(im) else im)
        else:
            words[at] = pair_of(x)
    return DoubleDouble.of_words(words, is_complex)


def _is_complex(x: Any) -> bool:
    return isinstance(x, complex | np.complexfloating) or type(x).__name__ in ("mpc", "acb")
