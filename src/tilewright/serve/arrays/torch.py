"""PyTorch tensors on a CUDA device: in place, on PyTorch's current stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tilewright.backend import OutOfMemoryError
from tilewright.serve import warm
from tilewright.serve.arrays import device as on_device
from tilewright.serve.arrays.device import View
from tilewright.serve.arrays.inside import of_torch
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES

if TYPE_CHECKING:
    from tilewright.serve.request import Device, Request

__all__ = [
    "current",
    "empty_like",
    "memory",
    "narrow_view",
    "new",
    "new_arrays",
    "result",
    "run",
    "stream_of",
    "view",
]

_DTYPES: dict[Any, np.dtype[Any]] = {
    torch.float32: np.dtype("float32"),
    torch.float64: np.dtype("float64"),
    torch.complex64: np.dtype("complex64"),
    torch.complex128: np.dtype("complex128"),
}

# What tensor cores take beside them; to whoever looks at memory only, those that NumPy has no type
# of are bytes.
_NARROW: dict[Any, np.dtype[Any]] = {
    torch.float16: np.dtype("float16"),
    torch.bfloat16: np.dtype("V2"),
    torch.float8_e4m3fn: np.dtype("V1"),
    torch.float8_e5m2: np.dtype("V1"),
    torch.int8: np.dtype("int8"),
    torch.int32: np.dtype("int32"),
}

_ALL = _NARROW | _DTYPES

_empty = torch.empty
_grad_enabled = torch.is_grad_enabled


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
    if name[0] == "c" and x.is_conj():
        raise ValueError(f"{name} is a conjugated view; give {name}.resolve_conj()")
    return _strided_view(x, dtype)


def narrow_view(x: Any) -> View | None:
    """Return what there is to know of a tensor as tensor cores take it; None of any other."""
    dtype = _ALL.get(x.dtype)
    if dtype is None or x.layout is not torch.strided or x.is_neg() or x.is_conj():
        return None
    if x.requires_grad and _grad_enabled():
        return None
    return _strided_view(x, dtype)


def _strided_view(x: Any, dtype: np.dtype[Any], *, made_here: bool = False) -> View:
    address, shape = x.data_ptr(), tuple(x.shape)
    if address == 0 and x.numel():  # its storage was freed, or it stands for another one
        raise ValueError(f"a tensor of shape {shape} has no memory; give one that has its elements")
    strides = tuple(step * dtype.itemsize for step in x.stride())
    place = address, shape, strides, dtype, x.device.index
    return View(x, *place, conjugated=x.is_conj(), made_here=made_here)


def result(x: View) -> Any:
    """Return the caller's tensor."""
    return x.array


def empty_like(like: View, shape: tuple[int, ...]) -> View:
    """Return a new row-major tensor on the same device."""
    return new(like, shape, like.array.dtype)


def new(like: View, shape: tuple[int, ...], dtype: Any) -> View:
    """Return a new row-major tensor of a type on the same device."""
    made = _empty(shape, dtype=dtype, device=like.array.device)
    return _strided_view(made, _ALL[dtype], made_here=True)


def new_arrays(like: Any, shapes: Iterable[tuple[int, int]], dtype: Any) -> list[Any]:
    """Return new row-major matrices of a type on a tensor's device.

    They lie one behind the other in memory that is allocated once, those of a width together, which
    one split makes: PyTorch takes microseconds for each allocation, and for each view.  To autograd
    they are apart: a split that is "unsafe" gives no views, so that what changes one in place
    leaves the others' versions as they are.
    """
    sizes = tuple(shapes)
    widths, places = _by_width(sizes, max(1, CHUNK_BYTES // dtype.itemsize))
    elements = [width * sum(rows) for width, rows in widths]
    whole = _empty(sum(elements), dtype=dtype, device=like.device)
    parts = [
        part
        for (width, rows), block in zip(
            widths, torch.unsafe_split_with_sizes(whole, elements), strict=True
        )
        for part in torch.unsafe_split_with_sizes(
            block.view(-1, width) if width > 1 else block, rows
        )
    ]
    return [
        parts[at] if parts[at].dim() > 1 else parts[at].view(size)
        for at, size in zip(places, sizes, strict=True)
    ]


@lru_cache(maxsize=64)
def _by_width(
    sizes: tuple[tuple[int, int], ...], step: int
) -> tuple[list[tuple[int, list[int]]], list[int]]:
    """Return the rows of matrices of a width, for each width, and each matrix's place among all.

    Where a row is no multiple of `step` elements, a matrix counts as a column of its elements, and
    is followed by as many as are missing to a multiple.
    """
    widths: dict[int, list[tuple[int, int]]] = {}  # rows, and whose; -1: nobody's
    for number, (m, n) in enumerate(sizes):
        if n and n % step == 0:
            widths.setdefault(n, []).append((m, number))
        else:
            widths.setdefault(1, []).extend(((m * n, number), (-(m * n) % step, -1)))
    found = [(width, [rows for rows, _ in some]) for width, some in widths.items()]
    numbers = [number for some in widths.values() for _, number in some]
    at = {number: place for place, number in enumerate(numbers)}
    return found, [at[number] for number in range(len(sizes))]


def run(request: Request, device: Device) -> None:
    """Enqueue the product on the current stream of the tensors' device."""
    on_device.run(request, device, stream_of, memory, request.a.array.device)


def current(ordinal: int) -> Any:
    """Return a context in which a device is the current one."""
    return torch.cuda.device(ordinal)


def memory(ordinal: int, size: int) -> tuple[int, Any]:
    """Return memory of PyTorch's allocator: its address, and what keeps it."""
    try:
        made = _empty(size, dtype=torch.uint8, device=torch.device("cuda", ordinal))
    except torch.OutOfMemoryError as problem:
        raise OutOfMemoryError(f"cuda:{ordinal} has no {size} bytes left", str(problem)) from None
    return made.data_ptr(), made


# It may serve a graph's pool, of which torch.compile refuses what is kept.
setattr(memory, "passing", True)  # noqa: B010  # functions have no such attribute to mypy


def _stream_of() -> Callable[[int], int]:
    """Return what tells the address of the stream that is current on a device."""
    # What torch.compile's code calls; the public function makes an object of it in 2 us.
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw or (lambda ordinal: int(torch.cuda.current_stream(ordinal).cuda_stream))


stream_of = _stream_of()


def _empty_on(shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
    return _empty(shape, dtype=dtype, device=device)


warm.know(
    warm.TORCH, torch.Tensor, stream_of, _empty_on, memory,
    torch.is_grad_enabled, torch.strided, of_torch(torch),
)  # fmt: skip
