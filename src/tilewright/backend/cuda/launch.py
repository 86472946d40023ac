"""Launches that are prepared once and cost little from then on.

What a launch needs (grid, function, arguments) is laid out in memory as the driver wants
it; a later launch writes what changed into it and makes one foreign call.  That call is
made with ctypes on the driver's library itself: with everything laid out beforehand it is
the cheapest one from Python.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.backend.base import LaunchError
from tilewright.backend.cuda.driver import error_of
from tilewright.backend.cuda.tensor_map import encoded
from tilewright.backend.libcuda import library
from tilewright.stencil import Launch, TensorMap, Workspace
from tilewright.stencil.table import Table

__all__ = ["ArgumentBlock", "PreparedLaunch"]

# CUDA C++ Programming Guide, table of technical specifications: grid in x and in y.
_GRID = (2**31 - 1, 65535)


class _Config(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = (
        ("grid_x", ctypes.c_uint),
        ("grid_y", ctypes.c_uint),
        ("grid_z", ctypes.c_uint),
        ("block_x", ctypes.c_uint),
        ("block_y", ctypes.c_uint),
        ("block_z", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute of cuda.h."""

    _fields_ = (("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_uint * 16))


# CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION; CUDA C++ Programming Guide,
# "Programmatic Dependent Launch": from compute capability 9.0 on.
_EARLY, _EARLY_FROM = 6, 90


class ArgumentBlock:
    """A kernel's arguments in memory, and the array of pointers to them.

    Every number has room for the widest, a pair of doubles: numbers begin at its first
    byte, as the driver reads only as many bytes as the kernel declares.  Tensor maps lie
    apart from them.

    Parameters
    ----------
    arguments : sequence
        NumPy scalars of at most 16 bytes; integers (and None) are device pointers; tensor
        maps, whose memory is a device pointer; tables of both.

    Raises
    ------
    LaunchError
        If the driver refuses a tensor map.
    """

    def __init__(self, arguments: Sequence[Any]) -> None:
        count = len(arguments)
        self._memory = (ctypes.c_uint64 * (2 * count))()
        self._first = ctypes.addressof(self._memory)
        self.pointers = (ctypes.c_void_p * count)(*(self._first + 16 * i for i in range(count)))
        self._maps: dict[int, Any] = {}
        for position, value in enumerate(arguments):
            self.put(position, value)

    def put(self, position: int, value: Any) -> None:
        """Write an argument."""
        if isinstance(value, np.generic):
            raw = value.tobytes()
            assert len(raw) <= 16, value
            ctypes.memmove(self._first + 16 * position, raw, len(raw))
        elif isinstance(value, TensorMap):
            self._maps[position] = made = encoded(value)
            self.pointers[position] = ctypes.addressof(made)
        elif isinstance(value, Table):
            raw = value.raw(int, lambda one: bytes(encoded(one)))
            self._maps[position] = room = ctypes.create_string_buffer(raw, len(raw))
            self.pointers[position] = ctypes.addressof(room)
        else:
            self._memory[2 * position] = int(value or 0)

    def slot(self, position: int) -> ctypes.c_uint64:
        """Return a window on an argument: setting its ``value`` sets the pointer."""
        return ctypes.c_uint64.from_buffer(self._memory, 16 * position)


@lru_cache(maxsize=1)
def _calls() -> tuple[Any, Any]:
    """Return the driver's functions for launching and for the current context."""
    found = library()
    assert found is not None
    return found.cuLaunchKernelEx, found.cuCtxGetCurrent


class _Start:
    """A function with its grid and block as the driver wants them."""

    def __init__(self, device: Any, function: int, launch: Launch, shared_bytes: int = 0) -> None:
        self.config = _Config(*launch.grid, launch.batch, *launch.block, 1, shared_bytes)
        if launch.early and (device.spec.compute_capability or 0) >= _EARLY_FROM:
            self._attribute = _Attribute(_EARLY, 0, (ctypes.c_uint * 16)(1))
            self.config.attributes = ctypes.addressof(self._attribute)
            self.config.attribute_count = 1
        # ctypes passes these on as they are, which is cheaper than converting integers.
        self.at = ctypes.c_void_p(ctypes.addressof(self.config))
        self.function = ctypes.c_void_p(function)


class PreparedLaunch:
    """One kernel with its grid and arguments, ready to be enqueued again and again.

    The arguments may change between launches.  Whoever changes and enqueues holds `lock`:
    the driver copies the arguments while `enqueue` runs, not before.

    Parameters
    ----------
    device : CUDADevice
        Whose context the function belongs to.
    function : int
        CUfunction.
    launch : Launch
        Grid and block; the grid of persistent blocks is cut to the device.
    arguments : sequence
        See `ArgumentBlock`.
    dynamic_shared_bytes : int
        Shared memory of a block besides the function's own arrays.
    part_bytes : int
        What each block needs of a workspace, whose address becomes the last argument.
    second : int
        CUfunction that is launched behind it with the same arguments, as `Launch.second` says; 0
        for none.

    Raises
    ------
    LaunchError
        If no CUDA device has such a grid.
    """

    def __init__(
        self,
        device: Any,
        function: int,
        launch: Launch,
        arguments: Sequence[Any],
        dynamic_shared_bytes: int = 0,
        part_bytes: int = 0,
        second: int = 0,
    ) -> None:
        launch = launch.on(device.spec.multiprocessors)
        if not all(0 < size <= most for size, most in zip(launch.grid, _GRID, strict=True)):
            raise LaunchError(
                f"grid={launch.grid} is outside what CUDA launches, 1 to {_GRID}; use larger blocks"
            )
        self.lock = threading.Lock()
        blocks = launch.grid[0]
        self._space = Workspace(blocks, part_bytes, not second) if part_bytes else None
        with device.current():  # the driver makes no tensor map without a context
            self.arguments = ArgumentBlock((*arguments, 0) if part_bytes else arguments)
        self._last = len(arguments)
        self._device = device
        # The first function, and what is launched behind it.
        self._starts = [_Start(device, function, launch, dynamic_shared_bytes)]
        if second and launch.second is not None:
            self._starts.append(_Start(device, second, launch.second))
        # ctypes passes this on as it is, which is cheaper than converting integers.
        self._arguments_at = ctypes.c_void_p(ctypes.addressof(self.arguments.pointers))
        self._context = device.context
        self._current = ctypes.c_void_p()
        self._current_at = ctypes.byref(self._current)
        self._launch, self._get_current = _calls()

    def enqueue(self, stream: int) -> None:
        """Enqueue on a stream and return at once.

        Raises
        ------
        LaunchError
            If the device refuses the launch, or an earlier one has failed.
        """
        self._get_current(self._current_at)
        if self._current.value == self._context:
            self._start(stream)
        else:  # the caller's thread works on another device, or on none yet
            with self._device.current():
                self._start(stream)

    def _start(self, stream: int) -> None:
        if self._space is not None:
            self.arguments.put(self._last, self._device.workspaces.address(stream, self._space))
        for one in self._starts:
            one.config.stream = stream
            status = self._launch(one.at, one.function, self._arguments_at, None)
            if status:
                raise self._device.failed(error_of(status, f"launching on {self._device.id}"))
