"""Arrays of other libraries in the host's memory, through DLPack: as NumPy arrays, in place."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.serve.arrays.dlpack import exported

__all__ = ["are_on_host", "as_numpy", "beside"]

# dlpack.h: plain memory, and memory of the host that CUDA has pinned.
_HOST = (1, 3)


def are_on_host(given: list[Any]) -> bool:
    """Whether all arrays are other libraries' and in the host's memory."""
    return all(
        not isinstance(x, np.ndarray)
        and hasattr(x, "__dlpack_device__")
        and int(x.__dlpack_device__()[0]) in _HOST
        for x in given
    )


class _Memory:
    """What NumPy makes an array of, and what has to live as long as that."""

    def __init__(self, interface: dict[str, Any], keep: Any) -> None:
        self.__array_interface__ = interface
        self.keep = keep


def as_numpy(name: str, x: Any) -> NDArray[Any]:
    """Return a NumPy array of the same memory.

    Raises
    ------
    ValueError
        If the array cannot be shared, or its type is none of numbers here.
    """
    tensor = exported(name, x, None)
    dtype = tensor.dtype
    interface = {
        "version": 3,
        "data": (tensor.address, tensor.read_only),
        "shape": tensor.shape,
        "strides": tensor.strides,
        # NumPy's own interface knows no type of other packages, such as bfloat16.
        "typestr": dtype.str if dtype.isbuiltin == 1 else f"<V{dtype.itemsize}",
    }
    return np.asarray(_Memory(interface, tensor.capsule)).view(dtype)


def beside(x: Any, made: NDArray[Any]) -> Any:
    """Return a new array of the library that `x` is of, in the memory of a NumPy array.

    Raises
    ------
    ValueError
        If that library takes none.
    """
    own = getattr(x, "__array_namespace__", None)
    library = sys.modules.get(type(x).__module__.split(".")[0]) if own is None else own()
    take = getattr(library, "from_dlpack", None)
    if take is None:
        raise ValueError(f"c is missing and {type(x).__name__} has no way to make it here; give c")
    if made.dtype.isbuiltin == 1:
        return take(made)
    name = made.dtype.name  # NumPy exports no bfloat16; its bits are as good
    return take(made.view(f"i{made.itemsize}")).view(getattr(library, name))
