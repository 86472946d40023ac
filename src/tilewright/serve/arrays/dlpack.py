"""Arrays of any other library on a CUDA device, through DLPack: in place."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.precision import dtype_of
from tilewright.serve.arrays import device as on_device
from tilewright.serve.arrays.device import View

if TYPE_CHECKING:
    from tilewright.serve.request import Device, Request

__all__ = ["DLPackArrays", "Exported", "exported"]

# dlpack.h: memory of the host, of a device, and memory that CUDA moves between the two.
_CPU, _CUDA = 1, (2, 13)

_LEGACY_STREAM = 1
_READ_ONLY = 1


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned of dlpack.h, from version 1 on."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


# DLDataTypeCode: kDLInt, kDLFloat, kDLBfloat, kDLComplex, kDLFloat8_e4m3fn and kDLFloat8_e5m2.
_OF_ML_DTYPES = {(4, 16): "bfloat16", (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2"}
_NARROW: dict[tuple[int, int], np.dtype[Any]] = {
    (0, 8): np.dtype("int8"),
    (0, 32): np.dtype("int32"),  # results of int8
    (2, 16): np.dtype("float16"),
}
_DTYPES: dict[tuple[int, int], np.dtype[Any]] = {
    (2, 32): np.dtype("float32"),
    (2, 64): np.dtype("float64"),
    (5, 64): np.dtype("complex64"),
    (5, 128): np.dtype("complex128"),
}


def _pointer(capsule: Any, name: bytes) -> int:
    """Return what a capsule holds."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return int(get(capsule, name))


def _is_named(capsule: Any, name: bytes) -> bool:
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.restype, is_valid.argtypes = ctypes.c_int, (ctypes.py_object, ctypes.c_char_p)
    return bool(is_valid(capsule, name))


def _opened(name: str, capsule: Any) -> tuple[_Tensor, bool]:
    """Return a capsule's tensor and whether it is read-only; the capsule owns it."""
    if _is_named(capsule, b"dltensor_versioned"):
        whole = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if whole.major != 1:
            raise ValueError(f"{name} speaks DLPack {whole.major}, not 1; update Tilewright")
        return whole.tensor, bool(whole.flags & _READ_ONLY)
    return _Tensor.from_address(_pointer(capsule, b"dltensor")), False


@dataclass(frozen=True)
class Exported:
    """What a capsule says of an array, and the capsule, which owns it."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # bytes
    dtype: np.dtype[Any]
    device: int
    read_only: bool
    capsule: Any


def exported(name: str, x: Any, stream: int | None) -> Exported:
    """Return an array as DLPack shares it.

    Parameters
    ----------
    name : str
        The argument, for errors.
    x : array
        Of any library.
    stream : int or None
        Where it will be used; none on the host.

    Raises
    ------
    ValueError
        If it cannot be shared, would be written and must not be, or has another type.
    """
    try:
        capsule = _exported(x, stream)
    except (BufferError, RuntimeError) as error:
        raise ValueError(f"{name} cannot be shared through DLPack: {error}") from error
    tensor, read_only = _opened(name, capsule)
    if read_only and name == "c":
        raise ValueError("c is read-only; give a writeable array")
    dtype = _dtype(name, (tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        raise ValueError(
            f"{name}.dtype={getattr(x, 'dtype', '?')} has no GEMM here; convert to one of "
            + ", ".join(str(known) for known in _DTYPES.values())
        )
    shape = tuple(tensor.shape[: tensor.ndim])
    if tensor.strides:
        steps = tuple(tensor.strides[: tensor.ndim])
    else:  # row-major
        steps = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    strides = tuple(step * dtype.itemsize for step in steps)
    address = (tensor.data or 0) + tensor.byte_offset
    return Exported(address, shape, strides, dtype, tensor.device_id, read_only, capsule)


class DLPackArrays:
    """The adapter for one call.

    Producers are told which stream is used and make it wait for what they have under
    way.  DLPack has no way back: whatever uses the result must be ordered after that
    stream, as everything on streams that wait for the legacy default stream is.

    Parameters
    ----------
    a, b, c : array
        The caller's; c may be None.
    """

    def __init__(self, a: Any, b: Any, c: Any) -> None:
        for name, x in (("a", a), ("b", b), ("c", c)):
            if x is None:
                continue
            kind, number = x.__dlpack_device__()
            if int(kind) not in _CUDA:
                place = (int(kind), int(number))
                where = "in the host's memory" if place[0] == _CPU else f"on DLPack device {place}"
                raise TypeError(
                    f"{name} is a {type(x).__name__} {where};"
                    " give NumPy arrays only, or arrays on one CUDA device only"
                )
        self.stream = _named_stream(a if c is None else c)

    def view(self, name: str, x: Any) -> View:
        """Return what there is to know of an array."""
        one = exported(name, x, self.stream)
        return View(x, one.address, one.shape, one.strides, one.dtype, one.device, keep=one.capsule)

    def result(self, x: View) -> Any:
        """Return the caller's array."""
        return x.array

    def empty_like(self, like: View, shape: tuple[int, ...]) -> View:
        """Return a new row-major CuPy array on the same device, made on our stream."""
        return self.new(like, shape, like.dtype)

    def new(self, like: View, shape: tuple[int, ...], dtype: Any) -> View:
        """Return a new row-major CuPy array of a type on the same device."""
        try:
            import cupy
        except ImportError:
            raise ValueError(
                f"c is missing and {type(like.array).__name__} has no way to make it here;"
                " give c, or install CuPy"
            ) from None
        with self.on_stream(cupy, like.ordinal):
            made = cupy.empty(shape, dtype)
        return View(
            made, made.data.ptr, made.shape, made.strides, made.dtype, like.ordinal, made_here=True
        )

    @contextlib.contextmanager
    def on_stream(self, cupy: Any, ordinal: int) -> Iterator[None]:
        """Let CuPy work on the arrays' device and our stream."""
        stream = (
            cupy.cuda.Stream.null
            if self.stream == _LEGACY_STREAM
            else cupy.cuda.ExternalStream(self.stream)
        )
        with cupy.cuda.Device(ordinal), stream:
            yield

    def run(self, request: Request, device: Device) -> None:
        """Enqueue the product."""
        ordinal = request.c.ordinal  # of the array that names the stream

        def stream_of(number: int) -> int:
            return self.stream if number == ordinal else _LEGACY_STREAM

        on_device.run(request, device, stream_of)


def _dtype(name: str, kind: tuple[int, int]) -> np.dtype[Any] | None:
    """Return NumPy's type of DLPack's code and bits."""
    known = _OF_ML_DTYPES.get(kind)
    if known is None:
        return (_DTYPES | _NARROW).get(kind)
    try:
        return dtype_of(known)
    except ValueError as error:
        raise ValueError(f"{name}.{error}") from None


def _named_stream(x: Any) -> int:
    """Return the stream an array names as the one it is used on, else the legacy one."""
    try:
        described = getattr(x, "__cuda_array_interface__", None)
    except RuntimeError:  # a tensor that requires grad; exporting it says so better
        described = None
    named = described.get("stream") if isinstance(described, dict) else None
    return _LEGACY_STREAM if named is None else int(named)


def _exported(x: Any, stream: int | None) -> Any:
    """Return a capsule; newer producers are asked never to copy."""
    try:
        return x.__dlpack__(stream=stream, max_version=(1, 0), copy=False)
    except TypeError:
        return x.__dlpack__(stream=stream)
