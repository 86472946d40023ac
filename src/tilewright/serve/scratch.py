"""Device memory that calls on one OpenCL queue share, because they run one after the other."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from tilewright.backend import Event, LiveDevice
from tilewright.serve.steps import Step

__all__ = ["TOPS", "Scratch", "scratch_of"]

# The piece that is zero between calls (guard.h).
TOPS = "tops"

# Programs use one stream or a few; what more of them keep would only fill the device.
_MOST_QUEUES = 8


class Scratch:
    """Named pieces of memory that only grow, for one device and queue.

    Whoever builds and enqueues a call holds `lock`.  A queue need not be in order: a call waits for
    `last`.

    Parameters
    ----------
    live : LiveDevice
        Where the memory is.
    """

    def __init__(self, live: LiveDevice) -> None:
        self.lock = threading.Lock()
        self.last: Event | None = None
        self._live = live
        self._pieces: dict[str, tuple[Any, int]] = {}
        self._spoiled: set[str] = set()

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
            zeros behind (`spoiled_by_failure`).

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

    @contextmanager
    def spoiled_by_failure(self, name: str) -> Iterator[None]:
        """Enqueue within this what leaves a piece zero if all of it runs.

        Of calls that fail on their way launches that leave zeros may be missing: it is made anew.
        """
        try:
            yield
        except BaseException:
            self._spoiled.add(name)
            raise

    def run(self, steps: Sequence[Step], queue: Any, after: tuple[Any, ...]) -> Event:
        """Enqueue launches, each told to wait for the one before.

        More than one leave something to one another here, and wait for the last that did.
        """
        shares = len(steps) > 1 and self.last is not None
        waits = tuple(after) + ((self.last.raw,) if shares else ())  # type: ignore[union-attr]
        for kernel, launch, arguments in steps:
            event: Any = self._live.launch(kernel, launch, arguments, queue, waits)
            waits = (event.raw,)
        if len(steps) > 1:
            self.last = event
        return event  # type: ignore[no-any-return]

    def drop(self, name: str) -> None:
        """Forget a piece, once nothing uses it."""
        held = self._pieces.pop(name, None)
        if held is not None:
            self._live.finish()  # an earlier call may still use it
            self._live.free(held[0])

    def close(self) -> None:
        """Give all memory back once nothing uses it."""
        with self.lock:
            self._live.finish()
            for memory in [piece for piece, _ in self._pieces.values()]:
                self._live.free(memory)
            self._pieces.clear()


_all: WeakKeyDictionary[LiveDevice, OrderedDict[int, Scratch]] = WeakKeyDictionary()
_finding = threading.Lock()


def scratch_of(live: LiveDevice, queue: Any) -> Scratch:
    """Return the memory for a queue: a pyopencl queue, None for our own."""
    key = 0 if queue is None else int(getattr(queue, "int_ptr", queue))
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
