"""Double-double arrays: their words are somebody's float64 array, multiplied where it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.serve import warm
from tilewright.serve.arrays.double_double.storage import Storage
from tilewright.serve.checks import loaded

if TYPE_CHECKING:
    from tilewright.serve.request import Device, Request

__all__ = ["double_double_arrays"]


def double_double_arrays(given: list[Any]) -> Any:
    """Return what `gemm` asks of these arrays; see `tilewright.serve.arrays.adapters.adapter_of`.

    Raises
    ------
    TypeError
        If they are not all double-double, or their words not all of one kind that is known here.
    """
    for name, x in zip("abc", given, strict=False):
        if not isinstance(x, Storage):
            raise TypeError(
                f"{name} is a {type(x).__name__}, and others are DoubleDouble;"
                f" convert with DoubleDouble({name})"
            )
    of = type(given[0])
    kinds = {type(x.words) for x in given}
    cupy = loaded("cupy")
    if kinds == {np.ndarray}:
        return _OnNumPy(of)
    if cupy is not None and kinds == {cupy.ndarray}:
        return _OnCuPy(of)
    if len(kinds) == 1 and next(iter(kinds)).__module__.startswith("pyopencl.array"):
        return _OnPyOpenCL(of)
    names = ", ".join(sorted(f"{kind.__module__}.{kind.__name__}" for kind in kinds))
    raise TypeError(
        f"words of a, b and c are {names}; give NumPy's only, CuPy's only or pyopencl's only"
    )


class _OnNumPy:
    """Words in NumPy's memory: structured arrays from here on."""

    def __init__(self, of: type[Storage]) -> None:
        self._of = of
        self._result: Storage | None = None

    def view(self, name: str, x: Storage) -> Any:
        if x.size and tuple(x.words.strides[x.ndim :]) != ((16, 8) if x.is_complex else (8,)):
            raise ValueError(f"{name}.words do not lie side by side; give {name}.copy()")
        if name == "c":
            self._result = x
        return self._elements(x, x.words)

    def empty_like(self, like: Any, shape: tuple[int, ...]) -> Any:
        is_complex = like.dtype.names == ("re", "im")
        words = self._words(like, (*shape, 2, 2) if is_complex else (*shape, 2))
        return self.view("c", self._of.of_words(words, is_complex))

    def result(self, _: Any) -> Storage:
        assert self._result is not None
        return self._result

    def run(self, request: Request, device: Device) -> None:
        from tilewright.serve.arrays import numpy as on_numpy

        on_numpy.run(request, device)

    def _elements(self, x: Storage, words: Any) -> Any:
        """Return an array's elements as the adapter of its words' library has them."""
        if not x.size:
            return np.empty(x.shape, x.dtype)
        return words.reshape(*x.shape, -1).view(x.dtype)[..., 0]

    def _words(self, like: Any, shape: tuple[int, ...]) -> Any:
        """Return new words where some elements are."""
        from tilewright.serve.arrays.numpy import new_result

        return new_result(shape, np.float64)


class _OnCuPy(_OnNumPy):
    """Words on a CUDA device."""

    def empty_like(self, like: Any, shape: tuple[int, ...]) -> Any:
        return replace(super().empty_like(like, shape), made_here=True)

    def run(self, request: Request, device: Device) -> None:
        from tilewright.serve.arrays import cupy as on_cupy
        from tilewright.serve.arrays import device as on_device

        # Not a subclass of somebody's, whose words may be anything.
        if self._of not in warm.looks and self._of.__module__.startswith("tilewright."):
            _let_core_know(self._of)
        ordinal = request.a.ordinal
        on_device.run(request, device, on_cupy.stream_of, on_cupy.memory, ordinal)

    def _elements(self, x: Storage, words: Any) -> Any:
        from tilewright.serve.arrays.device import View

        strides, ordinal = words.strides[: x.ndim], words.data.device_id
        return View(x, words.data.ptr, x.shape, strides, x.dtype, ordinal)

    def _words(self, like: Any, shape: tuple[int, ...]) -> Any:
        import cupy

        with cupy.cuda.Device(like.ordinal):
            return cupy.empty(shape)


def _let_core_know(of: type[Storage]) -> None:
    """Let calls like one made before be started by the core."""
    import cupy

    from tilewright.serve.arrays import cupy as on_cupy

    def empty(shape: tuple[int, ...], dtype: Any, _: int) -> Storage:
        """Return a new matrix on the current device."""
        is_complex = dtype.names == ("re", "im")
        words = cupy.ndarray((*shape, 2, 2) if is_complex else (*shape, 2), np.float64)
        return of.of_words(words, is_complex)

    warm.know(warm.PAIRS, of, on_cupy.stream_of, empty, on_cupy.memory)


class _OnPyOpenCL(_OnNumPy):
    """Words on an OpenCL device."""

    def run(self, request: Request, device: Device) -> None:
        from tilewright.serve.arrays import pyopencl as on_pyopencl

        on_pyopencl.run(request, device)  # words and views of them have one list of events

    def _elements(self, x: Storage, words: Any) -> Any:
        import pyopencl.array

        return pyopencl.array.Array(
            words.queue, x.shape, x.dtype, data=words.base_data, offset=words.offset,
            strides=words.strides[: x.ndim], events=words.events,
        )  # fmt: skip

    def _words(self, like: Any, shape: tuple[int, ...]) -> Any:
        import pyopencl.array

        return pyopencl.array.empty(like.queue, shape, np.float64)
