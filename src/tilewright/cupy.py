"""CuPy's products of matrices by `tilewright.matmul`, within a context.

::

    cupy.matmul(a, b)  --matmul()-->  tilewright.matmul(a, b, accuracy=...)
                                 +->  CuPy's own, of what is not served
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cupy

from tilewright.precision import PRECISIONS
from tilewright.serve.accuracy import by_precision
from tilewright.serve.matmul import matmul as served_matmul

__all__ = ["matmul"]


@contextmanager
def matmul(accuracy: str = "fp32") -> Iterator[None]:
    """Let ``cupy.matmul`` be `tilewright.matmul` within a ``with`` block, in all threads.

    Served are arrays of one dtype, float32, float64, complex64 or complex128; other calls, and
    those with more arguments, are CuPy's.  So are ``@`` and ``dot``, which CuPy itself compiles in.

    Parameters
    ----------
    accuracy : str
        As of `tilewright.gemm`, for the dtypes that know it; "ieee" for others.

    Raises
    ------
    ValueError
        If no dtype knows the accuracy.
    """
    known = {PRECISIONS[letter].dtype: of for letter, of in by_precision(accuracy).items()}
    theirs = cupy.matmul

    def ours(a: Any, b: Any, /, *args: Any, **kwargs: Any) -> Any:
        plain = type(a) is type(b) is cupy.ndarray and a.dtype == b.dtype and a.ndim and b.ndim
        if args or kwargs or not plain or a.dtype not in known:
            return theirs(a, b, *args, **kwargs)
        return served_matmul(a, b, accuracy=known[a.dtype])

    cupy.matmul = ours
    try:
        yield
    finally:
        cupy.matmul = theirs
