"""What may follow a product before it is rounded: scales, a bias, an activation.

    c <- activation(alpha scale_a[i] scale_b[j] (op(a) op(b))[i, j]  +  beta c  +  bias)

Where tensor cores take short operands the kernel applies it to its sums (`serve.narrow.fused`).
Elsewhere a product by the call's own route comes first, 8- and 16-bit numbers' in float32, and the
arrays' library does the rest, in the sums' precision; either way results are rounded once.  A batch
of one b, whose rows follow each other, is one product with an epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.backend import BackendError
from tilewright.dataclass import dataclass
from tilewright.portfolio.find import generation
from tilewright.precision import Precision, precision
from tilewright.problem import Trans
from tilewright.serve.arenas import enqueue
from tilewright.serve.arrange import shapes_of
from tilewright.serve.calls import keep, kept
from tilewright.serve.checks import check_scalars, refuse_masked
from tilewright.serve.epilogue.arrays import Library, library_of
from tilewright.serve.narrow.types import NARROW, is_narrow, results_of, short_precision, type_name
from tilewright.serve.overlap import overlaps_itself, refuse_overlap
from tilewright.serve.plan import call_of
from tilewright.text import shown

if TYPE_CHECKING:
    from tilewright.serve.narrow.calls import Call

__all__ = ["Epilogue", "gemm_then"]

_ACTIVATIONS = (None, "relu", "gelu", "gelu_tanh")
_FLOATS = ("float32", "float64")
_COMPLEX = ("complex64", "complex128")

# `gemm`'s other arguments, as nearly all calls have them.
_USUAL = {
    "accuracy": "ieee", "report": None, "device": None, "max_device_memory": None,
    "max_host_memory": None, "max_workspace": None, "certify": False,
}  # fmt: skip

# Calls with larger scalars have their closer look.
_MOST = 1e38


@dataclass(frozen=True, eq=False)
class Epilogue:
    """What follows a product.

    Parameters
    ----------
    bias : array, optional
        Added: n numbers or 1 x n, one for each column; or m x 1, one for each row.  Of the
        result's type, or float32 where the result's is shorter.
    activation : {None, "relu", "gelu", "gelu_tanh"}
        "gelu" is x Phi(x) by the error function, PyTorch's ``approximate="none"``; "gelu_tanh" its
        ``approximate="tanh"``.  Infinities and NaN are those of the formula; relu keeps NaN.
    scale_a, scale_b : array, optional
        Factors of the product's rows, m numbers or m x 1, and of its columns, n or 1 x n.

    Raises
    ------
    ValueError
        If the activation is unknown.

    Notes
    -----
    `gemm` refuses a `c` that shares memory with any of them, as with `a` and `b`.
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
class Kept:
    """A plan of a product with an epilogue, and what its result is."""

    live: Any
    plan: Any
    exchanged: bool
    shape: tuple[int, int]
    out: str


@dataclass(frozen=True)
class Vectors:
    """An epilogue's vectors, checked: one-dimensional, of the arrays' library."""

    scale_a: Any
    scale_b: Any
    bias: Any
    bias_of_rows: bool
    activation: str | None


def gemm_then(
    multiply: Callable[..., Any],
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

    `multiply` is gemm, where a product comes first; `rest` has its other arguments by name.

    Raises
    ------
    ValueError, TypeError
        If an argument is wrong, or the arrays' library is none that epilogues are computed by.
    """
    if not isinstance(epilogue, Epilogue):
        raise TypeError(f"epilogue is a {type(epilogue).__name__}; give a tilewright.Epilogue")
    library = library_of(a, b, c)
    key = None
    if is_narrow(a) and library.on_device and rest == _USUAL:
        key = _key(library, epilogue, a, b, c, (alpha, beta, trans_a, trans_b, out_dtype))
        made = None if key is None else _again(library, key, epilogue, a, b, c, alpha, beta)
        if made is not None:
            return made
    op_a, op_b = Trans.parse(trans_a, "trans_a"), Trans.parse(trans_b, "trans_b")
    batch, m, n, k = shapes_of(a, b, c, op_a, op_b)
    out = _out(library, a, c, out_dtype)
    vectors = _vectors(library, epilogue, m, n, out)
    _check(library, a, b, c, alpha, beta, vectors, out)
    # An empty sum stays empty whatever alpha is.
    alpha, beta = _number(alpha) if k else 0, _number(beta)
    shape = (*batch, m, n)
    with library.beside(a):
        if batch and op_a == Trans.N and _is_one(library, a, b, c, vectors):
            rows = prod(batch) * m
            x, z = (None if y is None else y.reshape(rows, y.shape[-1]) for y in (a, c))
            options = alpha, beta, trans_a, trans_b, out_dtype, rest
            made = gemm_then(multiply, epilogue, x, b, z, *options)
            return made.reshape(shape) if c is None else c
        multiplies = not batch and alpha != 0 and 0 not in shape
        if multiplies and is_narrow(a) and library.on_device and not rest["device"]:
            from tilewright.serve.narrow.calls import Call

            scalars = complex(alpha).real, complex(beta).real
            call = Call(_precision(type_name(a.dtype), out), m, n, k, *scalars, op_a, op_b)
            made = _fused(library, call, a, b, c, vectors, key)
            if made is not None:
                return made
        return _behind(multiply, library, a, b, c, alpha, beta, (op_a, op_b), out, vectors, rest)


def _is_one(library: Library, a: Any, b: Any, c: Any, vectors: Vectors) -> bool:
    """Whether a batch is one product: of one b, rows alike, which follow each other."""
    rows_alike = vectors.scale_a is None and not vectors.bias_of_rows
    dense = all(library.is_dense(x) for x in (a, c) if x is not None)
    return rows_alike and dense and len(b.shape) == 2


def _precision(kind: str, out: str) -> Precision:
    """Return the precision of short operands with an epilogue, whose sums become floats."""
    usual = results_of(kind)
    of = short_precision(kind, out if out in usual else usual[0])
    return replace(of, result_name=out, sum_name="float32")


def _check(
    library: Library, a: Any, b: Any, c: Any, alpha: Any, beta: Any, vectors: Vectors, out: str
) -> None:
    """Refuse what no product with such an epilogue is."""
    if type_name(b.dtype) != type_name(a.dtype):
        raise ValueError(f"b.dtype={b.dtype} but a.dtype={a.dtype}; convert one with astype")
    if out in _COMPLEX and vectors.activation:
        raise ValueError(
            f"activation={vectors.activation!r} is of real numbers, not {out}; leave it out"
        )
    letters = {"float64": "d", "complex64": "c", "complex128": "z"}
    check_scalars(alpha, beta, precision(letters.get(out, "s")), c)
    of_vectors = {"scale_a": vectors.scale_a, "scale_b": vectors.scale_b, "bias": vectors.bias}
    given = {name: x for name, x in {"a": a, "b": b, "c": c, **of_vectors}.items() if x is not None}
    for name, x in given.items():
        library.check(name, x)
        if library.place(x) != library.place(a):
            raise ValueError(
                f"{name} is on {library.place(x)} but a is on {library.place(a)};"
                " move them to one device"
            )
    if given.pop("c", None) is not None:
        if overlaps_itself(c.shape, library.steps(c)):
            raise ValueError("c overlaps itself; give c memory of its own")
        refuse_overlap(library.shared, c, **given)


def _fused(
    library: Library, call: Call, a: Any, b: Any, c: Any, vectors: Vectors, key: Hashable
) -> Any:
    """Return the result of one kernel; None where there is none for the arrays.

    Where its arguments are the caller's own vectors, later calls with this key start its plan.
    """
    from tilewright.serve.narrow.calls import on_arrays_device
    from tilewright.serve.narrow.fused import Then

    out, bias = call.precision.result_name, vectors.bias
    narrow = bias is not None and type_name(bias.dtype) == out
    given = vectors.scale_a, vectors.scale_b, bias
    places = [
        None if x is None else _placed(library, x, out if narrow and x is bias else "float32")
        for x in given
    ]
    of_a, of_b, biased = (place is not None for place in places)
    then = Then(of_a, of_b, biased, vectors.bias_of_rows, narrow, vectors.activation)
    addresses = tuple(0 if place is None else place.address for place in places)
    own = all(place is None or place.is_own for place in places)

    def told(live: Any, plan: Any, exchanged: bool) -> None:
        if own and key is not None:
            keep(key, Kept(live, plan, exchanged, (call.m, call.n), out))

    try:
        fused = replace(call, then=then, vectors=addresses)
        return on_arrays_device(fused, library, a, b, c, None, told)
    except BackendError:  # neither machine code nor a compiler is here
        return None


def _key(
    library: Library, epilogue: Epilogue, a: Any, b: Any, c: Any, options: tuple[Any, ...]
) -> Hashable:
    """Return what the plan of a call with an epilogue is kept by; None of one that is not kept."""
    alpha, beta, *others = options
    usual = all(type(x) in (int, float) and -_MOST < x < _MOST for x in (alpha, beta))
    vectors = epilogue.bias, epilogue.scale_a, epilogue.scale_b
    known = [x for x in (a, b, c, *vectors) if x is not None]
    if not usual or alpha == 0 or (c is None and beta != 0) or not all(map(library.own, known)):
        return None
    layouts = ["" if x is None else library.layout(x) for x in (a, b, c, *vectors)]
    if None in layouts:
        return None
    return "epilogue", library.name, generation(), epilogue.activation, *others, *layouts


def _again(
    library: Library, key: Hashable, epilogue: Epilogue, a: Any, b: Any, c: Any, alpha: Any,
    beta: Any,
) -> Any:  # fmt: skip
    """Start the plan of an earlier call like this one; None where there is none."""
    found: Kept | None = kept(key)
    vectors = epilogue.scale_a, epilogue.scale_b, epilogue.bias
    if found is None:
        return None
    if c is not None and any(x is not None and library.shared(x, c) for x in (a, b, *vectors)):
        return None
    target = library.empty(a, found.shape, found.out) if c is None else c
    first, second = (b, a) if found.exchanged else (a, b)
    stream = library.stream(found.live.ordinal)
    native = call_of(
        library.address(first), library.address(second), library.address(target), alpha, beta,
        stream, vectors=[0 if x is None else library.address(x) for x in vectors],
    )  # fmt: skip
    enqueue(found.live, found.plan, native, stream, library.memory)
    return target


@dataclass(frozen=True)
class _Place:
    """A vector's numbers side by side: where, and what must live until a kernel is enqueued."""

    address: int
    view: Any
    is_own: bool  # whether they are where the caller has them


def _placed(library: Library, x: Any, kind: str) -> _Place:
    cast = library.cast(x, kind)
    view = library.view("epilogue", cast)
    apart = view.strides[0] != view.dtype.itemsize
    if apart:
        view = library.view("epilogue", cast * 1)
    return _Place(view.address, view, cast is x and not apart)


def _behind(
    multiply: Callable[..., Any],
    library: Library,
    a: Any,
    b: Any,
    c: Any,
    alpha: Any,
    beta: Any,
    operations: tuple[Trans, Trans],
    out: str,
    vectors: Vectors,
    rest: dict[str, Any],
) -> Any:
    """Return the result by a product first."""
    kind = type_name(a.dtype)
    wide = kind if kind in (*_FLOATS, *_COMPLEX) else "float32"
    asked = "float32" if is_narrow(a) and kind != "int8" else None
    trans_a, trans_b = operations
    one = int(alpha != 0)
    product = multiply(a, b, alpha=one, trans_a=trans_a, trans_b=trans_b, out_dtype=asked, **rest)
    v = library.cast(product, wide)
    with np.errstate(all="ignore"):  # Inf and NaN are results
        v = v if alpha == 0 else _times(library, v, alpha)
        if vectors.scale_a is not None:
            v = _times(library, v, vectors.scale_a[:, None])
        if vectors.scale_b is not None:
            v = _times(library, v, vectors.scale_b)
        if beta != 0:
            v = v + _times(library, library.cast(c, wide), beta)
        if vectors.bias is not None:
            bias = library.cast(vectors.bias, wide)
            v = v + (bias[:, None] if vectors.bias_of_rows else bias)
        v = library.activated(v, vectors.activation)
    if c is None:
        return library.cast(v, out)
    library.put(c, v)
    return c


def _number(scalar: Any) -> complex:
    """Return a checked scalar as Python's number, a complex one only where it has to be."""
    number = complex(scalar)
    return number if number.imag else number.real


def _times(library: Library, v: Any, factor: Any) -> Any:
    """Return v times a number or a vector, in v's type.

    Real ones multiply both parts of complex numbers, as BLAS's kernels do: (inf + 0i) (2 + 0i) is
    no number.
    """
    is_vector, of_v = hasattr(factor, "dtype"), type_name(v.dtype)
    of_factor = type_name(factor.dtype) if is_vector else type(factor).__name__
    if of_v in _COMPLEX and not of_factor.startswith("complex"):
        return library.joined(v.real * factor, v.imag * factor)
    return v * (library.cast(factor, of_v) if is_vector else factor)


def _out(library: Library, a: Any, c: Any, out_dtype: Any) -> str:
    """Return the name of the result's type."""
    kind = type_name(a.dtype)
    if kind in (*_FLOATS, *_COMPLEX):
        able: tuple[str, ...] = (kind,)
    elif kind == "int8":  # what follows sums of integers is of floats
        able = ("float32", "float16", "bfloat16")
    else:
        able = results_of(kind)
    if not able:
        known = ", ".join((*_FLOATS, *_COMPLEX, *NARROW))
        raise ValueError(f"a.dtype={a.dtype} has no GEMM here; convert to one of {known}")
    asked = None if out_dtype is None else library.out_name(out_dtype)
    held = asked if c is None else type_name(c.dtype)
    if asked not in (None, held) or (held is not None and held not in able):
        wrong = f"out_dtype={shown(out_dtype)}" if c is None else f"c.dtype={c.dtype}"
        raise ValueError(
            f"{wrong} does not go with {kind} and an epilogue; use {' or '.join(able)}"
        )
    return held or able[0]


def _vectors(library: Library, epilogue: Epilogue, m: int, n: int, out: str) -> Vectors:
    """Return an epilogue's vectors as one-dimensional arrays."""
    rows, columns = ((m,), (m, 1)), ((n,), (1, n))
    scale_a = _vector(library, "scale_a", epilogue.scale_a, rows, out)
    scale_b = _vector(library, "scale_b", epilogue.scale_b, columns, out)
    bias = _vector(library, "bias", epilogue.bias, (*columns, rows[1]), out)
    of_rows = bias is not None and tuple(epilogue.bias.shape) == (m, 1) != (1, n)
    return Vectors(scale_a, scale_b, bias, of_rows, epilogue.activation)


def _vector(
    library: Library, name: str, x: Any, shapes: tuple[tuple[int, ...], ...], out: str
) -> Any:
    if x is None:
        return None
    refuse_masked(**{name: x})
    if not library.own(x):
        raise TypeError(f"{name} is a {type(x).__name__}; give an array of the operands' kind")
    if tuple(x.shape) not in shapes:
        wanted = " or ".join(map(str, shapes))
        raise ValueError(f"{name}.shape={tuple(x.shape)} does not fit; give {wanted}")
    able = {out, "float32"} if out not in ("float64", *_COMPLEX) else {out, "float64"}
    if out == "complex64":
        able = {out, "float32"}
    if type_name(x.dtype) not in able:
        raise ValueError(f"{name}.dtype={x.dtype} does not fit; use {' or '.join(sorted(able))}")
    return library.cast(x, type_name(x.dtype)).reshape(-1)
