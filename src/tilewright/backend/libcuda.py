"""Whether NVIDIA's driver is here: asked by every process, so without anything else of CUDA."""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache

__all__ = ["library"]


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """Return the driver's own library; None on a machine without it.

    Looked for here, first: where it is missing nothing else of CUDA is imported.
    """
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None
