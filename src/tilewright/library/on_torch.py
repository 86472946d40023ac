"""PyTorch tensors on a CUDA device: in place, on PyTorch's current stream."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tilewright.backend import LiveDevice
from tilewright.library import on_device
from tilewright.library.gemm import shortcuts
from tilewright.library.on_device import View
from tilewright.library.plan import plans

if TYPE_CHECKING:
    from tilewright.library.gemm import Request

__all__ = ["call_key", "empty_like", "narrow_view", "new", "result", "run", "stream_of", "view"]

_DTYPES: dict[Any, np.dtype[Any]] = {
    torch.float32: np.dtype("float32"),
    torch.float64: np.dtype("float64"),
    torch.complex64: np.dtype("complex64"),
    torch.complex128: np.dtype("complex128"),
}

# What matrix units take beside them; a bfloat16 is two bytes to whoever looks at memory only.
_NARROW: dict[Any, np.dtype[Any]] = {
    torch.float16: np.dtype("float16"),
    torch.bfloat16: np.dtype("V2"),
    torch.int8: np.dtype("int8"),
    torch.int32: np.dtype("int32"),
}

_Tensor = torch.Tensor
_empty = torch.empty
_grad_enabled = torch.is_grad_enabled
_current_stream = torch.cuda.current_stream


def view(name: str, x: Any) -> View:
    """Return what there is to know of a tensor."""
    if x.layout is not torch.strided:
        raise ValueError(f"{name}.layout={x.layout} is not dense; give {name}.to_dense()")
    dtype = _DTYPES.get(x.dtype)
    if dtype is None:
        names = ", ".join(str(known) for known in _DTYPES)
        raise ValueError(f"{name}.dtype={x.dtype} has no GEMM here; convert to one of {names}")
    if x.requires_grad and _grad_enabled():
        raise ValueError(
            f"{name} requires grad, which gemm() does not compute; give {name}.detach()"
        )
    if x.is_neg():
        raise ValueError(f"{name} is a negated view; give {name}.resolve_neg()")
    if name == "c" and x.is_conj():
        raise ValueError("c is a conjugated view; give c.resolve_conj()")
    return _strided_view(x, dtype)


def narrow_view(x: Any) -> View | None:
    """Return what there is to know of a tensor as matrix units take it; None of any other."""
    dtype = (_NARROW | _DTYPES).get(x.dtype)
    if dtype is None or x.layout is not torch.strided or x.is_neg() or x.is_conj():
        return None
    return _strided_view(x, dtype)


def _strided_view(x: Any, dtype: np.dtype[Any], *, made_here: bool = False) -> View:
    strides = tuple(step * dtype.itemsize for step in x.stride())
    place = x.data_ptr(), tuple(x.shape), strides, dtype, x.device.index
    return View(x, *place, conjugated=x.is_conj(), made_here=made_here)


def result(x: View) -> Any:
    """Return the caller's tensor."""
    return x.array


def empty_like(like: View, shape: tuple[int, int]) -> View:
    """Return a new row-major tensor on the same device."""
    return new(like, shape, like.array.dtype)


def new(like: View, shape: tuple[int, int], dtype: Any) -> View:
    """Return a new row-major tensor of a type on the same device."""
    made = _empty(shape, dtype=dtype, device=like.array.device)
    return _strided_view(made, (_NARROW | _DTYPES)[dtype], made_here=True)


def run(request: Request, device: str | LiveDevice | None) -> None:
    """Enqueue the product on the current stream of the tensors' device."""
    c = None if request.c.made_here else request.c.array
    key = call_key(request.a.array, request.b.array, c, request.trans_a, request.trans_b)
    on_device.run(request, device, stream_of, key)


def stream_of(ordinal: int) -> int:
    """Return the address of the stream that is current on a device."""
    return int(_current_stream(ordinal).cuda_stream)


def call_key(a: Any, b: Any, c: Any, trans_a: Any, trans_b: Any, out_dtype: Any = None) -> Hashable:
    """Return what calls launched alike have in common; "N" and Trans.N are equal."""
    one = (
        a.shape, a.stride(), a.dtype, a.device, a.is_conj(),
        b.shape, b.stride(), b.dtype, b.device, b.is_conj(),
        trans_a, trans_b,
    )  # fmt: skip
    if c is None:
        return one if out_dtype is None else (one, out_dtype)
    return (one, c.shape, c.stride(), c.dtype, c.device)


def _plain(x: Any) -> bool:
    """Whether a tensor is one whose memory says all that `call_key` leaves out."""
    return type(x) is _Tensor and x.layout is torch.strided and not x.is_neg()


def _shortcut(
    a: Any,
    b: Any,
    c: Any,
    alpha: Any,
    beta: Any,
    trans_a: Any,
    trans_b: Any,
    accuracy: str,
    device: Any,
    out_dtype: Any,
) -> Any:
    """Do all of gemm() for a call like one made before; None for any other."""
    if device is not None or accuracy != "ieee" or not (_plain(a) and _plain(b)):
        return None
    if c is not None and (out_dtype is not None or not _plain(c) or c.is_conj()):
        return None
    if _grad_enabled() and (
        a.requires_grad or b.requires_grad or (c is not None and c.requires_grad)
    ):
        return None
    plan = plans.get(call_key(a, b, c, trans_a, trans_b, out_dtype))
    if plan is None:
        return None
    if c is None:
        if beta != 0:
            return None
        c = _empty(plan.shape, dtype=plan.dtype or a.dtype, device=a.device)
    stream = _current_stream(a.device).cuda_stream
    if plan.start(a.data_ptr(), b.data_ptr(), c.data_ptr(), alpha, beta, stream):
        return c
    return None


shortcuts[_Tensor] = _shortcut
