"""Arrays of which parts are read and written by slices: Zarr's, h5py's, Dask's, beside NumPy's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.serve.arrays import numpy as on_numpy
from tilewright.serve.arrays.numpy import empty_like, result, view
from tilewright.serve.overlap import refuse_overlap, share
from tilewright.serve.streamed import on_host
from tilewright.serve.streamed.serve import devices_of, serve

if TYPE_CHECKING:
    from tilewright.serve.request import Device

__all__ = ["empty_like", "is_sliced", "result", "run", "view"]

# Whether calls may bound the memory that they take.
IS_OF_HOST = True


def is_sliced(x: Any) -> bool:
    """Whether an array gives parts: it has a shape, a NumPy dtype and subscripts."""
    if isinstance(x, np.ndarray):
        return True
    if type(x).__module__.startswith("pyopencl."):  # parts of it are on its device
        return False
    known = isinstance(getattr(x, "dtype", None), np.dtype) and hasattr(x, "shape")
    return known and hasattr(x, "__getitem__") and not hasattr(x, "__dlpack_device__")


def _meet(x: Any, c: Any) -> bool:
    both = isinstance(x, np.ndarray) and isinstance(c, np.ndarray)
    return x is c or (both and share(x, c))


def run(request: Any, device: Device) -> None:
    """Compute into ``request.c`` part by part, and wait for it.

    Raises
    ------
    ValueError
        If C is A or B, takes no parts, or is memory that cannot be written.
    """
    if not hasattr(request.c, "__setitem__"):
        raise ValueError(f"c is a {type(request.c).__name__}, which takes no parts; give another")
    if isinstance(request.c, np.ndarray):
        on_numpy.check_result(request.c)
    refuse_overlap(_meet, request.c, a=request.a, b=request.b)
    devices = devices_of(device)
    if len(devices) == 1 and on_numpy.is_shared(devices[0]):
        on_host.serve(devices[0], request, on_numpy.run)
    else:
        serve(devices, request)
