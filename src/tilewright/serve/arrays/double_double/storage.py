"""How double-double arrays lie in memory: words, shapes, parts, places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from tilewright.double_double.arithmetic import Pair, namespace_of
from tilewright.precision import DOUBLE_DOUBLE
from tilewright.serve.arrays.double_double.entry import of_pairs, side_by_side, words_of
from tilewright.serve.checks import refuse_masked

__all__ = ["Storage"]


class Storage:
    """Words, shape, parts and place of a `DoubleDouble`."""

    words: Any
    is_complex: bool

    __array_ufunc__ = None  # NumPy's arrays leave mixed operations to this class
    __hash__ = None  # type: ignore[assignment]  # equality is element by element

    def __init__(self, value: Any, lo: Any = None) -> None:
        if isinstance(value, Storage) and lo is None:
            self.words, self.is_complex = value.words.copy(), value.is_complex
        else:
            self.words, self.is_complex = words_of(value) if lo is None else of_pairs(value, lo)

    @classmethod
    def _made(cls, parts: list[Pair]) -> Self:
        """Return the array with these words, copied side by side."""
        return cls.of_words(*side_by_side(parts))

    @classmethod
    def of_words(cls, words: Any, is_complex: bool = False) -> Self:
        """Return the array with these words, without a copy; they must be normalised.

        Raises
        ------
        ValueError, TypeError
            If they are not float64 with 2, or 2 x 2, behind the shape; or masked.
        """
        tail = (2, 2) if is_complex else (2,)
        refuse_masked(words=words)
        if not hasattr(words, "dtype"):
            raise TypeError(f"words is a {type(words).__name__}; give an array of float64")
        if words.dtype != np.float64 or tuple(words.shape[len(words.shape) - len(tail) :]) != tail:
            raise ValueError(
                f"words.shape={tuple(words.shape)} of {words.dtype} is not float64 ending in {tail}"
            )
        made = cls.__new__(cls)
        # A memory map's are NumPy's, too.
        made.words = np.asarray(words) if isinstance(words, np.ndarray) else words
        made.is_complex = is_complex
        return made

    # -- where it is -----------------------------------------------------------------

    def on_host(self) -> Self:
        """Return the array in NumPy's memory; itself if it is there."""
        if isinstance(self.words, np.ndarray):
            return self
        return self.of_words(self.words.get(), self.is_complex)

    def on_cuda(self) -> Self:
        """Return a copy on CuPy's current device."""
        try:
            import cupy
        except ImportError as problem:
            raise ImportError(
                f"on_cuda() needs CuPy: {problem}; install it for your CUDA"
            ) from None
        return self.of_words(cupy.asarray(np.ascontiguousarray(self.words)), self.is_complex)

    def on_opencl(self, queue: Any) -> Self:
        """Return a copy on the device of a pyopencl queue, for gemm()."""
        import pyopencl.array

        if not isinstance(queue, pyopencl.CommandQueue):
            raise TypeError(f"queue is a {type(queue).__name__}; give a pyopencl.CommandQueue")
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

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    @property
    def T(self) -> Self:
        """The transpose, a view."""
        axes = (*range(self.ndim)[::-1], *range(self.ndim, self.ndim + self._tail))
        return self.of_words(self.words.transpose(axes), self.is_complex)

    def reshape(self, *shape: Any) -> Self:
        """Return the elements in another shape: numbers, or a tuple of them."""
        if len(shape) == 1 and isinstance(shape[0], tuple):
            (shape,) = shape
        tail = self.words.shape[self.ndim :]
        try:
            words = self.words.reshape(*shape, *tail)
        except ValueError:
            raise ValueError(f"shape={shape} does not hold {self.size} elements") from None
        return self.of_words(words, self.is_complex)

    def copy(self) -> Self:
        """Return a copy in the same memory."""
        return type(self)(self)

    __copy__ = copy

    def __getitem__(self, key: Any) -> Self:
        return self.of_words(self.words[self._key(key)], self.is_complex)

    def __setitem__(self, key: Any, value: Any) -> None:
        other = self._like(value)
        if other.is_complex and not self.is_complex:
            raise ValueError("value is complex but the array is real")
        for part, given in zip(self._views(), other._as(self.is_complex), strict=True):
            for word, new in zip(part, given, strict=True):
                try:
                    word[key] = new
                except ValueError:
                    raise ValueError(
                        f"value.shape={other.shape} does not fit the part's {word[key].shape}"
                    ) from None

    def _key(self, key: Any) -> Any:
        """Return an index of `words`: what an ellipsis stands for ends before the words."""
        keys = key if isinstance(key, tuple) else (key,)
        if not any(k is Ellipsis for k in keys):
            keys = (*keys, ...)
        return keys + (slice(None),) * self._tail

    # -- parts -----------------------------------------------------------------------

    def _views(self) -> list[Pair]:
        """Return (hi, lo) of the real part, and of the imaginary one if there is one."""
        w = self.words
        namespace_of(w)  # refuses words without arithmetic
        if not self.is_complex:
            return [(w[..., 0], w[..., 1])]
        return [(w[..., 0, 0], w[..., 0, 1]), (w[..., 1, 0], w[..., 1, 1])]

    def _as(self, is_complex: bool) -> list[Pair]:
        """Return `_views`, with zero as the imaginary part of a real array if one is wanted."""
        parts = self._views()
        if is_complex and not self.is_complex:
            nothing = namespace_of(self.words).zeros_like(parts[0][0])
            parts = [*parts, (nothing, nothing)]
        return parts

    def _like(self, other: Any) -> Self:
        """Return `other` as a DoubleDouble in the same memory."""
        namespace_of(self.words)  # refuses words without arithmetic
        made = other if isinstance(other, type(self)) else type(self)(other)
        here, there = type(self.words), type(made.words)
        if here is not there and there is np.ndarray:
            return self.of_words(namespace_of(self.words).asarray(made.words), made.is_complex)
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
    def real(self) -> Self:
        """The real part, a view."""
        return self.of_words(self.words[..., 0, :]) if self.is_complex else self

    @property
    def imag(self) -> Self:
        """The imaginary part: a view, or zeros."""
        zeros = namespace_of(self.words).zeros_like
        return self.of_words(self.words[..., 1, :] if self.is_complex else zeros(self.words))

    def conj(self) -> Self:
        """Return the complex conjugate."""
        if not self.is_complex:
            return self
        re, (im, im_low) = self._views()
        return self._made([re, (-im, -im_low)])
