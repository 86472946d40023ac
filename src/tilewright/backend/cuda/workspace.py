"""Workspaces: device memory for launches whose blocks leave parts of sums to one another."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.backend.cuda.functions import CAPTURE_RELAXED
from tilewright.stencil import Workspace

__all__ = ["Workspaces"]

# A program that makes a stream for each call must not collect memory for all of them; so many
# that work at the same time are rare.
_MOST_STREAMS = 32


class Workspaces:
    """One workspace for each stream of a device, made when it is first needed.

    Launches on a stream follow one another, so they can share a workspace; those of different
    streams may run at once and have one each.  Streams are told apart by the driver's number for
    them, which is never given twice, nor at all while a stream is captured: asking for it then
    spoils the capture.  Launches that are captured into a graph may run whenever the graph does:
    each capture has workspaces of its own, which are kept for the life of the process, because
    nobody says when a graph is forgotten; also one that became too small, which earlier launches
    of the graph have.

    Parameters
    ----------
    device : CUDADevice
        Whose memory it is.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._lock = threading.Lock()
        # By stream: address and bytes; the one used last is the last.
        self._found: dict[tuple[int, int], tuple[int, int]] = {}

    def address(self, stream: int, space: Workspace) -> int:
        """Return where a launch on a stream finds its workspace; the context is current.

        Parameters
        ----------
        stream : int
            Address of the stream.
        space : Workspace
            How large it must be.

        Raises
        ------
        OutOfMemoryError
            If the device has too little memory.
        """
        key = self._key(stream)
        with self._lock:
            address, size = self._found.pop(key, (0, 0))
            if size < space.size:
                if address and key[1] == 0:  # launches that have it may still run
                    self._give_back(address)
                address, size = self._allocate(space), space.size
            self._found[key] = (address, size)
            if len(self._found) > _MOST_STREAMS:
                self._forget_oldest()
            return address

    def _key(self, stream: int) -> tuple[int, int]:
        """Return the number of a stream and 0, or its address and what it is captured into."""
        number = self._device.stream_state(stream)
        if number is not None:
            return number, 0
        found = self._device.api.cuStreamGetCaptureInfo(stream, None, None, None)
        self._device.check(found, "looking at a stream")
        return stream, int(found[2])

    def _allocate(self, space: Workspace) -> int:
        """Return fresh memory whose words are zero."""
        device = self._device
        with self._uncaptured():
            address = int(device.allocate(space.size))
            clearing = device.api.cuMemsetD8Async(address, 0, space.cleared_bytes, device.stream)
            device.check(clearing, "clearing a workspace")
            device.check(device.api.cuStreamSynchronize(device.stream), "clearing a workspace")
        return address

    def _give_back(self, address: int) -> None:
        """Free memory when nothing uses it any more."""
        with self._uncaptured():
            self._device.check(self._device.api.cuCtxSynchronize(), "waiting for a workspace")
            self._device.free(address)

    def _forget_oldest(self) -> None:
        """Free the workspace of the stream that has not been used for the longest time."""
        for key in self._found:
            if key[1] == 0:  # no graph's
                self._give_back(self._found.pop(key)[0])
                return

    @contextmanager
    def _uncaptured(self) -> Iterator[None]:
        """Let this thread allocate while a stream of its own is captured."""
        api, check = self._device.api, self._device.check
        mode = ctypes.c_int(CAPTURE_RELAXED)  # each exchange leaves here what was before
        check(api.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)), "allocating a workspace")
        try:
            yield
        finally:
            api.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
