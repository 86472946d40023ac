"""Pinned buffers, and memory of devices, that stay for the next call.

To lock pages takes longer than to copy what they hold, and to take a device's memory 0.1 ms.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import OutOfMemoryError
from tilewright.backend.cuda.functions import NO_TIMING
from tilewright.backend.libcuda import library

__all__ = [
    "BUFFER_BYTES",
    "THREADS",
    "Lines",
    "Ring",
    "Staging",
    "keep",
    "kept_bytes",
    "leave",
    "release_buffers",
    "ring",
    "take",
]

# Threads that copy in each direction: a core of an H100's host copies 10 GB/s, its link takes 50,
# and twelve reached 53 to 63.  Each has two buffers of 4 MiB, which take the link 0.1 ms.
THREADS, BUFFER_BYTES = min(12, os.cpu_count() or 1), 4 << 20

# What is kept for later calls: buffers of both directions of two calls at once.
_MOST_KEPT_BYTES = 4 * 2 * THREADS * BUFFER_BYTES


class Lines(ctypes.Structure):
    """tilewright_lines of staging.h."""

    _fields_ = [
        ("device", ctypes.c_uint64), ("pitch", ctypes.c_uint64), ("host", ctypes.c_void_p),
        ("step", ctypes.c_int64), ("width", ctypes.c_uint64), ("lines", ctypes.c_uint64),
    ]  # fmt: skip


# The driver's functions that staging.c calls, in the order of tilewright_staging.
_CALLED = (
    "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuMemcpy2DAsync_v2", "cuEventRecord",
    "cuEventSynchronize",
)  # fmt: skip


class Staging(ctypes.Structure):
    """tilewright_staging of staging.h."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in _CALLED),
        ("context", ctypes.c_void_p), ("stream", ctypes.c_void_p), ("buffers", ctypes.c_void_p),
        ("events", ctypes.c_void_p), ("buffer_bytes", ctypes.c_uint64),
        ("threads", ctypes.c_uint64),
    ]  # fmt: skip


class Ring:
    """Pinned buffers of one direction, two for each thread, and events of the device's copies.

    Parameters
    ----------
    live : CUDADevice
        Which copies.
    threads, size : int
        Of threads, and bytes of a buffer.
    """

    def __init__(self, live: Any, threads: int, size: int) -> None:
        self.of = live, threads, size
        self._holder = live.pinned(2 * threads * size)
        self.memory: NDArray[np.uint8] = self._holder.__enter__()
        make = live.api.cuEventCreate
        with live.current():
            made = [live.check(make(NO_TIMING), "making an event") for _ in range(2 * threads)]
        self._events = (ctypes.c_void_p * len(made))(*made)

    def staging(self, stream: int) -> Staging:
        """Return it as C takes it."""
        (live, threads, size), found = self.of, library()
        functions = [ctypes.cast(found[name], ctypes.c_void_p).value for name in _CALLED]  # type: ignore[index]
        return Staging(
            *functions, live.context, stream, self.memory.ctypes.data,
            ctypes.addressof(self._events), size, threads,
        )  # fmt: skip

    def free(self) -> None:
        """Give the memory back; the device no longer uses it."""
        live = self.of[0]
        with live.current():
            for event in self._events:
                live.api.cuEventDestroy(event)
        self._holder.__exit__(None, None, None)


_kept: list[Ring] = []
_lock = threading.Lock()


def ring(live: Any, threads: int, size: int) -> Ring:
    """Return buffers that were kept, or new ones."""
    with _lock:
        for one in _kept:
            if one.of == (live, threads, size):
                _kept.remove(one)
                return one
    return Ring(live, threads, size)


def keep(ring: Ring) -> None:
    """Keep buffers for the next call; those kept longest make room."""
    gone = []
    with _lock:
        _kept.append(ring)
        while sum(2 * math.prod(one.of[1:]) for one in _kept) > _MOST_KEPT_BYTES:
            gone.append(_kept.pop(0))
    for one in gone:
        one.free()


def release_buffers() -> None:
    """Give pinned buffers and device memory back that no call uses."""
    with _lock:
        kept, _kept[:] = _kept[:], []
        left, _left[:] = _left[:], []
    for one in kept:
        one.free()
    for live, memory, _ in left:
        live.free(memory)


# -- device memory -------------------------------------------------------------------------

# Of a device's memory, the part that is kept for the next call.  Copies right after memory was
# given back were slower; presumably the driver clears it with the engines that copy.
_PART_KEPT = 1 / 8

_left: list[tuple[Any, int, int]] = []  # by age: device, address and bytes


def kept_bytes(live: Any) -> list[int]:
    """Return the bytes of each piece of a device's memory that is kept for the next call."""
    with _lock:
        return [size for other, _, size in _left if other is live]


def take(live: Any, size: int) -> tuple[int, int]:
    """Return memory of so many bytes, or not many more, and how many."""
    with _lock:
        fit = [one for one in _left if one[0] is live and size <= one[2] <= 2 * size]
        if fit:
            found = min(fit, key=lambda one: one[2])
            _left.remove(found)
            return found[1:]
    try:
        return live.allocate(size), size
    except OutOfMemoryError:
        release_buffers()
        return live.allocate(size), size


def leave(live: Any, memory: int, size: int | None) -> None:
    """Keep memory of so many bytes for the next call; what was kept longest makes room."""
    if size is None or live.spec.memory_bytes is None:
        live.free(memory)
        return
    gone = []
    with _lock:
        _left.append((live, memory, size))
        here = [one for one in _left if one[0] is live]
        total = sum(one[2] for one in here)
        while total > _PART_KEPT * live.spec.memory_bytes:
            gone.append(here.pop(0))
            _left.remove(gone[-1])
            total -= gone[-1][2]
    for _, address, _ in gone:
        live.free(address)
