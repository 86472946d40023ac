"""What is asked, in BLAS words: sizes, transposes, leading dimensions.

Storage is column-major throughout, as in BLAS: element (i, j) of a matrix with
leading dimension ``ld`` lies ``i + j * ld`` elements after the first.  The
library maps row-major arrays onto this by swapping the operands.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from tilewright.dataclass import dataclass
from tilewright.precision import Precision, precision

__all__ = ["Problem", "Trans", "pair_of", "transposes_of"]


class Trans(StrEnum):
    """What happens to an operand before the product.

    ``N``, ``T`` and ``C`` are BLAS's.  ``R`` conjugates without transposing; no
    BLAS routine takes it from a caller, but it is what ``C`` becomes when an
    operand's storage order differs from the result's.
    """

    N = "N"
    T = "T"
    C = "C"
    R = "R"

    @property
    def transposed(self) -> bool:
        """Whether rows become columns."""
        return self == "T" or self == "C"

    @property
    def conjugated(self) -> bool:
        """Whether imaginary parts change sign."""
        return self == "C" or self == "R"

    @classmethod
    def of(cls, transposed: bool, conjugated: bool) -> Trans:
        """Return the member with these two properties."""
        if transposed:
            return cls.C if conjugated else cls.T
        return cls.R if conjugated else cls.N

    @classmethod
    def parse(cls, value: str | Trans, argument: str = "trans") -> Trans:
        """Return the member named by BLAS's letter, in either case.

        Raises
        ------
        ValueError
            If `value` is none of N, T and C; the message names `argument`.
        """
        if isinstance(value, Trans):
            return value
        letter = str(value).upper()
        if letter not in ("N", "T", "C"):
            raise ValueError(f"{argument}={value!r} is not a transpose; use N, T or C")
        return cls(letter)

    def on(self, precision: Precision) -> Trans:
        """Return this operation with conjugation dropped where elements are real."""
        if precision.is_complex or not self.conjugated:
            return self
        return Trans.of(self.transposed, False)


def pair_of(text: str, letters: str = "NTC") -> tuple[Trans, Trans]:
    """Return the operations of A and B that a pair such as ``NT`` names.

    Raises
    ------
    ValueError
        If it is not a pair of these letters.
    """
    pair = text.strip().upper()
    if len(pair) != 2 or not set(pair) <= set(letters):
        raise ValueError(f"trans={text!r} is not a pair of N, T and C; write NN, NT, TN or TT")
    return Trans(pair[0]), Trans(pair[1])


def transposes_of(precision: Precision) -> tuple[tuple[Trans, Trans], ...]:
    """Return BLAS's transpose cases: 4 on real elements, 9 on complex ones."""
    ops = (Trans.N, Trans.T, Trans.C) if precision.is_complex else (Trans.N, Trans.T)
    return tuple((a, b) for a in ops for b in ops)


def _size(name: str, value: object) -> int:
    """Return a number of elements as a plain integer."""
    try:
        whole = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        whole = -1
    if isinstance(value, str) or whole != value or whole < 0:
        raise ValueError(f"{name}={value!r} is not a size; give an integer of 0 or more")
    return int(whole)


def _leading(name: str, value: int, rows: int) -> int:
    """Return the leading dimension that 0 stands for, of so many rows; refuse others below it."""
    least = rows or 1
    if value:
        raise ValueError(f"{name}={value} is too small; give at least {least}")
    return least


def _batch(value: object) -> int:
    found = _size("batch", value)
    if not found:
        raise ValueError("batch=0 has no product; give 1 or more")
    return found


@dataclass(frozen=True)
class Problem:
    """C <- alpha op(A) op(B) + beta C with op(A) m x k, op(B) k x n, C m x n.

    Parameters
    ----------
    m, n, k : int
        Sizes, zero or more.
    precision : str or Precision
        BLAS's letter or a `Precision`.
    trans_a, trans_b : str or Trans
        ``"N"``, ``"T"`` or ``"C"``; conjugation is dropped on real elements.
    lda, ldb, ldc : int, optional
        Leading dimensions in elements; 0 (the default) stands for the least
        that BLAS allows.
    batch : int, optional
        How many such products, one or more.
    step_a, step_b, step_c : int, optional
        Elements from a matrix to the next of the batch; 0 where all products have the same, and
        None (the default) stands for matrices behind each other.  0 where there is one product.

    Raises
    ------
    ValueError
        If a size is negative, a leading dimension too small, or a letter
        unknown; the message names the argument.
    """

    m: int
    n: int
    k: int
    precision: Precision = "s"  # type: ignore[assignment]  # letters are converted below
    trans_a: Trans = Trans.N
    trans_b: Trans = Trans.N
    lda: int = 0
    ldb: int = 0
    ldc: int = 0
    batch: int = 1
    step_a: int = None  # type: ignore[assignment]  # None is replaced below
    step_b: int = None  # type: ignore[assignment]
    step_c: int = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        values = self.__dict__  # a frozen dataclass's fields one by one take three times as long
        of = values["precision"] = precision(self.precision)
        for name in ("trans_a", "trans_b"):
            values[name] = Trans.parse(values[name], name).on(of)
        for name in ("m", "n", "k", "lda", "ldb", "ldc"):
            if type(values[name]) is not int or values[name] < 0:  # as hardly any are
                values[name] = _size(name, values[name])
        m, n, k = self.m, self.n, self.k
        rows_a = k if self.trans_a.transposed else m
        rows_b = n if self.trans_b.transposed else k
        for name, rows in (("lda", rows_a), ("ldb", rows_b), ("ldc", m)):
            if values[name] < (rows or 1):
                values[name] = _leading(name, values[name], rows)
        if self.batch == 1:
            values["step_a"] = values["step_b"] = values["step_c"] = 0
            return
        values["batch"] = _batch(self.batch)
        if self.step_c == 0:
            raise ValueError("step_c=0 stores all products of the batch in one matrix; give a step")
        for name, step in zip(("step_a", "step_b", "step_c"), self.stored, strict=True):
            if values[name] is None:
                values[name] = step

    @property
    def flops(self) -> int:
        """Floating-point operations of the product, as BLAS counts them."""
        return self.precision.flops * self.batch * self.m * self.n * self.k

    @property
    def elements(self) -> tuple[int, int, int]:
        """Elements of A, B and C in all products; what these share counts once."""
        many_a, many_b = (self.batch if step else 1 for step in (self.step_a, self.step_b))
        a, b, c = self.m * self.k, self.k * self.n, self.m * self.n
        return a * many_a, b * many_b, c * self.batch

    @property
    def stored(self) -> tuple[int, int, int]:
        """Elements of A, B and C of one product, with the gaps between their columns."""
        columns_a = self.m if self.trans_a.transposed else self.k
        columns_b = self.k if self.trans_b.transposed else self.n
        return self.lda * columns_a, self.ldb * columns_b, self.ldc * self.n

    @property
    def one(self) -> Problem:
        """The product of a single matrix of the batch."""
        return self if self.batch == 1 else replace(self, batch=1)

    @property
    def trans(self) -> str:
        """Both transposes as BLAS's letter pair, such as ``"NT"``."""
        return f"{self.trans_a}{self.trans_b}"

    @property
    def shape(self) -> str:
        """The sizes as ``m x n x k``, or one number where they are equal, behind the batch."""
        many = f"{self.batch} * " if self.batch > 1 else ""
        if self.m == self.n == self.k:
            return f"{many}{self.m}"
        return f"{many}{self.m}x{self.n}x{self.k}"

    def __str__(self) -> str:
        return f"{self.precision.name} {self.trans} {self.shape}"
