"""Streams of a device's factorisations, and what orders them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from tilewright.backend.cuda.functions import NO_TIMING, NON_BLOCKING

__all__ = ["Streams", "streams_of"]

# A stream's priority, the higher the lower; devices cut it to what they have.
_FIRST = -5


class Streams:
    """Three streams of a device, which stay, as do workspaces that products have on them.

    Panels' blocks wait for one another, so that two panels may not be on a device half each: all
    are on one stream.

    Attributes
    ----------
    block, update, left : int
        Addresses; work on the first one goes before that on others.
    """

    def __init__(self, live: Any) -> None:
        self._live = live
        self.lock = threading.Lock()
        api, check = live.api, live.check
        with live.current():
            made = check(api.cuStreamCreateWithPriority(NON_BLOCKING, _FIRST), "making a stream")
            self.block = int(made)
            self.update, self.left = (
                int(check(api.cuStreamCreate(NON_BLOCKING), "making a stream")) for _ in range(2)
            )
            self._events = {
                name: check(api.cuEventCreate(NO_TIMING), "making an event")
                for name in ("", "factored", "updated")
            }

    def mark(self, name: str, stream: int) -> None:
        """Let an event of a name be what has been enqueued on a stream."""
        done = self._live.api.cuEventRecord(self._events[name], stream)
        self._live.check(done, "recording an event")

    def wait(self, name: str, stream: int) -> None:
        """Let a stream wait for what an event was when it was marked last."""
        done = self._live.api.cuStreamWaitEvent(stream, self._events[name], 0)
        self._live.check(done, "waiting for an event")

    def after(self, stream: int, other: int) -> None:
        """Let a stream wait for all that has been enqueued on another one."""
        self.mark("", other)
        self.wait("", stream)


_made: dict[Any, Streams] = {}
_making = threading.Lock()


def _streams(live: Any) -> Streams:
    """Return a device's streams, one set however many threads ask at once."""
    with _making:
        if live not in _made:
            _made[live] = Streams(live)
        return _made[live]


@contextlib.contextmanager
def streams_of(live: Any) -> Iterator[Streams]:
    """Return a device's streams for one caller at a time; its context is current."""
    found = _streams(live)
    with found.lock, live.current():
        yield found
