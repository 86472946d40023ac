"""Dense linear systems on top of gemm(), as LINPACK solves them.

LU factorisation with partial pivoting by halves (Toledo, SIAM J. Matrix Anal. Appl. 18(4), 1997)::

    left half of the columns  ->  U of the right half  ->  right half -= L U  ->  its lower rows

and so on within each half, down to a few columns, which are factored one after the other.  All but
O(n^2) of the work is in matrix products, and a sum of n terms is rounded to memory log n times.

Where NumPy's BLAS serves products (`tilewright.serve.host_blas`) and SciPy is installed, its LAPACK
serves systems.  On a CUDA device `tilewright.serve.lu` does, but for double-double.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import LiveDevice
from tilewright.backend import device as find_device
from tilewright.double_double import error_of_product
from tilewright.precision import precision_of
from tilewright.problem import Trans
from tilewright.serve import host_blas
from tilewright.serve.arrays import numpy as on_numpy
from tilewright.serve.arrays.adapters import adapter_on_cuda
from tilewright.serve.checks import refuse_masked, zero_pivot
from tilewright.serve.double_double import DoubleDouble
from tilewright.serve.gemm import gemm
from tilewright.text import shown

__all__ = ["lu_factor", "lu_solve", "scaled_residual"]

Matrix = NDArray[Any] | DoubleDouble

# Up to so many columns are factored one after the other: fewer are Python's work, more are passes
# over memory.
_FEW_COLUMNS = 16

# Up to so many rows are solved for without a product.
_FEW_ROWS = 64


def lu_factor(
    a: Any, *, overwrite_a: bool = False, device: str | LiveDevice | None = None
) -> tuple[Any, Any]:
    """Factor P A = L U with partial pivoting.

    Parameters
    ----------
    a : array, shape (n, n)
        float32, float64, complex64, complex128 or `DoubleDouble`: NumPy's, or CuPy's or PyTorch's
        on a CUDA device.
    overwrite_a : bool
        Whether `a` may be overwritten: a row-major one on a device, whose rows begin at multiples
        of 16 bytes, is factored in place.
    device : str or LiveDevice, optional
        Where NumPy's arrays are factored, and products of `DoubleDouble` run; arrays on a device
        are factored there.

    Returns
    -------
    lu : array, shape (n, n)
        U in the upper triangle, L without its unit diagonal below; of a's kind.
    pivots : array of int, shape (n,)
        Row i was exchanged with row ``pivots[i]``, in this order; of a's kind.

    Raises
    ------
    ValueError
        If `a` is not square or has no precision here, or lies on a device and has more rows than
        its blocks hold: 131,072 on an H100, of complex numbers 65,536.
    numpy.linalg.LinAlgError
        If a pivot is exactly zero, and its column holds no NaN: of a matrix with NaN, factors
        hold NaN.
    """
    refuse_masked(a=a)
    adapter = _adapter_of(a)
    if adapter is not None:
        _check_on_device(adapter, "a", a, device)
        lu, pivots, zero = _on_device().factor(adapter, a, overwrite_a)
        if zero > 0:
            raise _singular(zero - 1)
        return lu, pivots
    _check_square(a)
    _check_type(a)
    n = len(a)
    if not n:
        return a.copy(), np.arange(n)
    live = _cuda_device(a, device)
    if live is not None:
        lu, pivots, zero = _on_device().factor_numpy(live, a)
    elif (factor := _lapack("getrf", a, device)) is not None:
        lu, pivots, zero = factor(a)  # as is said of getrf: the first zero pivot, counted from 1
        zero = zero_pivot(lu, zero)
    else:
        lu = a.copy() if isinstance(a, DoubleDouble) else np.array(a, order="C")
        return lu, _factor(lu, 0, device)[0]
    if zero > 0:
        raise _singular(zero - 1)
    return lu, pivots.astype(np.intp)


def _adapter_of(*given: Any) -> Any:
    """Return what knows arrays on a CUDA device; None of NumPy's and DoubleDouble."""
    if any(isinstance(x, np.ndarray | DoubleDouble) or not hasattr(x, "ndim") for x in given):
        return None
    return adapter_on_cuda(*given)


def _on_device() -> Any:
    """Return what factors and solves on a CUDA device, which others never import."""
    from tilewright.serve.lu import arrays

    return arrays


def _cuda_device(a: Matrix, device: str | LiveDevice | None) -> Any:
    """Return the CUDA device that factors a NumPy array; None where products or LAPACK serve."""
    if not isinstance(a, np.ndarray):
        return None
    live = find_device(device)
    return live if live.backend == "cuda" and _on_device().takes(live, a) else None


def _check_on_device(adapter: Any, name: str, a: Any, device: Any) -> None:
    """Refuse what is no square matrix of a precision, on a device that a caller names otherwise."""
    if device is not None:
        raise ValueError(f"device={device!r} has no say: arrays on a device stay where they are")
    view = adapter.view(name, a)
    if len(view.shape) != 2 or view.shape[0] != view.shape[1]:
        raise ValueError(f"{name}.shape={view.shape} is not square; give an n x n matrix")
    if not view.shape[0]:
        raise ValueError(f"{name}.shape={view.shape} has no elements; give a larger matrix")
    _check_type(view, name)
    _on_device().check_able(view.ordinal)


def _lapack(name: str, a: Matrix, device: str | LiveDevice | None) -> Callable[..., Any] | None:
    """Return SciPy's LAPACK routine for a's type; None where kernels serve, or it is missing."""
    if not isinstance(a, np.ndarray) or not host_blas.is_serving():
        return None
    return _routine(name, a.dtype.char) if find_device(device).spec.kind == "cpu" else None


@lru_cache(maxsize=8)
def _routine(name: str, dtype: str) -> Callable[..., Any] | None:
    try:
        from scipy.linalg import lapack
    except ImportError:
        return None
    found: Callable[..., Any] = lapack.get_lapack_funcs(name, dtype=dtype)
    return found


def _singular(pivot: int) -> np.linalg.LinAlgError:
    return np.linalg.LinAlgError(f"a is singular: pivot {pivot} is exactly zero")


def _update(c: Matrix, a: Matrix, b: Matrix, device: str | LiveDevice | None) -> None:
    """C <- c - a b."""
    gemm(a, b, c, alpha=-1, beta=1, device=device)


def _factor(
    columns: Matrix, top: int, device: str | LiveDevice | None
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Factor the rows of some columns from `top` on, splitting the columns in half.

    Returns
    -------
    pivots : ndarray of int
        By column, the row that its row was exchanged with.
    order : ndarray of int
        Where all rows from `top` on were before, counted from there.
    """
    width = columns.shape[1]
    if width <= _FEW_COLUMNS:
        return _factor_leaf(columns, top)
    half = width // 2
    left, right = columns[:, :half], columns[:, half:]
    middle = top + half
    first, order = _factor(left, top, device)
    _rearrange(right[top:], order)
    _solve(left[top:middle], right[top:middle], device, upper=False, unit=True)
    _update(right[middle:], left[middle:], right[top:middle], device)
    second, below = _factor(right, middle, device)
    _rearrange(left[middle:], below)
    order[half:] = order[half:][below]
    return np.concatenate((first, second)), order


def _rearrange(rows: Any, order: NDArray[np.intp]) -> None:
    """Let row i be what row ``order[i]`` was."""
    moved = np.flatnonzero(order != np.arange(len(order)))
    if len(moved):
        rows[moved] = rows[order[moved]]


def _sizes(x: Matrix) -> NDArray[Any]:
    """Return absolute values, good enough to choose a pivot by."""
    return np.abs(x.hi if isinstance(x, DoubleDouble) else x)


@np.errstate(all="ignore")  # Inf and NaN are results
def _factor_leaf(columns: Matrix, top: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Factor a few columns one after the other, in a copy whose columns are whole in memory."""
    rows = columns[top:]
    panel = rows.copy() if isinstance(rows, DoubleDouble) else np.array(rows, order="F")
    order = np.arange(len(panel))
    pivots = order[: panel.shape[1]] + top
    for j in range(len(pivots)):
        pivot = j + int(_sizes(panel[j:, j]).argmax())
        if panel[pivot, j] == 0:
            raise _singular(top + j)
        if pivot != j:
            pivots[j] = top + pivot
            order[j], order[pivot] = order[pivot], order[j]
            upper = panel[j].copy()  # a third of the time of two rows by their numbers
            panel[j], panel[pivot] = panel[pivot], upper
        panel[j + 1 :, j] /= panel[j, j]
        panel[j + 1 :, j + 1 :] -= panel[j + 1 :, j, None] * panel[j, None, j + 1 :]
    rows[...] = panel
    return pivots, order


def _solve(
    triangle: Matrix, b: Matrix, device: str | LiveDevice | None, *, upper: bool, unit: bool
) -> None:
    """B <- T^-1 b in place for a triangle, in halves; `unit`: its diagonal is 1."""
    if len(triangle) <= _FEW_ROWS:
        _solve_few(triangle, b, upper=upper, unit=unit)
        return
    top, bottom = slice(len(triangle) // 2), slice(len(triangle) // 2, None)
    first, then = (bottom, top) if upper else (top, bottom)
    _solve(triangle[first, first], b[first], device, upper=upper, unit=unit)
    _update(b[then], triangle[then, first], b[first], device)
    _solve(triangle[then, then], b[then], device, upper=upper, unit=unit)


@np.errstate(all="ignore")
def _solve_few(x: Matrix, b: Matrix, *, upper: bool, unit: bool) -> None:
    """Solve for a few rows with a triangle of x, by LAPACK's general solver or by substitution."""
    if isinstance(x, np.ndarray):
        triangle = np.triu(x) if upper else np.tril(x)
        if unit:
            np.fill_diagonal(triangle, 1)
        b[...] = np.linalg.solve(triangle, np.asarray(b))
        return
    for i in range(len(x))[:: -1 if upper else 1]:
        if not unit:
            b[i] /= x[i, i]
        rest = slice(0, i) if upper else slice(i + 1, None)
        b[rest] -= x[rest, i, None] * b[i, None]


def lu_solve(
    factored: tuple[Any, Any], b: Any, *, trans: str = "N", device: str | LiveDevice | None = None
) -> Any:
    """Solve op(A) x = b with the result of `lu_factor`.

    Parameters
    ----------
    factored : tuple
        What `lu_factor` returned.
    b : array, shape (n,) or (n, r)
        Right-hand side, or r of them, of the factors' kind.
    trans : {"N", "T", "C"}
        op: A, its transpose, or its conjugate transpose.
    device : str or LiveDevice, optional
        Where NumPy's arrays are solved for, and products of `DoubleDouble` run.

    Returns
    -------
    array, of b's shape
        The solution, in lu's precision.

    Raises
    ------
    TypeError
        If `b` is no array, or `factored` no pair of them.
    ValueError
        If b does not fit, is of no numbers, or is complex and A is not; or if `factored` is not
        what `lu_factor` returns.
    """
    op = Trans.parse(trans, "trans")
    if op == Trans.R:
        raise ValueError(f"trans={op.value!r} is not for systems; give N, T or C")
    refuse_masked(factored=factored, b=b)
    adapter = _adapter_of(*factored, b) if isinstance(factored, tuple | list) else None
    if adapter is not None and len(factored) == 2:
        return _solved_on_device(adapter, *factored, b, op, device)
    lu, pivots = _factors(factored)
    n = len(lu)
    if not isinstance(b, np.ndarray | DoubleDouble):
        raise TypeError(f"b is a {type(b).__name__}; give np.asarray(b), or a DoubleDouble")
    if b.ndim not in (1, 2) or len(b) != n:
        raise ValueError(f"b.shape={b.shape} should be {(n,)}, or {n} rows of right-hand sides")
    if isinstance(b, np.ndarray) and (b.dtype.kind not in "biufcV" or b.dtype.type is np.void):
        raise ValueError(f"b.dtype={b.dtype} is of no numbers; give b.astype({lu.dtype.name!r})")
    if _is_complex(b) and not _is_complex(lu):
        raise ValueError("b is complex but a is real; factor a * (1 + 0j)")
    if isinstance(lu, DoubleDouble):
        x: Any = DoubleDouble(b) + DoubleDouble(0j if lu.is_complex else 0)
    else:
        x = np.array(b, lu.dtype, order="C")
    sides = x[:, None] if b.ndim == 1 else x
    if 0 in sides.shape:
        return x
    live = _cuda_device(lu, device)
    if live is not None:
        _on_device().solve_numpy(live, lu, pivots, sides, op)
        return x
    solve = _lapack("getrs", lu, device)
    if solve is not None:
        return solve(lu, pivots, x, trans="NTC".index(op.value))[0]
    order = list(range(n))
    for i, pivot in enumerate(pivots.tolist()):
        order[i], order[pivot] = order[pivot], order[i]
    if not op.transposed:
        _rearrange(sides, np.array(order))
        _solve(lu, sides, device, upper=False, unit=True)
        _solve(lu, sides, device, upper=True, unit=False)
    else:
        turned = lu.conj().T if op.conjugated else lu.T
        _solve(turned, sides, device, upper=False, unit=False)
        _solve(turned, sides, device, upper=True, unit=True)
        _rearrange(sides, np.argsort(order))
    return x


def _solved_on_device(adapter: Any, lu: Any, pivots: Any, b: Any, op: Trans, device: Any) -> Any:
    """Return the solution for arrays on a device, of which values are not looked at."""
    _check_on_device(adapter, "lu", lu, device)
    n = lu.shape[0]
    if tuple(pivots.shape) != (n,) or "int" not in str(pivots.dtype):
        raise ValueError(
            f"pivots.shape={tuple(pivots.shape)}, of {pivots.dtype}, should be {n} integers;"
            " give the pivots of lu_factor"
        )
    if b.ndim not in (1, 2) or b.shape[0] != n:
        shape = tuple(b.shape)
        raise ValueError(f"b.shape={shape} should be {(n,)}, or {n} rows of right-hand sides")
    if b.dtype != lu.dtype:
        raise ValueError(f"b.dtype={b.dtype} but lu.dtype={lu.dtype}; convert b")
    return _on_device().solve(adapter, lu, pivots, b, op)


def _factors(factored: Any) -> tuple[Matrix, NDArray[np.intp]]:
    """Return a matrix and pivots that fit it: LAPACK would write where others point."""
    if not isinstance(factored, tuple | list) or len(factored) != 2:
        raise TypeError(f"factored={shown(factored)} is no pair; give what lu_factor returned")
    lu, pivots = factored
    _check_square(lu, "factored[0]")
    _check_type(lu, "factored[0]")
    try:
        rows = np.asarray(pivots)
    except ValueError:
        rows = np.zeros(0, object)
    if rows.shape != (len(lu),) or (rows.size and rows.dtype.kind not in "iu"):
        raise ValueError(
            f"factored[1]={shown(pivots)} should be {len(lu)} integers, the pivots of lu_factor"
        )
    if rows.size and not 0 <= rows.min() <= rows.max() < len(lu):
        raise ValueError(
            f"factored[1]={shown(pivots)} names rows beyond 0 to {len(lu) - 1};"
            " give the pivots of lu_factor"
        )
    return lu, rows.astype(np.intp)


def _check_type(a: Matrix, name: str = "a") -> None:
    try:
        precision_of(a.dtype)
    except ValueError as error:
        raise ValueError(f"{name}.{error}") from None


def _check_square(a: Matrix, name: str = "a") -> None:
    if not isinstance(a, np.ndarray | DoubleDouble):
        given = f"{name} is a {type(a).__name__}"
        raise TypeError(f"{given}; give np.asarray({name}), or a DoubleDouble")
    if isinstance(a, np.ndarray):
        on_numpy.view(name, a)
    if a.ndim != 2 or a.shape[0] != a.shape[1]:
        raise ValueError(f"{name}.shape={a.shape} is not square; give an n x n matrix")


def _is_complex(x: Matrix) -> bool:
    return x.is_complex if isinstance(x, DoubleDouble) else np.iscomplexobj(x)


@np.errstate(all="ignore")
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
    x, b : ndarray or DoubleDouble, shape (n,) or (n, r)
        The solution and the right-hand side; of several the largest residual is returned.

    Raises
    ------
    ValueError
        If shapes are others; the message names the argument.
    """
    refuse_masked(a=a, x=x, b=b)
    _check_square(a)
    _check_type(a)
    several = len(np.shape(b)) == 2 and len(b) == len(a)
    wanted = np.shape(b) if several else a.shape[:1]
    for name, given in (("x", x), ("b", b)):
        if np.shape(given) != wanted:
            raise ValueError(f"{name}.shape={np.shape(given)} should be {wanted}")
    if not len(a):
        return 0.0
    if isinstance(a, DoubleDouble):
        x, b = DoubleDouble(x), DoubleDouble(b)
        sides = [(x[:, j], b[:, j]) for j in range(wanted[1])] if several else [(x, b)]
        return float(np.max([_double_double_residual(a, *side) for side in sides], initial=0.0))
    wide = np.clongdouble if any(map(np.iscomplexobj, (a, x, b))) else np.longdouble
    aw, xw, bw = (np.asarray(v).astype(wide) for v in (a, x, b))
    top = np.abs(aw @ xw - bw).max(axis=0)
    norms = np.abs(aw).sum(axis=1).max() * np.abs(xw).max(axis=0) + np.abs(bw).max(axis=0)
    unit = precision_of(a.dtype).unit_roundoff
    each = np.divide(top, unit * norms * len(a), where=top != 0, out=np.zeros_like(top))
    return float(np.max(each, initial=0.0))


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
