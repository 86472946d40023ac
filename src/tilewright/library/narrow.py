"""float16, bfloat16 and int8 arrays: computed in single precision, rounded once.

No stencil for matrix units is proved on a device yet, so every device serves these types the
same way: elements become float32, which holds each of them, and the kernels for single
precision multiply.  Sums of int8 are cut where they would no longer be exact.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.library.narrow_types import NARROW, type_name
from tilewright.library.overlap import overlap, overlaps_itself
from tilewright.problem import Trans

__all__ = ["narrow_gemm"]

# (-128)^2 is 2^14: so many products sum up to at most 2^24, which float32 holds exactly.
_EXACT_K = 1024


class _NumPyLike:
    """Arrays of NumPy or CuPy."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def cast(self, x: Any, name: str) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):  # infinity and wrapping are meant
            return x.astype(_dtype(name) if isinstance(x, np.ndarray) else name)

    def put(self, c: Any, values: Any) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            c[...] = values.astype(c.dtype)

    def check(self, name: str, x: Any) -> None:
        if isinstance(x, np.ma.MaskedArray):
            raise TypeError("masked arrays are not multiplied; fill them first with .filled(value)")
        if name == "c" and isinstance(x, np.ndarray) and not x.flags.writeable:
            raise ValueError("c is read-only; give a writeable array")

    def shared(self, x: Any, y: Any) -> bool:
        if isinstance(x, np.ndarray):
            return bool(np.shares_memory(x, y))
        return overlap(*((z.data.ptr, z.shape, z.strides, z.dtype) for z in (x, y)))

    def out_name(self, dtype: Any) -> str:
        try:
            return type_name(dtype if isinstance(dtype, str) else np.dtype(dtype))
        except TypeError:  # no type at all: its caller names those that there are
            return ""

    def steps(self, x: Any) -> Any:
        return x.strides

    def own(self, x: Any) -> bool:
        return isinstance(x, self._module.ndarray)


def _dtype(name: str) -> Any:
    """Return NumPy's type of a name; bfloat16 is there once ml_dtypes is."""
    if name != "bfloat16":
        return np.dtype(name)
    import ml_dtypes  # whoever has such an array has it

    return np.dtype(ml_dtypes.bfloat16)


class _Torch:
    """Tensors of PyTorch on a CUDA device."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def cast(self, x: Any, name: str) -> Any:
        return x.to(getattr(self._module, name))

    def put(self, c: Any, values: Any) -> None:
        c.copy_(values)

    def check(self, name: str, x: Any) -> None:
        if x.requires_grad and self._module.is_grad_enabled():
            raise ValueError(
                f"{name} requires grad, which gemm() does not compute; give {name}.detach()"
            )

    def shared(self, x: Any, y: Any) -> bool:
        def place(z: Any) -> tuple[Any, ...]:
            size = z.element_size()
            return z.data_ptr(), z.shape, [s * size for s in z.stride()], f"V{size}"

        return overlap(place(x), place(y))

    def out_name(self, dtype: Any) -> str:
        return type_name(dtype)

    def steps(self, x: Any) -> Any:
        return x.stride()

    def own(self, x: Any) -> bool:
        return isinstance(x, self._module.Tensor) and bool(x.is_cuda)


def _library_of(a: Any, b: Any, c: Any) -> _NumPyLike | _Torch:
    """Return what casts these arrays."""
    given = [x for x in (a, b, c) if x is not None]
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    kinds: list[_NumPyLike | _Torch] = [_NumPyLike(np)]
    kinds += [_NumPyLike(cupy)] if cupy is not None else []
    kinds += [_Torch(torch)] if torch is not None else []
    for kind in kinds:
        if all(kind.own(x) for x in given):
            return kind
    names = ", ".join(f"{type(x).__module__.split('.')[0]}.{type(x).__name__}" for x in given)
    raise TypeError(
        f"a, b and c are {names}; of {', '.join(NARROW)} give NumPy arrays only,"
        " or CuPy's or PyTorch's on one CUDA device"
    )


def narrow_gemm(
    a: Any,
    b: Any,
    c: Any,
    alpha: complex,
    beta: complex,
    trans_a: str | Trans,
    trans_b: str | Trans,
    out_dtype: Any,
    device: str | LiveDevice | None,
) -> Any:
    """Return alpha op(a) op(b) + beta c; see `tilewright.gemm`.

    Raises
    ------
    ValueError, TypeError
        If an argument is wrong; the message names it.
    """
    library = _library_of(a, b, c)
    kind = type_name(a.dtype)
    for name, x in (("a", a), ("b", b), ("c", c)):
        if x is not None:
            library.check(name, x)
    if type_name(b.dtype) != kind:
        raise ValueError(f"b.dtype={b.dtype} but a.dtype={a.dtype}; convert one with astype")
    out = _out(library, kind, c, out_dtype)
    if c is not None and overlaps_itself(c.shape, library.steps(c)):
        raise ValueError("c overlaps itself; give c memory of its own")
    for name, x in (("a", a), ("b", b)):
        if c is not None and library.shared(x, c):
            raise ValueError(f"c overlaps {name}; give c memory of its own")
    rest = {"trans_a": trans_a, "trans_b": trans_b, "device": device}
    if kind == "int8":
        made = _integers(library, a, b, c, alpha, beta, rest)
    else:
        made = _floats(library, a, b, c, alpha, beta, rest)
    if c is None:
        return library.cast(made, out)
    library.put(c, made)
    return c


def _out(library: _NumPyLike | _Torch, kind: str, c: Any, out_dtype: Any) -> str:
    """Return the name of the result's type."""
    able = ("int32",) if kind == "int8" else (kind, "float32")
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
    library: _NumPyLike | _Torch, a: Any, b: Any, c: Any, alpha: Any, beta: Any, rest: Any
) -> Any:
    """Return the result in float32."""
    from tilewright.library.gemm import gemm

    wide = None if c is None else library.cast(c, "float32")
    if wide is c and c is not None:  # a cast to its own type may be no copy
        wide = c * 1
    x, y = library.cast(a, "float32"), library.cast(b, "float32")
    return gemm(x, y, wide, alpha=alpha, beta=beta, **rest)


def _integers(
    library: _NumPyLike | _Torch, a: Any, b: Any, c: Any, alpha: Any, beta: Any, rest: Any
) -> Any:
    """Return the result in 64-bit integers: the sum over k in exact pieces."""
    from tilewright.library.gemm import gemm, sizes_of

    alpha, beta = _integer("alpha", alpha), _integer("beta", beta)
    if c is None and beta != 0:
        raise ValueError(f"beta={beta!r} needs c to scale; give c, or leave beta at 0")
    op_a, op_b = Trans.parse(rest["trans_a"], "trans_a"), Trans.parse(rest["trans_b"], "trans_b")
    across_a, across_b = op_a.transposed, op_b.transposed
    _, _, k = sizes_of(a, b, c, op_a, op_b)
    total = None
    for start in range(0, max(1, k), _EXACT_K):
        part = slice(start, start + _EXACT_K)
        x = library.cast(a[part] if across_a else a[:, part], "float32")
        y = library.cast(b[:, part] if across_b else b[part], "float32")
        piece = library.cast(gemm(x, y, **rest), "int64")
        total = piece if total is None else total + piece
    assert total is not None
    scaled = total * alpha
    return library.cast(scaled if beta == 0 else scaled + library.cast(c, "int64") * beta, "int32")


def _integer(name: str, value: Any) -> int:
    """Return a scalar as an int of 32 bits."""
    try:
        number = None if isinstance(value, complex | np.complexfloating) else int(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or number != value or not -(2**31) <= number < 2**31:
        raise ValueError(f"{name}={value!r} is not for integers; give an int of 32 bits")
    return number
