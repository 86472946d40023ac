"""alpha op(A) op(B) + beta C of NumPy's arrays, by `numpy.matmul` and passes over the product."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilewright.precision import Precision

__all__ = ["computed", "keep_infinities", "may_have_nan", "multiplied", "operand"]


def operand(x: NDArray[Any], op: str) -> NDArray[Any]:
    """Return op(x): a view, but for a conjugate."""
    if op == "N":
        return x
    if op in "CR" and x.dtype.kind == "c":
        x = x.conj()
    return x if op == "R" else x.swapaxes(-1, -2)


def multiplied(
    x: NDArray[Any] | None, y: NDArray[Any] | None, c: NDArray[Any], alpha: complex, beta: complex,
    precision: Precision,
) -> None:  # fmt: skip
    """Let C be alpha x y + beta c; without x and y, beta c."""
    if x is None or y is None:
        _scale(c, beta, precision)
    else:
        computed(x, y, c, alpha, beta, precision)


def computed(
    x: NDArray[Any], y: NDArray[Any], c: NDArray[Any] | None, alpha: complex, beta: complex,
    precision: Precision,
) -> NDArray[Any]:  # fmt: skip
    """Return alpha x y + beta c, in c if it is given; without a term that is 0."""
    made = _product(x, y, c if beta == 0 else None)
    if c is not None and type(alpha) is int and alpha == -1 and beta == 1:  # as two passes would
        np.subtract(c, made, out=c)
        return c
    if type(alpha) is not int or alpha != 1:
        _scale(made, alpha, precision)
    if c is None or beta == 0:
        return made
    _scale(c, beta, precision)
    np.add(c, made, out=c)
    return c


def _product(x: NDArray[Any], y: NDArray[Any], out: NDArray[Any] | None) -> NDArray[Any]:
    """Return x y.  Of sums of one term `numpy.multiply` takes a third of the time."""
    if x.shape[-1] == 1:
        made: NDArray[Any] = np.multiply(x, y, out)
        return made
    made = np.matmul(x, y, out)
    if made.dtype.kind == "c" and may_have_nan(x, y, made):
        keep_infinities(x, y, made)
    return made


def may_have_nan(x: NDArray[Any], y: NDArray[Any], made: NDArray[Any]) -> bool:
    """Whether a complex product may have a NaN, by a look at the operands if they are smaller.

    No sum exceeds the root of the product of the operands' sums of squares; 4 is for rounding.
    Squares of the product itself have a NaN or an infinity in their real parts wherever it has one.
    """
    if x.size + y.size >= made.size:
        flat = made.ravel(order="K")
        return not math.isfinite(flat.dot(flat).real)
    flats = x.ravel(order="K"), y.ravel(order="K")
    return not all(math.isfinite(4 * np.vdot(flat, flat).real) for flat in flats)


def keep_infinities(x: NDArray[Any], y: NDArray[Any], made: NDArray[Any]) -> None:
    """Let NaN stay only where a plain loop has it.

    BLAS multiplies complex sums by 1 + 0i, which makes NaN of infinities; of real ones it does not.
    """
    lost = np.isnan(made)
    if lost.any():
        made.real[lost] = (x.real @ y.real - x.imag @ y.imag)[lost]
        made.imag[lost] = (x.real @ y.imag + x.imag @ y.real)[lost]


def _scale(x: NDArray[Any], scalar: complex, precision: Precision) -> None:
    """Multiply by alpha or beta in place.

    As `elem_scale` of the kernels' preludes: 0 reads nothing, and a scalar without an imaginary
    part only scales, so that infinities make no NaN.
    """
    real, imaginary = precision.scalar(scalar)
    if imaginary != 0:
        np.multiply(x, x.dtype.type(complex(real, imaginary)), out=x)
    elif real == 0:
        x[...] = 0
    elif real != 1:
        for part in (x.real, x.imag) if precision.is_complex else (x,):
            np.multiply(part, real, out=part)
