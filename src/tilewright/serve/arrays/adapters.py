"""Whose arrays a call is given: the first call with a library's arrays imports its adapter."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.serve.checks import kinds_of, loaded, refuse_masked

__all__ = ["adapter_of", "adapter_on_cuda"]


def adapter_of(a: Any, b: Any, c: Any) -> Any:
    """Return what knows this kind of arrays: a module or object of a few functions.

    ``view(name, x)`` and ``result(x)`` go between the caller's array and one that has
    NumPy's ``shape`` and ``dtype``; ``empty_like(view, shape)`` makes a result;
    ``run(request, device)`` multiplies.
    """
    given = [x for x in (a, b, c) if x is not None]
    found = adapter_on_cuda(*given)
    if found is not None:
        return found
    refuse_masked(a=a, b=b, c=c)
    if any(getattr(type(x), "__module__", "").startswith("tilewright.") for x in given):
        from tilewright.serve.arrays.double_double.adapter import double_double_arrays

        return double_double_arrays(given)
    if all(isinstance(x, np.ndarray) for x in given):
        from tilewright.serve.arrays import numpy as on_numpy

        return on_numpy
    if all(type(x).__module__.startswith("pyopencl.array") for x in given):
        from tilewright.serve.arrays import pyopencl as on_pyopencl

        return on_pyopencl
    if all(hasattr(x, "__dlpack_device__") and not isinstance(x, np.ndarray) for x in given):
        from tilewright.serve.arrays.dlpack import DLPackArrays

        return DLPackArrays(a, b, c)
    from tilewright.serve.arrays import sliced as on_sliced

    if all(map(on_sliced.is_sliced, given)):
        return on_sliced
    for name, x in (("a", a), ("b", b), ("c", c)):
        if isinstance(x, list | tuple | int | float | complex):
            give = "an array to write to" if name == "c" else f"np.asarray({name})"
            raise TypeError(f"{name} is a {type(x).__name__}; give {give}")
    raise TypeError(
        f"{kinds_of(a, b, c)}; give NumPy arrays only, pyopencl arrays only,"
        " or arrays on one CUDA device only"
    )


def adapter_on_cuda(*given: Any) -> Any:
    """Return what knows CuPy's arrays, or PyTorch's on a CUDA device; None of any others."""
    cupy, torch = loaded("cupy"), loaded("torch")
    if cupy is not None and all(isinstance(x, cupy.ndarray) for x in given):
        from tilewright.serve.arrays import cupy as on_cupy

        return on_cupy
    if torch is not None and all(isinstance(x, torch.Tensor) and x.is_cuda for x in given):
        from tilewright.serve.arrays import torch as on_torch

        return on_torch
    return None
