"""Classes that look like CuPy's arrays and PyTorch's tensors, as far as the core looks."""

from __future__ import annotations

import ctypes
import itertools
import os
from types import SimpleNamespace
from typing import Any

import numpy as np

from tilewright.serve import warm

F4, F8, C8 = (np.dtype(name) for name in ("f4", "f8", "c8"))
STRIDED = object()

# The version of DLPack's C functions that tensors have, as a newer PyTorch's do; 0 for none.
DLPACK = int(os.environ.get("FAKE_DLPACK", "0"))
DESCRIBED = DLPACK == 1

_fresh = itertools.count(1 << 40, 1 << 20)


def fresh() -> int:
    """Return an address that nothing else has."""
    return next(_fresh)


# What the adapters' functions answer; tests change it.
now = SimpleNamespace(
    streams={0: 7, 1: 8}, grad=True, error=None, before=None, made_on=None, memory=None
)


class CuPyArray:
    """What `cupy.ndarray` has."""

    def __init__(self, shape, dtype=F4, at=None, device=0, strides=None):
        self.shape, self.dtype = shape, dtype
        size = dtype.itemsize
        self.strides = strides or (size * shape[1], size)
        self.data = SimpleNamespace(ptr=fresh() if at is None else at, device_id=device)


class Tensor:
    """What `torch.Tensor` has."""

    def __init__(self, shape, dtype=F4, at=None, device=0, strides=None, conj=False, **other):
        self.shape, self.dtype, self.layout = shape, dtype, other.get("layout", STRIDED)
        self.requires_grad = other.get("requires_grad", False)
        self._neg, self._conj, self._device = other.get("neg", False), conj, device
        self._strides = strides or (shape[1], 1)
        self._at = fresh() if at is None else at

    def data_ptr(self):
        return self._at

    def stride(self):
        return self._strides

    def get_device(self):
        return self._device

    def is_conj(self):
        return self._conj

    def is_neg(self):
        return self._neg


class Pairs:
    """What `tilewright.DoubleDouble` has."""

    def __init__(self, shape, dtype=False, at=None, device=0, step=None):
        self.shape, self.is_complex = shape, dtype
        tail, size = ((2, 2), 32) if dtype else ((2,), 16)
        strides = size * shape[1], step or size, *((16, 8) if dtype else (8,))
        self.words = CuPyArray((*shape, *tail), F8, at, device, strides)

    @property
    def dtype(self):
        return self.is_complex


KINDS = (CuPyArray, Tensor)


class _DLTensor(ctypes.Structure):
    """What dlpack.h calls so."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_DLTensor))
def _describe(x, at):
    """Fill in what there is to know of a tensor, as PyTorch's function does."""
    try:
        shape, strides = x.shape, x.stride()
        if x.layout is not STRIDED or (strides and len(shape) != len(strides)):
            return -1
        many = ctypes.c_int64 * len(shape)
        x.held = many(*shape), many(*strides)
        one, two = map(ctypes.addressof, x.held)
        code = {"i": 0, "f": 2, "c": 5}.get(x.dtype.kind, 3)
        at[0] = _DLTensor(
            x.data_ptr() - 4, 2, x.get_device(), len(shape), code, 8 * x.dtype.itemsize, 1, one,
            two if strides else None, 4,
        )  # fmt: skip
    except Exception:  # there is nobody to raise it to
        return -1
    return 0


# DLPackExchangeAPI: a version, an older one, and three functions before this one and one behind.
_EXCHANGE = (ctypes.c_uint64 * 7)(DLPACK | 3 << 32, *(0,) * 6)
# In another major version something else is there, which ends the process.
_EXCHANGE[5] = (ctypes.cast(_describe, ctypes.c_void_p).value or 0) if DESCRIBED else 8
_NAME = b"dlpack_exchange_api"  # capsules copy none
if DLPACK:
    _capsule = ctypes.pythonapi.PyCapsule_New
    _capsule.restype = ctypes.py_object
    _capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    Tensor.__dlpack_c_exchange_api__ = _capsule(  # type: ignore[attr-defined]
        ctypes.addressof(_EXCHANGE), _NAME, None
    )


def _stream(ordinal: int) -> int:
    if now.error is not None:
        raise now.error
    return int(now.streams[ordinal])


def _empty(kind: type) -> Any:
    def empty(shape, dtype, device):
        if now.before is not None:
            now.before()
        return kind(shape, dtype, device=device if now.made_on is None else now.made_on)

    return empty


def _memory(ordinal: int, size: int) -> tuple[int, Any]:
    return now.memory(ordinal, size)


def know_them() -> None:
    """Let the core look at calls with such arrays; the first time counts."""
    warm.know(warm.CUPY, CuPyArray, _stream, _empty(CuPyArray), _memory)
    warm.know(warm.PAIRS, Pairs, _stream, _empty(Pairs), _memory)
    warm.know(warm.TORCH, Tensor, _stream, _empty(Tensor), _memory, lambda: now.grad, STRIDED)
