"""syrk() and herk(): products of a matrix with its own transpose, half of which is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.problem import Trans
from tilewright.serve import warm
from tilewright.serve.accuracy import arithmetic_of, refuse_contract, with_accuracy
from tilewright.serve.arrange import shapes_of
from tilewright.serve.arrays.adapters import adapter_of
from tilewright.serve.checks import check_given, check_scalars, one_precision
from tilewright.serve.narrow.types import is_narrow
from tilewright.serve.request import Request
from tilewright.serve.triangle import Triangle
from tilewright.text import shown

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice

__all__ = ["herk", "syrk"]

_SCALARS = frozenset((int, float, complex, np.float64, np.float32))


def syrk(
    a: Any,
    c: Any = None,
    *,
    alpha: complex = 1,
    beta: complex = 0,
    trans: str | Trans = "N",
    uplo: str = "L",
    accuracy: str = "ieee",
    out_dtype: Any = None,
    device: str | LiveDevice | None = None,
) -> Any:
    """Return alpha op(a) op(a)^T + beta c, of which one triangle is computed: a rank-k update.

    Parameters
    ----------
    a : array
        As of `tilewright.gemm`; op(a) is n x k.
    c : array, optional
        n x n, of the same kind and dtype; changed in place and returned.  Only the triangle `uplo`
        is read and written.  Without it a new array is returned, as of `tilewright.gemm`, with both
        triangles: a symmetric matrix, as ``a @ a.T`` is.
    alpha, beta : scalar
        As of `tilewright.gemm`.
    trans : {"N", "T"}
        op; "C" is "T" on real data, and refused on complex data.
    uplo : {"L", "U"}
        The triangle below the diagonal or the one above, either with the diagonal.  Without `c` it
        makes no difference to what is returned, but for roundings.
    accuracy, out_dtype, device
        As of `tilewright.gemm`.

    Returns
    -------
    array
        `c`, or a new array of a's kind.

    Raises
    ------
    ValueError
        If an argument is wrong; the message names it.
    TypeError
        If `a` and `c` are not arrays of one kind.
    BackendError
        If the device refuses to compile or to run a kernel.

    Notes
    -----
    The contract is `tilewright.gemm`'s: with beta = 0, `c` is not read; with alpha = 0, `a` is not;
    `c` must not overlap `a`; equal calls give equal bits.
    """
    return _update(a, c, alpha, beta, trans, uplo, accuracy, out_dtype, device, hermitian=False)


def herk(
    a: Any,
    c: Any = None,
    *,
    alpha: float = 1,
    beta: float = 0,
    trans: str | Trans = "N",
    uplo: str = "L",
    accuracy: str = "ieee",
    out_dtype: Any = None,
    device: str | LiveDevice | None = None,
) -> Any:
    """Return alpha op(a) op(a)^H + beta c, of which one triangle is computed.

    As `syrk`, but that op(a) is a or its conjugate transpose (`trans` is "N" or "C", which on real
    data is "T"), `alpha` and `beta` are real, and the result's diagonal is exactly real: imaginary
    parts of c's are not read.
    """
    return _update(a, c, alpha, beta, trans, uplo, accuracy, out_dtype, device, hermitian=True)


def _update(
    a: Any, c: Any, alpha: Any, beta: Any, trans: Any, uplo: Any, accuracy: Any, out_dtype: Any,
    device: Any, *, hermitian: bool,
) -> Any:  # fmt: skip
    op = trans.upper() if type(trans) is str else trans
    side = uplo.upper() if isinstance(uplo, str) else uplo
    other = ("C" if hermitian else "T") if op == "N" else "N"
    if warm.looks.get(type(a)) is warm.again and type(beta) in _SCALARS and side in ("L", "U"):
        known = warm.of_triangle(side == "L", beta != 0, accuracy)
        made = warm.again(a, a, c, alpha, beta, op, other, known, out_dtype, device)
        if made is not None:
            return made
    if side not in ("L", "U"):
        raise ValueError(f"uplo={shown(uplo)} is no triangle; use L or U")
    check_given(a, a)
    shape = tuple(getattr(a, "shape", (0, 0)))
    if len(shape) != 2:
        raise ValueError(f"a.shape={shape} is not a matrix; give two dimensions")
    triangle = Triangle(side == "L", hermitian, filled=c is None)
    op_a = Trans.parse(trans, "trans")
    options = {
        "alpha": alpha, "beta": beta, "trans": trans, "uplo": side, "accuracy": accuracy,
        "out_dtype": out_dtype, "device": device,
    }  # fmt: skip
    if not isinstance(a, np.ndarray) and hasattr(a, "__dlpack_device__"):
        from tilewright.serve.arrays.host_dlpack import through_numpy

        made = through_numpy(herk if hermitian else syrk, {"a": a}, c, **options)
        if made is not None:
            return made
    adapter = None if is_narrow(a) else adapter_of(a, a, c)
    given, a = a, a if adapter is None else adapter.view("a", a)
    if adapter is None or is_narrow(a):
        from tilewright.serve.narrow.serve import narrow_gemm

        refuse_contract(accuracy, None)
        part = Triangle(triangle.lower, filled=triangle.filled)  # of real numbers

        def in_single(x: Any, _: Any, wide: Any, alpha: Any, beta: Any) -> Any:
            return syrk(x, wide, alpha=alpha, beta=beta, trans=op_a, uplo=side, device=device)

        return narrow_gemm(
            in_single, given, given, c, alpha, beta, op_a, other, out_dtype, device, triangle=part
        )
    if out_dtype is not None:
        raise ValueError(f"out_dtype={out_dtype!r} is for arrays of 8 and 16 bits; leave it out")
    if not hasattr(a, "strides"):
        raise ValueError(f"a is a {type(given).__name__}, no matrix in memory; give a NumPy array")
    return _wide(
        adapter, a, c, alpha, beta, (op_a, Trans.parse(other, "trans")), triangle, accuracy, device
    )


def _wide(
    adapter: Any, a: Any, c: Any, alpha: Any, beta: Any, operations: tuple[Trans, Trans],
    triangle: Triangle, accuracy: str, device: Any,
) -> Any:  # fmt: skip
    """Return the update of numbers that kernels take in their own precision; a is a view."""
    op_a, op_b = operations
    hermitian = triangle.hermitian
    c = None if c is None else adapter.view("c", c)
    precision = with_accuracy(one_precision(a, a, c), accuracy)
    _check_operation(op_a, precision.is_complex, hermitian)
    if precision.parts == 2:
        from tilewright.serve.arrays.double_double.scalars import pairs_of

        alpha, beta = pairs_of(alpha, beta)
    _, n, _, k = shapes_of(a, a, c, op_a, op_b)
    check_scalars(alpha, beta, precision, c)
    for name, value in (("alpha", alpha), ("beta", beta)) if hermitian else ():
        if complex(value).imag != 0:
            raise ValueError(f"{name}={shown(value)} is complex; a Hermitian update has real ones")
    if precision.is_complex is False:
        triangle = Triangle(triangle.lower, False, triangle.filled)
    if c is None:
        c = adapter.empty_like(a, (n, n))
    request = Request(
        precision, n, n, k, alpha, beta, op_a, op_b, a, a, c, arithmetic_of(accuracy, precision),
        triangle=triangle,
    )  # fmt: skip
    # Without a product c stays as it is, but for what a Hermitian diagonal loses.
    if n and (triangle.hermitian or not ((k == 0 or alpha == 0) and beta == 1)):
        adapter.run(request, device)
    return adapter.result(c)


def _check_operation(op: Trans, is_complex: bool, hermitian: bool) -> None:
    """Refuse what is no symmetric, or no Hermitian, matrix."""
    wrong = Trans.T if hermitian else Trans.C
    if is_complex and op in (wrong, Trans.R):
        other, right = ("syrk", "N or C") if hermitian else ("herk", "N or T")
        raise ValueError(f"trans={op.value!r} is not for complex data; use {right}, or {other}")
    if op == Trans.R:
        raise ValueError(f"trans={op.value!r} is unknown; use N, T or C")
