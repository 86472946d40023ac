"""Dense linear systems on top of gemm(), as LINPACK solves them.

Blocked LU factorisation with partial pivoting (Golub & Van Loan, *Matrix Computations*,
section 3.4): a narrow panel of columns is factored, then everything right of it is
updated by one matrix product.  All but O(n^2) of the work is in those products.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import LiveDevice
from tilewright.double_double import error_of_product
from tilewright.precision import precision_of
from tilewright.serve.arrays import numpy as on_numpy
from tilewright.serve.double_double import DoubleDouble
from tilewright.serve.gemm import gemm

__all__ = ["lu_factor", "lu_solve", "scaled_residual"]

Matrix = NDArray[Any] | DoubleDouble

# Columns a panel has by default: wide enough that the trailing products run near their
# best speed (k of some hundred), narrow enough that panels stay a small share.
BLOCK = 128

# Below this many columns a product is cheaper in NumPy than a kernel launch.
_LEAF = 16


def lu_factor(
    a: Matrix,
    *,
    block: int = BLOCK,
    device: str | LiveDevice | None = None,
) -> tuple[Any, NDArray[np.intp]]:
    """Factor P A = L U with partial pivoting.

    Parameters
    ----------
    a : ndarray or DoubleDouble, shape (n, n)
        float32, float64, complex64, complex128 or double-double; not changed.
    block : int
        Columns in a panel.
    device : str or LiveDevice, optional
        Where the products run.

    Returns
    -------
    lu : ndarray or DoubleDouble, shape (n, n)
        U in the upper triangle, L without its unit diagonal below.
    pivots : ndarray of int, shape (n,)
        Row i was exchanged with row ``pivots[i]``, in this order.

    Raises
    ------
    ValueError
        If `a` is not square or has no precision here, or `block` is not positive.
    numpy.linalg.LinAlgError
        If a pivot is exactly zero.
    """
    _check_square(a)
    if block < 1:
        raise ValueError(f"block={block} is not a number of columns; give 1 or more")
    try:
        precision_of(a.dtype)
    except ValueError as error:
        raise ValueError(f"a.{error}") from None
    n = len(a)
    lu = a.copy() if isinstance(a, DoubleDouble) else np.array(a, order="C")
    pivots = np.arange(n)
    for start in range(0, n, block):
        stop = min(start + block, n)
        _panel(lu[:, start:stop], start, pivots[start:stop], device)
        for column, pivot in enumerate(pivots[start:stop], start):
            if pivot != column:
                for side in (lu[:, :start], lu[:, stop:]):
                    side[[column, pivot]] = side[[pivot, column]]
        if stop < n:
            right = lu[:, stop:]
            _solve_unit_lower(lu[start:stop, start:stop], right[start:stop], device)
            _update(right[stop:], lu[stop:, start:stop], right[start:stop], device)
    return lu, pivots


def _update(c: Matrix, a: Matrix, b: Matrix, device: str | LiveDevice | None) -> None:
    """C <- c - a b."""
    gemm(a, b, c, alpha=-1, beta=1, device=device)


def _panel(
    panel: Matrix,
    top: int,
    pivots: NDArray[np.intp],
    device: str | LiveDevice | None,
) -> None:
    """Factor the rows of a panel from `top` on, splitting its columns in half.

    Toledo, SIAM J. Matrix Anal. Appl. 18(4), 1997: the halves' update is a product too.
    """
    width = panel.shape[1]
    if width <= _LEAF:
        _panel_by_columns(panel, top, pivots)
        return
    half = width // 2
    left, right = panel[:, :half], panel[:, half:]
    _panel(left, top, pivots[:half], device)
    for column, pivot in enumerate(pivots[:half], top):
        right[[column, pivot]] = right[[pivot, column]]
    middle = top + half
    _solve_unit_lower(left[top:middle], right[top:middle], device)
    _update(right[middle:], left[middle:], right[top:middle], device)
    _panel(right, middle, pivots[half:], device)
    for column, pivot in enumerate(pivots[half:], middle):
        left[[column, pivot]] = left[[pivot, column]]


def _sizes(x: Matrix) -> NDArray[Any]:
    """Return absolute values, good enough to choose a pivot by."""
    return np.abs(x.hi if isinstance(x, DoubleDouble) else x)


def _panel_by_columns(panel: Matrix, top: int, pivots: NDArray[np.intp]) -> None:
    """Factor a few columns one after the other."""
    for j in range(panel.shape[1]):
        row = top + j
        pivot = row + int(np.argmax(_sizes(panel[row:, j])))
        pivots[j] = pivot
        if panel[pivot, j] == 0:
            raise np.linalg.LinAlgError(f"a is singular: pivot {row} is exactly zero")
        if pivot != row:
            panel[[row, pivot]] = panel[[pivot, row]]
        panel[row + 1 :, j] /= panel[row, j]
        panel[row + 1 :, j + 1 :] -= panel[row + 1 :, j, None] * panel[row, None, j + 1 :]


def _solve_unit_lower(lower: Matrix, b: Matrix, device: str | LiveDevice | None) -> None:
    """B <- L^-1 b in place for a unit lower triangle, splitting it in half."""
    size = len(lower)
    if size <= _LEAF:
        for i in range(size - 1):
            b[i + 1 :] -= lower[i + 1 :, i, None] * b[i, None]
        return
    half = size // 2
    _solve_unit_lower(lower[:half, :half], b[:half], device)
    _update(b[half:], lower[half:, :half], b[:half], device)
    _solve_unit_lower(lower[half:, half:], b[half:], device)


def lu_solve(factored: tuple[Matrix, NDArray[np.intp]], b: Matrix) -> Any:
    """Solve A x = b with the result of `lu_factor`.

    Parameters
    ----------
    factored : tuple
        What `lu_factor` returned.
    b : ndarray or DoubleDouble, shape (n,)
        Right-hand side.

    Returns
    -------
    ndarray or DoubleDouble, shape (n,)
        The solution, in lu's precision.
    """
    lu, pivots = factored
    n = len(lu)
    if not isinstance(b, np.ndarray | DoubleDouble):
        raise TypeError(f"b is a {type(b).__name__}; give np.asarray(b), or a DoubleDouble")
    if b.shape != (n,):
        raise ValueError(f"b.shape={b.shape} should be {(n,)}")
    if _is_complex(b) and not _is_complex(lu):
        raise ValueError("b is complex but a is real; factor a * (1 + 0j)")
    if isinstance(lu, DoubleDouble):
        x: Any = DoubleDouble(b) + DoubleDouble(0j if lu.is_complex else 0)
    else:
        x = np.array(b, lu.dtype)
    for i, pivot in enumerate(pivots):
        if pivot != i:
            x[[i, pivot]] = x[[pivot, i]]
    for i in range(1, n):
        x[i] -= (lu[i, :i] * x[:i]).sum()
    for i in range(n - 1, -1, -1):
        x[i] = (x[i] - (lu[i, i + 1 :] * x[i + 1 :]).sum()) / lu[i, i]
    return x


def _check_square(a: Matrix) -> None:
    if not isinstance(a, np.ndarray | DoubleDouble):
        raise TypeError(f"a is a {type(a).__name__}; give np.asarray(a), or a DoubleDouble")
    if isinstance(a, np.ndarray):
        on_numpy.view("a", a)
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(f"a.shape={a.shape} is not square; give an n x n matrix")


def _is_complex(x: Matrix) -> bool:
    return x.is_complex if isinstance(x, DoubleDouble) else np.iscomplexobj(x)


def scaled_residual(a: Matrix, x: Matrix, b: Matrix) -> float:
    """Return HPL's scaled residual; a solution with less than 16 is accepted.

    ||A x - b|| / (u (||A|| ||x|| + ||b||) n) in infinity norms, u the unit roundoff of
    a's precision (Petitet et al., HPL 2.3, ``HPL_pdtest.c``), with A x computed in a
    wider format so that the check adds no error of its own; in double-double it is exact.
    NaN where anything is not finite; 0 of an empty system.

    Parameters
    ----------
    a : ndarray or DoubleDouble, shape (n, n)
        The matrix.
    x, b : ndarray or DoubleDouble, shape (n,)
        The solution and the right-hand side.

    Raises
    ------
    ValueError
        If shapes are others; the message names the argument.
    """
    _check_square(a)
    for name, given in (("x", x), ("b", b)):
        if np.shape(given) != a.shape[:1]:
            raise ValueError(f"{name}.shape={np.shape(given)} should be {a.shape[:1]}")
    if not len(a):
        return 0.0
    if isinstance(a, DoubleDouble):
        return _double_double_residual(a, DoubleDouble(x), DoubleDouble(b))
    wide = np.clongdouble if any(map(np.iscomplexobj, (a, x, b))) else np.longdouble
    aw, xw, bw = (np.asarray(v).astype(wide) for v in (a, x, b))
    top = np.abs(aw @ xw - bw).max()
    if top == 0:
        return 0.0
    norms = np.abs(aw).sum(axis=1).max() * np.abs(xw).max() + np.abs(bw).max()
    unit = precision_of(a.dtype).unit_roundoff
    return float(top / (unit * norms * len(a)))


def _double_double_residual(a: DoubleDouble, x: DoubleDouble, b: DoubleDouble) -> float:
    """Return `scaled_residual` with b - A x exact before it is rounded."""
    sides = []
    for given in (b, x):
        made = DoubleDouble.of_words(np.zeros((*a.shape[:1], *a.words.shape[2:])), a.is_complex)
        made[...] = given
        sides.append(made.words.reshape(len(a), -1).view(a.dtype))
    if not all(np.isfinite(y.words).all() for y in (a, x, b)):
        return float("nan")
    flat = np.ascontiguousarray(a.words).reshape(*a.shape, -1).view(a.dtype)[..., 0]
    error, _ = error_of_product(sides[0], flat, sides[1])
    top = np.abs(error).max(initial=0.0)
    if top == 0:
        return 0.0
    norms = float(a.norm(np.inf)) * float(x.norm("max")) + float(b.norm("max"))
    return float(top / (precision_of(a.dtype).unit_roundoff * norms * len(a)))
