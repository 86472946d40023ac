"""The CUDA driver: found without provoking it, and its errors in our words."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

from tilewright.backend.base import (
    BackendError,
    DeviceFailedError,
    DeviceLostError,
    LaunchError,
    OutOfMemoryError,
)
from tilewright.backend.cuda.functions import Functions
from tilewright.backend.libcuda import library

__all__ = ["LOST", "check", "driver", "error_of", "stream_state"]

_OUT_OF_MEMORY = 2

# What a context does not recover from (cuda.h, "this leaves the process in an
# inconsistent state"): ECC and NVLink errors, illegal address, time-out, assertion,
# stack error, illegal instruction, misaligned address, invalid address space, invalid
# program counter, launch failure, contained error; and a context that is destroyed.
LOST = frozenset({214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721})

# What no kernel causes (cuda.h): the device is unavailable or gone, ECC and NVLink errors, the
# operating system failed, a context that something else destroyed, the system is not ready,
# a contained error of memory.
_FAILED = frozenset({46, 100, 214, 220, 304, 709, 721, 802})


@lru_cache(maxsize=1)
def driver() -> Functions | None:
    """Return the driver's functions, initialised; None without driver or GPU."""
    found = library()
    if found is None:
        return None
    functions = Functions(found)
    (status,) = functions.cuInit(0)
    return functions if status == 0 else None


@lru_cache(maxsize=1)
def _stream_calls() -> tuple[Any, Any]:
    found = library()
    assert found is not None
    return found.cuStreamGetId, found.cuStreamIsCapturing


def stream_state(stream: int) -> int | None:
    """Return the driver's number for a stream, never given twice; None while it is captured.

    The driver gives no number then.  Asked at every launch that has a workspace, between its two
    events, so by foreign calls on the library itself.

    Raises
    ------
    LaunchError
        If the driver refuses.
    """
    number, capturing = ctypes.c_ulonglong(), ctypes.c_int()
    get_id, is_capturing = _stream_calls()
    at = ctypes.c_void_p(stream)
    status = is_capturing(at, ctypes.byref(capturing))
    if status == 0 and not capturing.value:
        status = get_id(at, ctypes.byref(number))
    if status:
        raise error_of(status, "looking at a stream")
    return None if capturing.value else number.value


def check(result: tuple[Any, ...], doing: str) -> Any:
    """Return what a driver call returns besides its status.

    Parameters
    ----------
    result : tuple
        What a function of the driver's returned.
    doing : str
        What the call was for; the message begins with it.

    Raises
    ------
    OutOfMemoryError, DeviceLostError, LaunchError
        If the status is not success.
    """
    status, *values = result
    if int(status) != 0:
        raise error_of(int(status), doing)
    return values[0] if values else None


def error_of(status: int, doing: str) -> BackendError:
    """Return the exception that a driver's status stands for."""
    name, text = _words(status)
    detail = f"{name} ({status}): {text}"
    if status == _OUT_OF_MEMORY:
        return OutOfMemoryError(f"{doing}: too little device memory; use a smaller problem", detail)
    if status in _FAILED:
        return DeviceFailedError(f"{doing}: {text}; look at the device with nvidia-smi", detail)
    if status in LOST:
        return DeviceLostError(f"{doing}: {text}; start a new process to go on", detail)
    return LaunchError(f"{doing}: {text} ({name})", detail)


def _words(status: int) -> tuple[str, str]:
    """Return the driver's name and sentence for a status."""
    found = driver()
    if found is None:
        return "CUDA error", str(status)
    (_, name), (_, text) = found.cuGetErrorName(status), found.cuGetErrorString(status)
    if not name:  # no status of this driver's
        return "CUDA error", str(status)
    return name.decode(), text.decode(errors="replace") if text else name.decode()
