"""What every caller shares, in C: plans and their launches, workspaces, the table of plans.

The library is in wheels; from a clone it is compiled once, with the system's C compiler or the
``ziglang`` package, into the user's cache (`tilewright.core.build`).
"""

from __future__ import annotations

import ctypes
import threading

__all__ = ["library", "needed_library"]

_lock = threading.Lock()
_found: list[ctypes.PyDLL | None] = []


def library() -> ctypes.PyDLL | None:
    """Return the library; None where it is not here and cannot be made.

    Nothing is said then: OpenCL devices do without it, and CUDA's calls say it by
    `needed_library`.  Its functions keep Python's lock: `ctypes.CDLL` of the same file gives those
    that do not.
    """
    with _lock:
        if not _found:
            try:
                _found.append(_load())
            except (RuntimeError, OSError):
                _found.append(None)
    return _found[0]


def _load() -> ctypes.PyDLL:
    from tilewright.core.build import library_path

    return ctypes.PyDLL(str(library_path()))


def needed_library() -> ctypes.PyDLL:
    """Return the library.

    Raises
    ------
    CoreError
        If it is not here and cannot be made.
    """
    found = library()
    if found is None:
        return _load()
    return found
