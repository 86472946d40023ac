"""Precisions: how an element is stored, and what one multiply-add on it costs.

A new precision is one row in `PRECISIONS` and one prelude in ``stencil/text``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

__all__ = ["MODELLED", "PRECISIONS", "Precision", "precision", "precision_of"]


@dataclass(frozen=True)
class Precision:
    """One row of BLAS's first letter.

    Parameters
    ----------
    letter : str
        BLAS's letter in lower case.
    name : str
        The name people use for GEMM in this precision, such as ``"SGEMM"``.
    dtype_name : str
        NumPy's name of the element type.
    real_name : str
        NumPy's name of the real type that the element is made of.
    words : int
        Real words an element holds: 1 for real, 2 for complex.
    flops : int
        Floating-point operations that one multiply-add of elements is counted
        as: 2 for real, 8 for complex (4 multiplications, 4 additions).
    unit_roundoff : float
        Largest relative error of one correctly rounded real operation.
    """

    letter: str
    name: str
    dtype_name: str
    real_name: str
    words: int
    flops: int
    unit_roundoff: float

    @property
    def dtype(self) -> np.dtype:
        """The element's NumPy dtype."""
        return np.dtype(self.dtype_name)

    @property
    def real_dtype(self) -> np.dtype:
        """The NumPy dtype of one real word."""
        return np.dtype(self.real_name)

    @property
    def is_complex(self) -> bool:
        """Whether an element has an imaginary part."""
        return self.words == 2

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def real_bytes(self) -> int:
        """Bytes of one real word."""
        return self.real_dtype.itemsize

    def __str__(self) -> str:
        return self.letter


PRECISIONS: dict[str, Precision] = {
    p.letter: p
    for p in (
        Precision("s", "SGEMM", "float32", "float32", 1, 2, 2.0**-24),
        Precision("d", "DGEMM", "float64", "float64", 1, 2, 2.0**-53),
        Precision("c", "CGEMM", "complex64", "float32", 2, 8, 2.0**-24),
        Precision("z", "ZGEMM", "complex128", "float64", 2, 8, 2.0**-53),
    )
}

# Precisions that a bound can be computed for, while no kernel here computes in them.
# "e" is double-double: an element is a pair (hi, lo) of doubles whose sum it stands for; its
# unit roundoff is that of accurate double-double arithmetic (Joldes, Muller & Popescu 2017).
MODELLED: dict[str, Precision] = {
    "e": Precision("e", "double-double GEMM", "float64,float64", "float64", 1, 2, 2.0**-104)
}


def precision(letter: str | Precision, *, modelled: bool = False) -> Precision:
    """Return the precision of a BLAS letter.

    Parameters
    ----------
    letter : str or Precision
        ``"s"``, ``"d"``, ``"c"`` or ``"z"`` in either case; a Precision is
        returned as it is.
    modelled : bool
        Whether ``"e"`` (double-double) will do too, for which there are bounds
        but no kernels.

    Raises
    ------
    ValueError
        If no precision has that letter.
    """
    if isinstance(letter, Precision):
        return letter
    known = {**PRECISIONS, **MODELLED} if modelled else PRECISIONS
    found = known.get(str(letter).lower())
    if found is None:
        raise ValueError(f"precision={letter!r} is unknown; use one of {', '.join(known)}")
    return found


def precision_of(dtype: DTypeLike) -> Precision:
    """Return the precision that stores elements of this NumPy dtype.

    Raises
    ------
    ValueError
        If no precision does; byte-swapped types are refused too.
    """
    wanted = np.dtype(dtype)
    for row in PRECISIONS.values():
        if row.dtype == wanted:
            return row
    raise ValueError(
        f"dtype={wanted} has no GEMM here; convert to one of "
        + ", ".join(p.dtype_name for p in PRECISIONS.values())
    )
