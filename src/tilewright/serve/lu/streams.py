"""Streams of a device's factorisations, and what orders them."""

from __future__ import annotations

import threading
from typing import Any

from tilewright.backend.cuda.functions import NO_TIMING, NON_BLOCKING
from tilewright.backend.cuda.partition import partitions
from tilewright.stencil.lu import CLUSTER

__all__ = ["Streams", "streams_of"]

# A stream's priority, the higher the lower; devices cut it to what they have.
_FIRST = -5

# Thread blocks of a panel's kernel, each of which has a multiprocessor: a quarter of them at most.
_PANEL_BLOCKS = 32


class Streams:
    """Streams of a device's factorisations, which stay, as do workspaces that products have there.

    Panels have some multiprocessors of their own, where they are one cluster of blocks, or, where
    `apart` is false or the driver sets none apart, a priority.  Then their blocks wait for one
    another, so that two panels may not be on a device half each: all are on one stream.

    Attributes
    ----------
    panels, beside, left, whole : int
        Addresses: of panels, of what leaves them room, of rows left of them, and of all others.
    cluster : int
        Blocks of a panel's cluster; 0 where panels have no multiprocessors of their own.
    few, others : int
        Multiprocessors for panels, and for what is beside them.
    """

    def __init__(self, live: Any, apart: bool) -> None:
        self._live = live
        self.lock = threading.Lock()
        api, check = live.api, live.check
        every = live.spec.multiprocessors

        def stream() -> int:
            return int(check(api.cuStreamCreate(NON_BLOCKING), "making a stream"))

        with live.current():
            found = partitions(live, CLUSTER) if apart else None
            self.whole = stream()
            if found is None:
                self.cluster, self.few = 0, max(1, min(_PANEL_BLOCKS, every // 4))
                self.others = every - self.few
                made = api.cuStreamCreateWithPriority(NON_BLOCKING, _FIRST)
                self.panels = int(check(made, "making a stream"))
                self.beside, self.left = stream(), stream()
            else:
                self.cluster = CLUSTER
                self.few, self.others = (one.multiprocessors for one in found)
                self.panels = found[0].stream(_FIRST)
                self.beside, self.left = found[1].stream(), found[1].stream()
            self._event = check(api.cuEventCreate(NO_TIMING), "making an event")

    def after(self, stream: int, other: int) -> None:
        """Let a stream wait for all that has been enqueued on another one."""
        done = self._live.api.cuEventRecord(self._event, other)
        self._live.check(done, "recording an event")
        done = self._live.api.cuStreamWaitEvent(stream, self._event, 0)
        self._live.check(done, "waiting for an event")


_made: dict[Any, Streams] = {}
_making = threading.Lock()


def streams_of(live: Any, apart: bool) -> Streams:
    """Return a device's streams, one set however many threads ask at once."""
    with _making:
        if (live, apart) not in _made:
            _made[live, apart] = Streams(live, apart)
        return _made[live, apart]
