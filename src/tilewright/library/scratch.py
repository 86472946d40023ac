"""Device memory that calls on one queue share, because they run one after the other."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tilewright.backend import Event, LiveDevice

__all__ = ["TOPS", "Scratch", "scratch_of"]

# The piece that is zero between calls (guard.h).
TOPS = "tops"

# Programs use one stream or a few; what more of them keep would only fill the device.
_MOST_QUEUES = 8
_MOST_PREPARED = 32


class Scratch:
    """Named pieces of memory that only grow, for one device and queue.

    Whoever builds and enqueues a call holds `lock`.  Work on a CUDA stream is ordered by the
    stream; on an OpenCL queue, which need not be in order, a call waits for `last`.

    Parameters
    ----------
    live : LiveDevice
        Where the memory is.
    """

    def __init__(self, live: LiveDevice) -> None:
        self.lock = threading.Lock()
        self.last: Event | None = None
        # Launches laid out for calls that may come again; they name this memory.
        self.prepared: OrderedDict[Any, Any] = OrderedDict()
        self._live = live
        self._pieces: dict[str, tuple[Any, int]] = {}
        self._spoiled: set[str] = set()
        self._zero: Any = None

    def need(self, name: str, size: int, *, zeroed: bool = False) -> Any:
        """Return a piece of at least so many bytes.

        Parameters
        ----------
        name : str
            Of the piece.
        size : int
            In bytes.
        zeroed : bool
            Whether all of it is zero when it is made, or made anew; whoever writes to it leaves
            zeros behind, or spoils it.

        Raises
        ------
        OutOfMemoryError
            If the device has too little; the piece is gone then.
        """
        held = self._pieces.get(name)
        if held is not None and held[1] >= size and name not in self._spoiled:
            return held[0]
        self.drop(name)
        self._spoiled.discard(name)
        fresh = self._live.upload(np.zeros(size, np.uint8)) if zeroed else self._live.allocate(size)
        self._pieces[name] = (fresh, size)
        return fresh

    def spoil(self, name: str) -> None:
        """Make a zeroed piece anew before it is used again.

        For calls that failed on their way: some of the launches that leave zeros are missing.
        """
        self._spoiled.add(name)
        self.prepared.clear()

    @contextmanager
    def spoiled_by_failure(self, name: str) -> Iterator[None]:
        """Enqueue within this what leaves a piece zero if all of it runs."""
        try:
            yield
        except BaseException:
            self.spoil(name)
            raise

    def drop(self, name: str) -> None:
        """Forget a piece, once nothing uses it, and launches that might name it."""
        self.prepared.clear()
        held = self._pieces.pop(name, None)
        if held is not None:
            self._live.finish()  # an earlier call may still use it
            self._live.free(held[0])

    @property
    def zero(self) -> Any:
        """Memory with one int, 0, that nobody writes."""
        if self._zero is None:
            self._zero = self._live.upload(np.zeros(1, np.int32))
        return self._zero

    def remember(self, key: Any, prepared: Any) -> None:
        """Keep launches; the least recently used ones make room."""
        self.prepared[key] = prepared
        if len(self.prepared) > _MOST_PREPARED:
            self.prepared.popitem(last=False)

    def close(self) -> None:
        """Give all memory back once nothing uses it."""
        with self.lock:
            self._live.finish()
            for memory in [piece for piece, _ in self._pieces.values()]:
                self._live.free(memory)
            self._pieces.clear()
            self.prepared.clear()


_all: WeakKeyDictionary[LiveDevice, OrderedDict[int, Scratch]] = WeakKeyDictionary()
_finding = threading.Lock()


def scratch_of(live: LiveDevice, queue: Any) -> Scratch:
    """Return the memory for a queue: a stream's address, a pyopencl queue, None for our own."""
    if queue is None:  # CUDA's stream 0 is another than our own
        queue = getattr(live, "stream", 0)
    key = int(getattr(queue, "int_ptr", queue))
    with _finding:
        known = _all.setdefault(live, OrderedDict())
        found = known.get(key)
        if found is None:
            found = known[key] = Scratch(live)
        known.move_to_end(key)
        dropped = known.popitem(last=False)[1] if len(known) > _MOST_QUEUES else None
    if dropped is not None:
        dropped.close()
    return found
