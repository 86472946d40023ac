"""Precisions: how an element is stored, and what one multiply-add on it costs.

A new precision is one row here and one prelude in ``stencil/prelude``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

__all__ = [
    "DOUBLE_DOUBLE",
    "PRECISIONS",
    "SHORT",
    "Precision",
    "double_double_row",
    "dtype_of",
    "letters_of",
    "precision",
    "precision_of",
]


@dataclass(frozen=True)
class Precision:
    """One row of BLAS's first letter.

    Parameters
    ----------
    letter : str
        BLAS's letter in lower case, or one of `DOUBLE_DOUBLE`'s.
    name : str
        The name people use for GEMM in this precision, such as ``"SGEMM"``.
    dtype_name : str
        NumPy's name of the element type; of a double-double, its words' names with commas.
    real_name : str
        NumPy's name of the floating-point type that an operand's element is made of.
    words : int
        Real words an element holds: 1 for real, 2 for complex.
    flops : int
        Floating-point operations that one multiply-add of elements is counted
        as: 2 for real, 8 for complex (4 multiplications, 4 additions).
    unit_roundoff : float
        Largest relative error of one real operation: of a correctly rounded one, or what
        is proven of a double-double one.
    parts : int
        Numbers of the type `real_name` that one real is the sum of: 1, or 2 in double-double.
    result_name : str
        NumPy's name of C's elements; empty where C is of the operands' type.
    sum_name : str
        NumPy's name of the type of sums, and of alpha and beta; empty where they are of the
        operands' type.
    """

    letter: str
    name: str
    dtype_name: str
    real_name: str
    words: int
    flops: int
    unit_roundoff: float
    parts: int = 1
    result_name: str = ""
    sum_name: str = ""

    def __hash__(self) -> int:
        """Return what tells precisions apart: every plan is looked up by a problem's."""
        return hash(self.letter)

    @cached_property
    def dtype(self) -> np.dtype:
        """The NumPy dtype of A's and B's elements; structured in double-double."""
        if self.parts == 1:
            return dtype_of(self.dtype_name)
        return np.dtype([("re", _PAIR), ("im", _PAIR)]) if self.is_complex else _PAIR

    @cached_property
    def real_dtype(self) -> np.dtype:
        """The NumPy dtype of the floating-point type that the element is made of."""
        return dtype_of(self.real_name)

    @cached_property
    def largest(self) -> float:
        """The largest finite number of that type."""
        return float(np.finfo(self.real_dtype).max)

    @property
    def portfolio(self) -> str:
        """Name of the portfolio that has its kernels: one of all operands of tensor cores.

        Their machine code differs in a few instructions and is small where it is compressed
        together.
        """
        return "short" if self.is_short else self.letter

    @property
    def is_short(self) -> bool:
        """Whether tensor cores multiply operands, of which they take fewer bits than of sums."""
        return self.sum_name != ""

    @property
    def is_whole(self) -> bool:
        """Whether sums, alpha and beta are integers, exact modulo 2^32."""
        return self.sum_name == "int32"

    @property
    def reads_along_k(self) -> bool:
        """Whether tensor cores read operands along k best: they transpose 16-bit elements alone."""
        return self.is_short and self.element_bytes != 2

    def reads(self, k_fast: tuple[bool, bool]) -> bool:
        """Whether there are kernels for A and B that lie along k, or along m and n.

        Tensor cores transpose 16-bit elements.  Of 32 bits they take one operand from registers,
        whatever its order in memory; they would of 8 bits, but lanes had to collect bytes.
        """
        if not self.reads_along_k:
            return True
        return any(k_fast) if self.element_bytes == 4 else all(k_fast)

    @property
    def pace(self) -> tuple[int, str]:
        """What precisions have in common whose kernels take the same time."""
        return self.element_bytes, self.sum_name or self.dtype_name

    @property
    def is_complex(self) -> bool:
        """Whether an element has an imaginary part."""
        return self.words == 2

    @cached_property
    def element_bytes(self) -> int:
        """Bytes of one element of A or B."""
        return _BYTES[self.dtype_name] if self.is_short else self.dtype.itemsize

    @cached_property
    def result_bytes(self) -> int:
        """Bytes of one element of C."""
        return _BYTES[self.result_name] if self.is_short else self.element_bytes

    @cached_property
    def result_dtype(self) -> np.dtype:
        """The NumPy dtype of C's elements."""
        return dtype_of(self.result_name) if self.result_name else self.dtype

    @property
    def result_roundoff(self) -> float:
        """Largest relative error of rounding a sum to an element of C; 0 where C holds sums."""
        return 0.0 if self.result_name == self.sum_name else _ROUNDOFF[self.result_name]

    @property
    def sum_bytes(self) -> int:
        """Bytes of the sum that an element of C is rounded from."""
        return _BYTES[self.sum_name] if self.is_short else self.element_bytes

    @property
    def real_bytes(self) -> int:
        """Bytes of one real word."""
        return self.element_bytes if self.is_short else self.real_dtype.itemsize

    def scalar(self, value: Any) -> tuple[Any, Any]:
        """Return real and imaginary part of alpha or beta as a kernel's arguments.

        Parameters
        ----------
        value : number, or anything with ``hi`` and ``lo``
            Of a pair whose words are complex, real parts belong to the real part.

        Returns
        -------
        tuple of NumPy scalar
            Each one real: a float, or in double-double a structure of two.
        """
        if type(value) in (int, float) and self.parts == 1:  # as nearly all are
            of, zero = _numbers(self.sum_name or self.real_name)
            return of(value), zero
        if self.parts == 1 and not hasattr(value, "hi"):
            number, (of, _) = complex(value), _numbers(self.sum_name or self.real_name)
            return of(number.real), of(number.imag)
        words = [complex(x) for x in (getattr(value, "hi", value), getattr(value, "lo", 0.0))]
        if self.parts == 1:
            whole, (of, _) = sum(words), _numbers(self.sum_name or self.real_name)
            return of(whole.real), of(whole.imag)
        parts = [(x.real, x.imag) for x in words]
        return tuple(np.array(pair, _PAIR)[()] for pair in zip(*parts, strict=True))  # type: ignore[return-value]

    def __str__(self) -> str:
        return self.letter


@lru_cache(maxsize=8)
def _numbers(name: str) -> tuple[Callable[[Any], Any], Any]:
    """Return the type of numbers of a name, and its 0: to look it up takes as long as all else."""
    of = np.dtype(name).type
    return of, of(0)


def dtype_of(name: str) -> np.dtype:
    """Return the NumPy dtype of a name.

    Raises
    ------
    ValueError
        If it is one of ml_dtypes, and that is missing.
    """
    if name not in _OF_ML_DTYPES:
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise ValueError(f"dtype={name} needs: pip install ml_dtypes") from None
    found: np.dtype = np.dtype(getattr(ml_dtypes, name))
    return found


# A double-double real in memory: the number is hi + lo, and lo at most half a unit in the
# last place of hi.
_PAIR = np.dtype([("hi", np.float64), ("lo", np.float64)])

PRECISIONS: dict[str, Precision] = {
    p.letter: p
    for p in (
        Precision("s", "SGEMM", "float32", "float32", 1, 2, 2.0**-24),
        Precision("d", "DGEMM", "float64", "float64", 1, 2, 2.0**-53),
        Precision("c", "CGEMM", "complex64", "float32", 2, 8, 2.0**-24),
        Precision("z", "ZGEMM", "complex128", "float64", 2, 8, 2.0**-53),
    )
}

# What is proven of one step of a sum of products, u being 2^-53, relative to the sum of the
# products' sizes (docs/double_double.md): "accurate" (e, w) 4 u^2, "fast" (f, v) 32 u^2, which
# grows with the 32 steps between two renormalisations.
_TWO, _FOUR = "float64,float64", "float64,float64,float64,float64"
DOUBLE_DOUBLE: dict[str, Precision] = {
    p.letter: p
    for p in (
        Precision("e", "double-double GEMM", _TWO, "float64", 1, 2, 2.0**-104, 2),
        Precision("f", "fast double-double GEMM", _TWO, "float64", 1, 2, 2.0**-101, 2),
        Precision("w", "double-double complex GEMM", _FOUR, "float64", 2, 8, 2.0**-104, 2),
        Precision("v", "fast double-double complex GEMM", _FOUR, "float64", 2, 8, 2.0**-101, 2),
    )
}

# Of tensor cores.  The error of one operation is that of the sum, where operands are taken as they
# are: what hardware keeps of its bits is in docs/tensor_cores.md.  Sums of FP8 keep 13 bits behind
# the largest product's first.
_BYTES = {
    "float8_e4m3fn": 1, "float8_e5m2": 1, "int8": 1, "float16": 2, "bfloat16": 2, "float32": 4,
    "int32": 4,
}  # fmt: skip
_OF_ML_DTYPES = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
_ROUNDOFF = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def _short(letter: str, name: str, roundoff: float, result: str) -> tuple[Precision, Precision]:
    """Return floating-point operands with a narrow result and with one of float32."""
    title = f"{letter.upper()} GEMM"
    wide = f"{title} with float32 results"
    rest = 1, 2, roundoff, 1
    return (
        Precision(letter, title, name, name, *rest, result, "float32"),
        Precision(f"{letter}_f32", wide, name, name, *rest, "float32", "float32"),
    )


SHORT: dict[str, Precision] = {
    p.letter: p
    for p in (
        *_short("fp16", "float16", 2.0**-24, "float16"),
        *_short("bf16", "bfloat16", 2.0**-24, "bfloat16"),
        *_short("e4m3", "float8_e4m3fn", 2.0**-13, "bfloat16"),
        *_short("e5m2", "float8_e5m2", 2.0**-13, "bfloat16"),
        Precision("int8", "INT8 GEMM", "int8", "int8", 1, 2, 0.0, 1, "int32", "int32"),
        # Of float32 operands the first 11 bits count: each loses 2^-10 of itself at most.
        Precision(
            "tf32", "TF32 GEMM", "float32", "float32", 1, 2, 2.0**-9, 1, "float32", "float32"
        ),
    )
}

# "f" and "v" are stored as "e" and "w", which come first.
_OF_DTYPE = {p.dtype: p for p in reversed((PRECISIONS | DOUBLE_DOUBLE).values())}


def precision(letter: str | Precision) -> Precision:
    """Return the precision of a letter.

    Parameters
    ----------
    letter : str or Precision
        BLAS's ``"s"``, ``"d"``, ``"c"`` or ``"z"`` in either case; ``"e"`` (double-double) or
        ``"f"`` (the same faster, less accurate), ``"w"`` or ``"v"`` (their complex); ``"tf32"``,
        ``"int8"``; ``"fp16"``, ``"bf16"``, ``"e4m3"`` or ``"e5m2"``, with ``"_f32"`` behind it for
        float32 results; a Precision is returned as it is.

    Raises
    ------
    ValueError
        If no precision has that letter.
    """
    if isinstance(letter, Precision):
        return letter
    lower = str(letter).lower()
    found = PRECISIONS.get(lower) or DOUBLE_DOUBLE.get(lower) or SHORT.get(lower)
    if found is None:
        known = ", ".join(PRECISIONS | DOUBLE_DOUBLE | SHORT)
        raise ValueError(f"precision={letter!r} is unknown; use one of {known}")
    return found


def letters_of(portfolio: str) -> list[str]:
    """Return the letters of the precisions that a portfolio is of, by its name."""
    every = PRECISIONS | DOUBLE_DOUBLE | SHORT
    return [one.letter for one in every.values() if one.portfolio == portfolio]


def double_double_row(is_complex: bool, accuracy: str = "accurate") -> Precision:
    """Return the double-double precision of an accuracy.

    Raises
    ------
    ValueError
        If `accuracy` is neither ``"accurate"`` nor ``"fast"``.
    """
    letters = {"accurate": "ew", "fast": "fv"}.get(accuracy)
    if letters is None:
        raise ValueError(f"accuracy={accuracy!r} is unknown; use accurate or fast")
    return DOUBLE_DOUBLE[letters[is_complex]]


def precision_of(dtype: DTypeLike) -> Precision:
    """Return the precision that stores elements of this NumPy dtype.

    Double-double elements are of precision ``"e"`` or ``"w"``.

    Raises
    ------
    ValueError
        If no precision does; byte-swapped types are refused too.
    """
    wanted = np.dtype(dtype)
    found = _OF_DTYPE.get(wanted)
    if found is not None:
        return found
    raise ValueError(
        f"dtype={wanted} has no GEMM here; convert to one of "
        + ", ".join(p.dtype_name for p in PRECISIONS.values())
    )
