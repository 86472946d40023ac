"""Arrays of other libraries in the host's memory, through DLPack: as NumPy arrays, in place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.serve.arrays.dlpack import exported

__all__ = ["through_numpy"]

# dlpack.h: plain memory, and memory of the host that CUDA has pinned.
_HOST = (1, 3)


def through_numpy(
    function: Callable[..., Any], inputs: dict[str, Any], c: Any, **options: Any
) -> Any:
    """Return what a function of NumPy arrays makes of other libraries' arrays.

    None unless all of them are in the host's memory.

    Parameters
    ----------
    function : callable
        Takes the inputs in order, `c` and the options, and changes and returns `c`.
    inputs : dict of str to array
        By the name that errors have for each.
    c : array, optional
        Without it the result is a new array of the first input's library.

    Raises
    ------
    ValueError
        If an array cannot be shared, its dtype is unknown here, or `c` is missing and the library
        has no `from_dlpack`.
    """
    named = inputs if c is None else inputs | {"c": c}
    if not all(map(_is_on_host, named.values())):
        return None
    shared = {name: _as_numpy(name, x) for name, x in named.items()}
    made = function(*(shared[name] for name in inputs), shared.get("c"), **options)
    return _beside(next(iter(inputs.values())), made) if c is None else c


def _is_on_host(x: Any) -> bool:
    """Whether an array is another library's and in the host's memory."""
    return (
        not isinstance(x, np.ndarray)
        and hasattr(x, "__dlpack_device__")
        and int(x.__dlpack_device__()[0]) in _HOST
    )


class _Memory:
    """What NumPy makes an array of, and what has to live as long as that."""

    def __init__(self, interface: dict[str, Any], keep: Any) -> None:
        self.__array_interface__ = interface
        self.keep = keep


def _as_numpy(name: str, x: Any) -> NDArray[Any]:
    """Return a NumPy array of the same memory."""
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


def _beside(x: Any, made: NDArray[Any]) -> Any:
    """Return a new array of the library that `x` is of, in the memory of a NumPy array."""
    own = getattr(x, "__array_namespace__", None)
    library = sys.modules.get(type(x).__module__.split(".")[0]) if own is None else own()
    take = getattr(library, "from_dlpack", None)
    if take is None:
        raise ValueError(f"c is missing and {type(x).__name__} has no way to make it here; give c")
    if made.dtype.isbuiltin == 1:
        return take(made)
    name = made.dtype.name  # NumPy exports no bfloat16; its bits are as good
    return take(made.view(f"i{made.itemsize}")).view(getattr(library, name))
