"""Arrays of 8- and 16-bit numbers: what the libraries that have them are asked for."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import numpy as np

from tilewright.precision import dtype_of
from tilewright.serve.arenas import Memory
from tilewright.serve.checks import kinds_of, loaded, refuse_masked
from tilewright.serve.narrow.types import NARROW, type_name
from tilewright.serve.overlap import overlap, share

__all__ = ["Arrays", "ExportedArrays", "LibraryArrays", "arrays_of", "library_among"]


class _Adapted:
    """What a library's adapter tells of its streams and its memory."""

    name: ClassVar[str]  # of the adapter, which imports the library

    def __init__(self, module: Any) -> None:
        self.module = module

    @cached_property
    def _adapter(self) -> Any:
        return import_module(f"tilewright.serve.arrays.{self.name}")

    def stream(self, ordinal: int) -> Any:
        """Return the stream to use on a device."""
        return self._adapter.stream_of(ordinal)

    @property
    def memory(self) -> Memory:
        """What takes memory of the library's allocator."""
        found: Memory = self._adapter.memory
        return found


class NumPyLike(_Adapted):
    """Arrays of NumPy, which are asked for no adapter here, or CuPy."""

    name = "cupy"

    def cast(self, x: Any, name: str) -> Any:
        """Return an array's numbers in a type: the array itself where it has it."""
        with np.errstate(all="ignore"):  # rounding, infinity and wrapping are meant
            if isinstance(x, np.ndarray):
                return np.asarray(x).astype(dtype_of(name), copy=False)  # * of a matrix is @
            return x if type_name(x.dtype) == name else x.astype(name)

    def put(self, c: Any, values: Any) -> None:
        """Write numbers into an array, rounded to its type."""
        with np.errstate(all="ignore"):
            c[...] = values.astype(c.dtype)

    def triangle(self, x: Any, *, lower: bool) -> Any:
        """Return a matrix's triangle with the diagonal, zeros beside it."""
        return (self.module.tril if lower else self.module.triu)(x)

    def check(self, name: str, x: Any) -> None:
        """Refuse an array that is not multiplied."""
        refuse_masked(**{name: x})
        if name == "c" and isinstance(x, np.ndarray) and not x.flags.writeable:
            raise ValueError("c is read-only; give a writeable array")

    def shared(self, x: Any, y: Any) -> bool:
        """Whether two arrays share an element, of which y's is written."""
        if isinstance(x, np.ndarray):
            return share(x, y)
        return overlap(*((z.data.ptr, z.shape, z.strides, z.dtype) for z in (x, y)))

    def out_name(self, dtype: Any) -> str:
        """Return the name of a type, or nothing for what is none."""
        try:
            named = np.dtype(dtype)  # "f4" is float32
        except (TypeError, ValueError, SyntaxError):  # another library's name, or no type at all
            return type_name(dtype) if isinstance(dtype, str) else ""
        return type_name(named) if named.isnative else ""

    def steps(self, x: Any) -> Any:
        """Return the distances between rows and columns, in any unit."""
        return x.strides

    def own(self, x: Any) -> bool:
        """Whether an array is one of them."""
        return isinstance(x, self.module.ndarray)

    def view(self, name: str, x: Any) -> Any:
        """Return the `View` of an array on a device; None of others, or where it has none."""
        return None if self.module is np else self._adapter.view(name, x)

    def new(self, like: Any, shape: tuple[int, ...], name: str) -> Any:
        """Return the view of a new row-major array of a type, beside another view's."""
        return self._adapter.new(like, shape, dtype_of(name))


class TorchTensors(_Adapted):
    """Tensors of PyTorch on a CUDA device, by the same functions."""

    name = "torch"

    def cast(self, x: Any, name: str) -> Any:
        return x.to(getattr(self.module, name))

    def put(self, c: Any, values: Any) -> None:
        c.copy_(values)

    def triangle(self, x: Any, *, lower: bool) -> Any:
        return x.tril() if lower else x.triu()

    def check(self, name: str, x: Any) -> None:
        if x.requires_grad and self.module.is_grad_enabled():
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
        return isinstance(x, self.module.Tensor) and bool(x.is_cuda)

    def view(self, name: str, x: Any) -> Any:
        return self._adapter.narrow_view(x)

    def new(self, like: Any, shape: tuple[int, ...], name: str) -> Any:
        return self._adapter.new(like, shape, getattr(self.module, name))


class ExportedArrays:
    """Arrays of any library through DLPack, as the views that one call has of them.

    Views have no arithmetic: where tensor cores do not serve, CuPy's arrays of them are multiplied.

    Parameters
    ----------
    adapter : DLPackArrays
        Who exports them.
    """

    def __init__(self, adapter: Any) -> None:
        self.adapter = adapter

    def own(self, x: Any) -> bool:
        """Whether an array can be exported."""
        return hasattr(x, "__dlpack_device__") and not isinstance(x, np.ndarray)

    def check(self, name: str, x: Any) -> None:
        """Refuse nothing: exporting did."""

    def shared(self, x: Any, y: Any) -> bool:
        """Whether two views share an element."""
        return overlap(*((z.address, z.shape, z.strides, z.dtype) for z in (x, y)))

    def out_name(self, dtype: Any) -> str:
        """Return the name of NumPy's type."""
        return NumPyLike(np).out_name(dtype)

    def steps(self, x: Any) -> Any:
        """Return the strides in bytes."""
        return x.strides

    def view(self, name: str, x: Any) -> Any:
        """Return the view itself."""
        return x

    def new(self, like: Any, shape: tuple[int, ...], name: str) -> Any:
        """Return the view of a new CuPy array."""
        return self.adapter.new(like, shape, dtype_of(name))

    def stream(self, ordinal: int) -> int:
        """Return the stream that c, else a, names."""
        return int(self.adapter.stream)

    @property
    def memory(self) -> Memory | None:
        """Return None: no allocator is known of these arrays' library."""
        return None


N = TypeVar("N", bound=NumPyLike)
T = TypeVar("T", bound=TorchTensors)
LibraryArrays = NumPyLike | TorchTensors
"""One library's arrays, with arithmetic."""

Arrays = LibraryArrays | ExportedArrays


def library_among(like_numpy: type[N], tensors: type[T], given: list[Any]) -> N | T | None:
    """Return the library that all arrays are of, by a class or the other; None if they differ."""
    cupy, torch = loaded("cupy"), loaded("torch")
    able: list[N | T] = [like_numpy(np)]
    able += [like_numpy(cupy)] if cupy is not None else []
    able += [tensors(torch)] if torch is not None else []
    return next((one for one in able if all(map(one.own, given))), None)


def arrays_of(a: Any, b: Any, c: Any) -> Arrays:
    """Return whose arrays these are.

    Raises
    ------
    TypeError
        If they are of no library that has such numbers, or of several without DLPack.
    """
    given = [x for x in (a, b, c) if x is not None]
    found: LibraryArrays | None = library_among(NumPyLike, TorchTensors, given)
    if found is not None:
        return found
    if all(ExportedArrays(None).own(x) for x in given):
        from tilewright.serve.arrays.dlpack import DLPackArrays

        return ExportedArrays(DLPackArrays(a, b, c))
    raise TypeError(
        f"{kinds_of(a, b, c)}; of {', '.join(NARROW)} give NumPy arrays only,"
        " or arrays on one CUDA device"
    )
