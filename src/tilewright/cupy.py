"""CuPy's products of matrices by `tilewright.matmul`, within a context.

::

    cupy.matmul(a, b)  --matmul()-->  tilewright.matmul(a, b, accuracy=...)
                                 +->  CuPy's own, of what is not served
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import cupy

from tilewright.precision import PRECISIONS
from tilewright.serve.accuracy import by_precision
from tilewright.serve.matmul import matmul as served_matmul

__all__ = ["matmul"]

_theirs = cupy.matmul
# Of the blocks that were entered and not left yet, in any thread, accuracies by dtype.
_entered: list[Mapping[Any, str]] = []
_lock = threading.Lock()


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
    with _lock:
        _entered.append(known)
        cupy.matmul = _ours
    try:
        yield
    finally:
        with _lock:
            _entered[:] = [one for one in _entered if one is not known]
            if not _entered:
                cupy.matmul = _theirs


def _ours(a: Any, b: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Multiply as the block says that was entered last."""
    known = _entered[-1:]  # none in another thread's call that began before the last block ended
    plain = type(a) is type(b) is cupy.ndarray and a.dtype == b.dtype and a.ndim and b.ndim
    if args or kwargs or not plain or not known or a.dtype not in known[0]:
        return _theirs(a, b, *args, **kwargs)
    return served_matmul(a, b, accuracy=known[0][a.dtype])
