"""Calls like one made before: in C from the caller's arrays to the launch (core/native/arrays.c).

CuPy's arrays, PyTorch's tensors and double-double matrices of CuPy's words are known by what an
adapter tells of its library; a call that had its closer look in Python is remembered by its arrays'
layouts, types and alignment, transposes, accuracy and kind of scalars, never by addresses.
`tilewright.serve.repeated` does so for arrays that OpenCL's devices take.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.portfolio.find import on_reload
from tilewright.serve.arenas import Memory
from tilewright.timeline import is_recording, on_change

__all__ = [
    "CUPY",
    "PAIRS",
    "TORCH",
    "again",
    "forget",
    "group",
    "know",
    "looks",
    "of_triangle",
    "remember",
    "remember_group",
]

# seen.h: libraries.
CUPY, TORCH, PAIRS = 0, 1, 2


class _Table:
    """The core's functions; none where there is no core, or Python runs without its lock."""

    def __init__(self) -> None:
        self.remember: Callable[..., None] = _nothing
        self.remember_group: Callable[..., None] = _nothing
        self.forget: Callable[[], None] = _nothing

    def begin(self) -> Any:
        """Find the functions; return the one that makes a library known, or None."""
        from tilewright.core import library

        found = None if "t" in getattr(sys, "abiflags", "") else library()
        if found is None:
            return None
        function = found.tilewright_function
        function.restype, function.argtypes = ctypes.py_object, [ctypes.c_char_p]
        function(b"begin")(int, complex, _failed, float, np.float64, np.float32)
        enable = function(b"enable")
        global again, group
        again, group = function(b"again"), function(b"group")
        self.remember, self.forget = function(b"remember"), function(b"forget")
        self.remember_group = function(b"remember_group")
        on_change(lambda: enable(not is_recording()))  # a timeline sees launches made in Python
        on_reload(self.forget)
        enable(not is_recording())
        return function(b"know")


def _nothing(*_: Any) -> None:
    """Know no call."""


again: Callable[..., Any] = _nothing
"""Does all of gemm() for a call like one made before; returns None for any other."""

looks: dict[type, Callable[..., Any]] = {}
"""What does all of gemm() for a call like one made before, by the kind of a; of others None."""

group: Callable[..., Any] = _nothing
"""Does all of grouped_gemm() for a call like one made before, but for the products whose numbers it
returns behind the list of results; returns None for any other."""

_table = _Table()
_known: list[Any] = []
_beginning = threading.Lock()


def know(
    library: int,
    kind: type,
    stream: Callable[[int], int],
    empty: Callable[..., Any],
    memory: Memory,
    grad: Callable[[], bool] | None = None,
    part: Any = None,
    inside: tuple[int, ...] | None = None,
) -> None:
    """Let calls with a library's arrays be looked at.

    Parameters
    ----------
    library : int
        `CUPY`, `TORCH` or `PAIRS`.
    kind : type
        Of exactly such arrays.
    stream : callable
        Returns the address of a device's current stream.
    empty : callable
        Takes shape, dtype and device of a new C.
    memory : Memory
        The library's allocator, for calls that need more than an arena keeps.
    grad : callable, optional
        PyTorch's ``is_grad_enabled``.
    part : object
        The type of CuPy's pointers; PyTorch's ``strided``.
    inside : tuple of int, optional
        By `tilewright.serve.arrays.inside`.
    """
    with _beginning:  # two libraries' adapters may be imported at once
        if not _known:
            _known.append(_table.begin())
    if _known[0] is not None:
        _known[0](library, kind, stream, empty, memory, grad, part, inside)
        looks[kind] = again


def remember(given: tuple[Any, ...], used: Any, plan: Any, *about: Any) -> None:
    """Keep the plan of a call for calls like it.

    Parameters
    ----------
    given : tuple
        gemm's arguments: a, b, c, alpha, beta, trans_a, trans_b, accuracy, out_dtype, device.
    used : array
        C, given or new.
    plan : Plan
        What was started.
    about
        Shape, dtype and device of a new C; whether the kernel's A is the caller's b, scalars may be
        complex, scalars are integers; the largest scalar; and of a, b and c the bytes from the
        first element to the end of the last.
    """
    _table.remember(*given, used, plan.native, plan, *about)


def remember_group(
    given: tuple[Any, ...], launches: Sequence[tuple[Any, int]], keep: Any, *about: Any
) -> None:
    """Keep the plans of a group for calls like it.

    Parameters
    ----------
    given : tuple
        grouped_gemm's arguments: a, b, c or None, alpha, beta, trans_a, trans_b, out_dtype.
    launches : sequence of tuple
        Plans, and the number of the first of each one's products among those that are launched.
    keep : object
        Types, by whose addresses groups are known.
    about
        What makes new results, of a[0]; what refuses a, b and c that overlap; numbers of products
        that are still to be computed; where each launched product's A, B and C are among all
        matrices, as 32-bit numbers, and the extents of all as 64-bit ones; whether scalars may be
        complex, whether they are integers, the largest.
    """
    native = b"".join(struct.pack("Pq", plan.native, first) for plan, first in launches)
    _table.remember_group(*given, native, (launches, keep), *about)


def of_triangle(lower: bool, reads_c: bool, accuracy: Any) -> str:
    """Return what the accuracy of a call is called here that computes a triangle of C.

    Plans of such calls depend on whether beta is 0.
    """
    return f"{'L' if lower else 'U'}{reads_c:d}:{accuracy}"


def forget() -> None:
    """Forget all calls."""
    _table.forget()


def _failed(ordinal: int, status: int) -> None:
    """Raise the error of a launch that a device refused."""
    from tilewright.backend.cuda.device import device_at
    from tilewright.backend.cuda.driver import error_of

    live = device_at(ordinal)
    raise live.failed(error_of(status, f"launching on {live.id}"))
