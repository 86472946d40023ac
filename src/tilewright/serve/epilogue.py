"""What may follow a product before it is rounded: scales, a bias, an activation.

    c <- activation(alpha scale_a[i] scale_b[j] (op(a) op(b))[i, j]  +  beta c  +  bias)

Where tensor cores take short operands the kernel applies it to its sums (`tilewright.serve.fused`).
Elsewhere a product by the call's own route comes first, 8- and 16-bit numbers' in float32, and the
arrays' library does the rest, in the sums' precision; either way results are rounded once.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.problem import Trans
from tilewright.serve.narrow_types import (
    is_narrow,
    results_of,
    short_precision,
    type_name,
)
from tilewright.text import shown

if TYPE_CHECKING:
    from tilewright.precision import Precision
    from tilewright.serve.narrow_calls import Call

__all__ = ["Epilogue", "gemm_then"]

_ACTIVATIONS = (None, "relu", "gelu", "gelu_tanh")
_FLOATS = ("float32", "float64")
_COMPLEX = ("complex64", "complex128")


@dataclass(frozen=True, eq=False)
class Epilogue:
    """What follows a product.

    Parameters
    ----------
    bias : array, optional
        Added: n numbers, or 1 x n, of which each column has its own; or m x 1, each row.  Of the
        result's type, or float32 where that is shorter.
    activation : {None, "relu", "gelu", "gelu_tanh"}
        "gelu" is x Phi(x) by the error function, PyTorch's ``approximate="none"``; "gelu_tanh" its
        ``approximate="tanh"``.  Infinities and NaN are those of the formula; relu keeps NaN.
    scale_a, scale_b : array, optional
        Factors of the product's rows, m numbers or m x 1, and of its columns, n or 1 x n.

    Raises
    ------
    ValueError
        If the activation is unknown.
    """

    bias: Any = None
    activation: str | None = None
    scale_a: Any = None
    scale_b: Any = None

    def __post_init__(self) -> None:
        if self.activation not in _ACTIVATIONS:
            known = ", ".join(map(repr, _ACTIVATIONS))
            raise ValueError(f"activation={shown(self.activation)} is unknown; use {known}")


@dataclass(frozen=True)
class Vectors:
    """An epilogue's vectors, checked: one-dimensional, of the arrays' library."""

    scale_a: Any
    scale_b: Any
    bias: Any
    bias_of_rows: bool
    activation: str | None


def gemm_then(
    epilogue: Epilogue,
    a: Any,
    b: Any,
    c: Any,
    alpha: complex,
    beta: complex,
    trans_a: str | Trans,
    trans_b: str | Trans,
    out_dtype: Any,
    rest: dict[str, Any],
) -> Any:
    """Return activation(alpha scale (op(a) op(b)) + beta c + bias); see `tilewright.gemm`.

    `rest` is accuracy, report and device, as `gemm` takes them.

    Raises
    ------
    ValueError, TypeError
        If an argument is wrong, or arrays are of a library that computes nothing else.
    """
    from tilewright.serve.batches import shapes_of

    if not isinstance(epilogue, Epilogue):
        raise TypeError(f"epilogue is a {type(epilogue).__name__}; give a tilewright.Epilogue")
    library = _library(a, b, c)
    op_a, op_b = Trans.parse(trans_a, "trans_a"), Trans.parse(trans_b, "trans_b")
    batch, m, n, k = shapes_of(a, b, c, op_a, op_b)
    if batch:
        raise ValueError(
            f"a.shape={tuple(a.shape)}: an epilogue is for two dimensions; leave it out"
        )
    out = _out(library, a, c, out_dtype)
    vectors = _vectors(library, epilogue, m, n, out)
    _check(library, a, b, c, alpha, beta, vectors, out)
    if 0 in (m, n):
        return library.cast(library.zeros(a, m, n, "float32"), out) if c is None else c
    kind = type_name(a.dtype)
    if is_narrow(a) and k and alpha != 0 and library.on_device:
        from tilewright.serve.narrow_calls import Call

        scalars = complex(alpha).real, complex(beta).real
        call = Call(_precision(kind, out), m, n, k, *scalars, op_a, op_b)
        arrays = library.arrays(a, b, c)
        made = None if rest["device"] else _fused(arrays, call, a, b, c, vectors)
        if made is not None:
            return made
    return _behind(library, a, b, c, alpha, beta, (m, n), (op_a, op_b), out, vectors, rest)


def _precision(kind: str, out: str) -> Precision:
    """Return the precision of short operands with an epilogue, whose sums become floats."""
    usual = results_of(kind)
    of = short_precision(kind, out if out in usual else usual[0])
    return replace(of, result_name=out, sum_name="float32")


def _check(
    library: _Library, a: Any, b: Any, c: Any, alpha: Any, beta: Any, vectors: Vectors, out: str
) -> None:
    """Refuse what no product with such an epilogue is."""
    from tilewright.precision import precision
    from tilewright.serve.gemm import check_scalars

    if out in _COMPLEX and vectors.activation:
        raise ValueError(
            f"activation={vectors.activation!r} is of real numbers, not {out}; leave it out"
        )
    letters = {"float64": "d", "complex64": "c", "complex128": "z"}
    check_scalars(alpha, beta, precision(letters.get(out, "s")), c)
    arrays = library.arrays(a, b, c)
    for name, x in (("a", a), ("b", b), ("c", c)):
        if x is not None:
            arrays.check(name, x)
    for name, x in (("a", a), ("b", b)):
        if c is not None and arrays.shared(x, c):
            raise ValueError(f"c overlaps {name}; give c memory of its own")


def _fused(library: Any, call: Call, a: Any, b: Any, c: Any, vectors: Vectors) -> Any:
    """Return the result of one kernel; None where there is none for the arrays."""
    from tilewright.backend import BackendError
    from tilewright.serve.fused import Then
    from tilewright.serve.narrow_calls import on_arrays_device

    out, bias = call.precision.result_name, vectors.bias
    narrow = bias is not None and type_name(bias.dtype) == out
    places = [
        (0, None) if x is None else _placed(library, x, out if narrow and x is bias else "float32")
        for x in (vectors.scale_a, vectors.scale_b, bias)
    ]
    of_a, of_b, biased = (kept is not None for _, kept in places)
    then = Then(of_a, of_b, biased, vectors.bias_of_rows, narrow, vectors.activation)
    addresses = tuple(at for at, _ in places)
    try:
        return on_arrays_device(replace(call, then=then, vectors=addresses), library, a, b, c, None)
    except BackendError:  # neither machine code nor a compiler is here
        return None


def _placed(library: Any, x: Any, kind: str) -> tuple[int, Any]:
    """Return the address of a vector's numbers side by side, and what must live until then."""
    x = x if type_name(x.dtype) == kind else library.cast(x, kind)
    view = library.view("epilogue", x)
    if view.strides[0] != view.dtype.itemsize:
        view = library.view("epilogue", x * 1)
    return view.address, view


def _behind(
    library: _Library,
    a: Any,
    b: Any,
    c: Any,
    alpha: Any,
    beta: Any,
    size: tuple[int, int],
    operations: tuple[Trans, Trans],
    out: str,
    vectors: Vectors,
    rest: dict[str, Any],
) -> Any:
    """Return the result by a product first."""
    from tilewright.serve.gemm import gemm

    kind = type_name(a.dtype)
    wide = kind if kind in (*_FLOATS, *_COMPLEX) else "float32"
    if alpha == 0:  # neither a nor b is read
        v = library.zeros(a, *size, wide)
    else:
        asked = "float32" if is_narrow(a) and kind != "int8" else None
        trans_a, trans_b = operations
        product = gemm(a, b, trans_a=trans_a, trans_b=trans_b, out_dtype=asked, **rest)
        v = library.cast(product, wide) * alpha
    if vectors.scale_a is not None:
        v = v * library.cast(vectors.scale_a, wide)[:, None]
    if vectors.scale_b is not None:
        v = v * library.cast(vectors.scale_b, wide)
    if beta != 0:
        v = v + library.cast(c, wide) * beta
    if vectors.bias is not None:
        bias = library.cast(vectors.bias, wide)
        v = v + (bias[:, None] if vectors.bias_of_rows else bias)
    v = library.activated(v, vectors.activation)
    if c is None:
        return library.cast(v, out)
    library.put(c, v)
    return c


def _out(library: _Library, a: Any, c: Any, out_dtype: Any) -> str:
    """Return the name of the result's type."""
    kind = type_name(a.dtype)
    if kind in (*_FLOATS, *_COMPLEX):
        able: tuple[str, ...] = (kind,)
    elif kind == "int8":  # what follows sums of integers is of floats
        able = ("float32", "float16", "bfloat16")
    else:
        able = results_of(kind)
    asked = None if out_dtype is None else type_name(library.dtype(out_dtype))
    held = asked if c is None else type_name(c.dtype)
    if asked not in (None, held) or (held is not None and held not in able):
        wrong = f"out_dtype={shown(out_dtype)}" if c is None else f"c.dtype={c.dtype}"
        raise ValueError(
            f"{wrong} does not go with {kind} and an epilogue; use {' or '.join(able)}"
        )
    return held or able[0]


def _vectors(library: _Library, epilogue: Epilogue, m: int, n: int, out: str) -> Vectors:
    """Return an epilogue's vectors as one-dimensional arrays."""
    rows, columns = ((m,), (m, 1)), ((n,), (1, n))
    scale_a = _vector(library, "scale_a", epilogue.scale_a, rows, out)
    scale_b = _vector(library, "scale_b", epilogue.scale_b, columns, out)
    of_rows = epilogue.bias is not None and tuple(epilogue.bias.shape) == (m, 1) != (1, n)
    bias = _vector(library, "bias", epilogue.bias, rows[1:] if of_rows else columns, out)
    return Vectors(scale_a, scale_b, bias, of_rows, epilogue.activation)


def _vector(
    library: _Library, name: str, x: Any, shapes: tuple[tuple[int, ...], ...], out: str
) -> Any:
    if x is None:
        return None
    if not library.owns(x):
        raise TypeError(f"{name} is a {type(x).__name__}; give an array of the operands' kind")
    if tuple(x.shape) not in shapes:
        wanted = " or ".join(map(str, shapes))
        raise ValueError(f"{name}.shape={tuple(x.shape)} does not fit; give {wanted}")
    able = {out, "float32"} if out not in ("float64", *_COMPLEX) else {out, "float64"}
    if out == "complex64":
        able = {out, "float32"}
    if type_name(x.dtype) not in able:
        raise ValueError(f"{name}.dtype={x.dtype} does not fit; use {' or '.join(sorted(able))}")
    return x.reshape(-1)


# -- libraries ---------------------------------------------------------------------------


class _Library:
    """What an epilogue asks of an array library; this is NumPy's and CuPy's."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.on_device = module is not np

    def owns(self, x: Any) -> bool:
        return isinstance(x, self.module.ndarray)

    def arrays(self, a: Any, b: Any, c: Any) -> Any:
        from tilewright.serve.narrow_arrays import arrays_of

        return arrays_of(a, b, c)

    def dtype(self, x: Any) -> Any:
        return np.dtype(x) if x != "bfloat16" else x

    def cast(self, x: Any, name: str) -> Any:
        return x if type_name(x.dtype) == name else self.arrays(x, x, None).cast(x, name)

    def put(self, c: Any, values: Any) -> None:
        self.arrays(c, c, None).put(c, values)

    def zeros(self, like: Any, m: int, n: int, name: str) -> Any:
        return self.module.zeros((m, n), name)

    def activated(self, v: Any, activation: str | None) -> Any:
        xp = self.module
        with np.errstate(over="ignore", invalid="ignore"):
            if activation == "relu":
                return xp.where(v < 0, v.dtype.type(0), v)
            if activation == "gelu":
                return v * 0.5 * (1 + self.erf(v * math.sqrt(0.5)))
            if activation == "gelu_tanh":
                return v * 0.5 * (1 + xp.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v * v * v)))
        return v

    def erf(self, x: Any) -> Any:
        if self.on_device:
            from importlib import import_module

            return import_module("cupyx.scipy.special").erf(x)
        return np.vectorize(math.erf, otypes=[x.dtype])(x)


class _Torch(_Library):
    """PyTorch's tensors on a CUDA device."""

    def __init__(self, module: ModuleType) -> None:
        self.module, self.on_device = module, True

    def owns(self, x: Any) -> bool:
        return isinstance(x, self.module.Tensor) and bool(x.is_cuda)

    def dtype(self, x: Any) -> Any:
        return x

    def zeros(self, like: Any, m: int, n: int, name: str) -> Any:
        return self.module.zeros((m, n), dtype=getattr(self.module, name), device=like.device)

    def activated(self, v: Any, activation: str | None) -> Any:
        functional = self.module.nn.functional
        if activation == "relu":
            return functional.relu(v)
        if activation is None:
            return v
        return functional.gelu(v, approximate="none" if activation == "gelu" else "tanh")


def _library(a: Any, b: Any, c: Any) -> _Library:
    """Return whose arrays these are.

    Raises
    ------
    TypeError
        If they are of no library that an epilogue is computed in.
    """
    given = [x for x in (a, b, c) if x is not None]
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    able: list[_Library] = [_Library(np)]
    able += [_Library(cupy)] if cupy is not None else []
    able += [_Torch(torch)] if torch is not None else []
    for one in able:
        if all(map(one.owns, given)):
            return one
    kinds = ", ".join(f"{type(x).__module__.split('.')[0]}.{type(x).__name__}" for x in given)
    raise TypeError(f"epilogue: a, b and c are {kinds}; give NumPy's, CuPy's or CUDA tensors alone")
