"""What an epilogue asks of array libraries: layouts, types, elementwise arithmetic."""

from __future__ import annotations

import math
from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

import numpy as np

from tilewright.precision import dtype_of
from tilewright.serve.checks import kinds_of
from tilewright.serve.narrow.arrays import NumPyLike, TorchTensors, library_among

__all__ = ["Library", "library_of"]


class Library(NumPyLike):
    """What an epilogue asks of an array library; this is NumPy's and CuPy's."""

    @property
    def on_device(self) -> bool:
        """Whether its arrays are on a device."""
        return self.module is not np

    def layout(self, x: Any) -> Hashable:
        """Return all that a plan depends on of a CuPy array but its address."""
        return x.shape, x.strides, x.dtype, x.data.device_id, x.data.ptr % 16

    def place(self, x: Any) -> Any:
        """Return the device that an array is on; None of the host's memory."""
        return x.device if self.on_device else None

    def address(self, x: Any) -> int:
        """Return where an array on a device begins."""
        return int(x.data.ptr)

    def empty(self, like: Any, shape: tuple[int, int], name: str) -> Any:
        """Return a new row-major array on the device of another."""
        with self.beside(like):
            return self.module.empty(shape, dtype_of(name))

    def beside(self, x: Any) -> AbstractContextManager[Any]:
        """Return a context in which new arrays and results are on the device of an array."""
        return self.module.cuda.Device(x.data.device_id) if self.on_device else nullcontext()

    def joined(self, real: Any, imag: Any) -> Any:
        """Return the complex numbers that have these parts."""
        made = self.module.empty(real.shape, "c16" if real.dtype.itemsize == 8 else "c8")
        made.real, made.imag = real, imag
        return made

    def is_dense(self, x: Any) -> bool:
        """Whether an array's rows follow each other in memory."""
        return bool(x.flags.c_contiguous)

    def activated(self, v: Any, activation: str | None) -> Any:
        """Return an activation of each element."""
        xp = self.module
        if activation == "relu":
            return xp.where(v < 0, v.dtype.type(0), v)
        if activation == "gelu":
            return v * 0.5 * (1 + self.erf(v * math.sqrt(0.5)))
        if activation == "gelu_tanh":
            return v * 0.5 * (1 + xp.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v * v * v)))
        return v

    def erf(self, x: Any) -> Any:
        """Return the error function of each element."""
        if self.on_device:
            return import_module("cupyx.scipy.special").erf(x)
        return np.vectorize(math.erf, otypes=[x.dtype])(x)


class Torch(TorchTensors, Library):
    """PyTorch's tensors on a CUDA device."""

    def layout(self, x: Any) -> Hashable:
        """Return all that a plan depends on of a tensor but its address; None of unusual ones."""
        wants_grad = x.requires_grad and self.module.is_grad_enabled()
        if wants_grad or x.is_neg() or x.layout is not self.module.strided:
            return None
        return x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % 16

    def address(self, x: Any) -> int:
        return int(x.data_ptr())

    def empty(self, like: Any, shape: tuple[int, int], name: str) -> Any:
        return self.module.empty(shape, dtype=getattr(self.module, name), device=like.device)

    def beside(self, x: Any) -> AbstractContextManager[Any]:
        return nullcontext()  # results of tensors are on their device

    def joined(self, real: Any, imag: Any) -> Any:
        return self.module.complex(real, imag)

    def is_dense(self, x: Any) -> bool:
        return bool(x.is_contiguous())

    def activated(self, v: Any, activation: str | None) -> Any:
        functional = self.module.nn.functional
        if activation == "relu":
            return functional.relu(v)
        if activation is None:
            return v
        return functional.gelu(v, approximate="none" if activation == "gelu" else "tanh")


def library_of(a: Any, b: Any, c: Any) -> Library:
    """Return whose arrays these are.

    Raises
    ------
    TypeError
        If they are of no library that an epilogue is computed in.
    """
    given = [x for x in (a, b, c) if x is not None]
    found: Library | None = library_among(Library, Torch, given)
    if found is None:
        raise TypeError(
            f"epilogue: {kinds_of(a, b, c)}; give NumPy's, CuPy's or CUDA tensors alone"
        )
    return found
