"""Double-double arrays: their words are somebody's float64 array, multiplied where it is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.serve.double_double import DoubleDouble

if TYPE_CHECKING:
    from tilewright.serve.request import Device, Request

__all__ = ["double_double_arrays"]


def double_double_arrays(given: list[DoubleDouble]) -> Any:
    """Return what `gemm` asks of these arrays; see `tilewright.serve.gemm.adapter_of`.

    Raises
    ------
    TypeError
        If their words are not all of one kind, or of none known here.
    """
    kinds = {type(x.words) for x in given}
    cupy = sys.modules.get("cupy")
    if kinds == {np.ndarray}:
        return _OnNumPy()
    if cupy is not None and kinds == {cupy.ndarray}:
        return _OnCuPy()
    if len(kinds) == 1 and next(iter(kinds)).__module__.startswith("pyopencl.array"):
        return _OnPyOpenCL()
    names = ", ".join(sorted(f"{kind.__module__}.{kind.__name__}" for kind in kinds))
    raise TypeError(
        f"words of a, b and c are {names}; give NumPy's only, CuPy's only or pyopencl's only"
    )


def _check(name: str, x: DoubleDouble) -> None:
    """Refuse elements whose words do not lie side by side."""
    if x.size and tuple(x.words.strides[x.ndim :]) != ((16, 8) if x.is_complex else (8,)):
        raise ValueError(f"{name}.words do not lie side by side; give {name}.copy()")


class _OnNumPy:
    """Words in NumPy's memory: structured arrays from here on."""

    def __init__(self) -> None:
        self._result: DoubleDouble | None = None

    def view(self, name: str, x: DoubleDouble) -> Any:
        _check(name, x)
        if name == "c":
            self._result = x
        if not x.size:
            return np.empty(x.shape, x.dtype)
        return x.words.reshape(*x.shape, -1).view(x.dtype)[..., 0]

    def empty_like(self, like: Any, shape: tuple[int, ...]) -> Any:
        is_complex = like.dtype.names == ("re", "im")
        from tilewright.serve.arrays.numpy import new_result

        words = new_result((*shape, 2, 2) if is_complex else (*shape, 2), np.float64)
        return self.view("c", DoubleDouble.of_words(words, is_complex))

    def result(self, _: Any) -> DoubleDouble:
        assert self._result is not None
        return self._result

    def run(self, request: Request, device: Device) -> None:
        from tilewright.serve.arrays import numpy as on_numpy

        on_numpy.run(request, device)


class _OnCuPy(_OnNumPy):
    """Words on a CUDA device."""

    def view(self, name: str, x: DoubleDouble) -> Any:
        from tilewright.serve.arrays.device import View

        _check(name, x)
        if name == "c":
            self._result = x
        w = x.words
        return View(w, w.data.ptr, x.shape, w.strides[: x.ndim], x.dtype, w.data.device_id)

    def empty_like(self, like: Any, shape: tuple[int, ...]) -> Any:
        import cupy

        is_complex = like.dtype.names == ("re", "im")
        with cupy.cuda.Device(like.ordinal):
            words = cupy.empty((*shape, 2, 2) if is_complex else (*shape, 2))
        return self.view("c", DoubleDouble.of_words(words, is_complex))

    def run(self, request: Request, device: Device) -> None:
        from tilewright.serve.arrays import cupy as on_cupy
        from tilewright.serve.arrays import device as on_device

        on_device.run(request, device, on_cupy.stream_of, on_cupy.memory)


class _OnPyOpenCL(_OnNumPy):
    """Words on an OpenCL device."""

    def view(self, name: str, x: DoubleDouble) -> Any:
        import pyopencl.array

        _check(name, x)
        if name == "c":
            self._result = x
        w = x.words
        return pyopencl.array.Array(
            w.queue, x.shape, x.dtype, data=w.base_data, offset=w.offset,
            strides=w.strides[: x.ndim], events=w.events,
        )  # fmt: skip

    def empty_like(self, like: Any, shape: tuple[int, ...]) -> Any:
        import pyopencl.array

        is_complex = like.dtype.names == ("re", "im")
        full = (*shape, 2, 2) if is_complex else (*shape, 2)
        words = pyopencl.array.empty(like.queue, full, np.float64)
        return self.view("c", DoubleDouble.of_words(words, is_complex))

    def run(self, request: Request, device: Device) -> None:
        from tilewright.serve.arrays import pyopencl as on_pyopencl

        on_pyopencl.run(request, device)  # words and views of them have one list of events
