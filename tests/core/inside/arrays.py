"""Classes that look like CuPy's arrays and PyTorch's tensors, as far as the core looks."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np

from tilewright.serve import warm

F4, F8, C8 = (np.dtype(name) for name in ("f4", "f8", "c8"))
STRIDED = object()

_fresh = itertools.count(1 << 40, 1 << 20)

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
        self.data = SimpleNamespace(ptr=next(_fresh) if at is None else at, device_id=device)


class Tensor:
    """What `torch.Tensor` has."""

    def __init__(self, shape, dtype=F4, at=None, device=0, strides=None, conj=False, **other):
        self.shape, self.dtype, self.layout = shape, dtype, other.get("layout", STRIDED)
        self.requires_grad = other.get("requires_grad", False)
        self._neg, self._conj, self._device = other.get("neg", False), conj, device
        self._strides = strides or (shape[1], 1)
        self._at = next(_fresh) if at is None else at

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


KINDS = (CuPyArray, Tensor)


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
    warm.know(warm.TORCH, Tensor, _stream, _empty(Tensor), _memory, lambda: now.grad, STRIDED)
