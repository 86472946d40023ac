"""Arrays of 8- and 16-bit numbers: on tensor cores as they are, elsewhere in single precision.

Where a device has tensor cores that are proved (`products.py`), they take
the elements as they lie and add in float32, or exactly in int32.  Elsewhere elements become
float32, which holds each of them, and the kernels for single precision multiply; sums of int8 are
cut where they would no longer be exact.  Either way results are rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.problem import Trans
from tilewright.serve.arrange import shapes_of
from tilewright.serve.checks import scalars_of
from tilewright.serve.narrow.arrays import Arrays, ExportedArrays, LibraryArrays, arrays_of
from tilewright.serve.narrow.calls import Call, on_arrays_device, on_host
from tilewright.serve.narrow.types import results_of, short_precision, type_name
from tilewright.serve.overlap import overlaps_itself, refuse_overlap

if TYPE_CHECKING:
    from tilewright.serve.triangle import Triangle

__all__ = ["narrow_gemm"]

InSingle = Callable[[Any, Any, Any, Any, Any], Any]
"""Takes x, y, c, alpha and beta, arrays of float32; changes and returns c, or a new array."""

# (-128)^2 is 2^14: so many products sum up to at most 2^24, which float32 holds exactly.
_EXACT_K = 1024


def narrow_gemm(
    in_single: InSingle,
    a: Any,
    b: Any,
    c: Any,
    alpha: complex,
    beta: complex,
    trans_a: str | Trans,
    trans_b: str | Trans,
    out_dtype: Any,
    device: str | LiveDevice | None,
    *,
    triangle: Triangle | None = None,
    invariant: bool = False,
) -> Any:
    """Return alpha op(a) op(b) + beta c; see `tilewright.gemm`.

    Where no tensor cores serve, `in_single` multiplies float32 arrays as the caller's call asks.
    With a triangle that part of the result, b being a; with `invariant` bits do not depend on m.

    Raises
    ------
    ValueError, TypeError
        If an argument is wrong; the message names it.
    MemoryError
        If there is no room for the product.
    """
    library = arrays_of(a, b, c)
    rest: dict[str, Any] = {
        "trans_a": trans_a,
        "trans_b": trans_b,
        "device": device,
        "triangle": triangle,
        "invariant": invariant,
    }
    if isinstance(library, ExportedArrays):
        return _exported(in_single, library, (a, b, c), alpha, beta, out_dtype, rest)
    out = _checked(library, a, b, c, out_dtype)
    made = _on_tensor_cores(library, a, b, c, alpha, beta, out, out_dtype, rest)
    if made is not None:
        return made
    try:
        if out == "int32":
            made = _integers(in_single, library, a, b, c, alpha, beta, rest)
        else:
            made = _floats(in_single, library, a, b, c, alpha, beta)
    except MemoryError:  # which tells of a result in float32
        raise MemoryError(
            f"a.dtype={a.dtype} is multiplied in float32 here, and there is no room for copies"
            " and a product in it; multiply parts"
        ) from None
    if c is None:
        return library.cast(made, out)
    library.put(c, made)
    return c


def _checked(library: Arrays, a: Any, b: Any, c: Any, out_dtype: Any) -> str:
    """Return the name of the result's type, once the arrays are known to go together."""
    kind = type_name(a.dtype)
    for name, x in (("a", a), ("b", b), ("c", c)):
        if x is not None:
            library.check(name, x)
    if type_name(b.dtype) != kind:
        raise ValueError(f"b.dtype={b.dtype} but a.dtype={a.dtype}; convert one with astype")
    out = _out(library, kind, c, out_dtype)
    if c is not None:
        if overlaps_itself(c.shape, library.steps(c)):
            raise ValueError("c overlaps itself; give c memory of its own")
        refuse_overlap(library.shared, c, a=a, b=b)
    return out


def _on_tensor_cores(
    library: Arrays, a: Any, b: Any, c: Any, alpha: Any, beta: Any, out: str, asked: Any,
    rest: dict[str, Any],
) -> Any:  # fmt: skip
    """Return the result of tensor cores; None where there are none, or nothing for them."""
    op_a, op_b = Trans.parse(rest["trans_a"], "trans_a"), Trans.parse(rest["trans_b"], "trans_b")
    batch, m, n, k = shapes_of(a, b, c, op_a, op_b)
    alpha, beta = scalars_of(alpha, beta, c, whole=out == "int32")
    if 0 in (*batch, m, n, k) or alpha == 0:  # nothing is multiplied
        return None
    of = short_precision(type_name(a.dtype), out)
    call = Call(
        of, m, n, k, alpha, beta, op_a, op_b,
        triangle=rest["triangle"], invariant=rest["invariant"],
    )  # fmt: skip
    if isinstance(a, np.ndarray):
        if batch:  # travels in pieces, in single precision
            return None
        return on_host(call, a, b, c, rest["device"])
    if rest["device"] is not None:  # which is refused elsewhere
        return None
    return on_arrays_device(call, library, a, b, c, asked)


def _exported(
    in_single: InSingle, library: ExportedArrays, given: tuple[Any, Any, Any], alpha: Any,
    beta: Any, out_dtype: Any, rest: dict[str, Any],
) -> Any:  # fmt: skip
    """Return the product of DLPack arrays: in place on tensor cores, else through CuPy."""
    a, b = (library.adapter.view(name, x) for name, x in zip("ab", given[:2], strict=True))
    c = None if given[2] is None else library.adapter.view("c", given[2])
    out = _checked(library, a, b, c, out_dtype)
    made = _on_tensor_cores(library, a, b, c, alpha, beta, out, out_dtype, rest)
    if made is not None:
        return made
    try:
        import cupy
    except ImportError:
        raise ValueError(
            f"{type(given[0]).__name__} of {type_name(a.dtype)} is converted by CuPy here;"
            " install it, or give float32"
        ) from None
    with library.adapter.on_stream(cupy, a.ordinal):
        x, y, z = (None if one is None else cupy.from_dlpack(one) for one in given)
        made = narrow_gemm(in_single, x, y, z, alpha, beta, out_dtype=out_dtype, **rest)
    return made if given[2] is None else given[2]


def _out(library: Arrays, kind: str, c: Any, out_dtype: Any) -> str:
    """Return the name of the result's type."""
    able = results_of(kind)
    out = able[0] if out_dtype is None else library.out_name(out_dtype)
    if out not in able:
        raise ValueError(f"out_dtype={out_dtype!r} is not for {kind}; use {' or '.join(able)}")
    if c is None:
        return out
    held = type_name(c.dtype)
    if held not in able or (out_dtype is not None and held != out):
        wanted = out if out_dtype is not None else " or ".join(able)
        raise ValueError(f"c.dtype={c.dtype} does not hold the result; give {wanted}")
    return held


def _floats(
    in_single: InSingle, library: LibraryArrays, a: Any, b: Any, c: Any, alpha: Any, beta: Any
) -> Any:
    """Return the result in float32."""
    wide = None if c is None else library.cast(c, "float32")
    if wide is c and c is not None:
        wide = c * 1
    x, y = library.cast(a, "float32"), library.cast(b, "float32")
    return in_single(x, y, wide, alpha, beta)


def _integers(
    in_single: InSingle,
    library: LibraryArrays,
    a: Any,
    b: Any,
    c: Any,
    alpha: Any,
    beta: Any,
    rest: Any,
) -> Any:
    """Return the result in 64-bit integers: the sum over k in exact pieces."""
    alpha, beta = scalars_of(alpha, beta, c, whole=True)
    op_a, op_b = Trans.parse(rest["trans_a"], "trans_a"), Trans.parse(rest["trans_b"], "trans_b")
    across_a, across_b = op_a.transposed, op_b.transposed
    *_, k = shapes_of(a, b, c, op_a, op_b)
    total = None
    for start in range(0, max(1, k), _EXACT_K):
        part = slice(start, start + _EXACT_K)
        x = library.cast(a[..., part, :] if across_a else a[..., part], "float32")
        y = library.cast(b[..., part] if across_b else b[..., part, :], "float32")
        piece = library.cast(in_single(x, y, None, 1, 0), "int64")
        total = piece if total is None else total + piece
    assert total is not None
    made, triangle = total * alpha, rest["triangle"]
    if c is None:
        return library.cast(made, "int32")
    old = library.cast(c, "int64")
    if beta != 0:
        made = made + old * beta
    if triangle is not None:  # the other one stays as it is
        made, kept = (library.triangle(x, lower=triangle.lower) for x in (made, old))
        made = made + old - kept
    return library.cast(made, "int32")
