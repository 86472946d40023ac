"""Streams of a device's factorisations, and what orders them."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from tilewright.backend.base import BackendError
from tilewright.backend.cuda.functions import NO_TIMING, NON_BLOCKING
from tilewright.backend.cuda.partition import Partition, partitions
from tilewright.stencil.lu import BLOCKS, CLUSTER

__all__ = ["Place", "Streams", "streams_of"]

# Streams' priorities, of which lower numbers go first: panels, then the updates between them, then
# the products beside both.  Devices clip them to the range that they have.
_FIRST, _SECOND = -5, -4

# Multiprocessors of a device that can spare those of a cluster.
_LEAST = 4 * CLUSTER


class Place(NamedTuple):
    """Where panels are factored, and products beside them.

    Parameters
    ----------
    panels, beside : int
        Streams.
    cluster : int
        Blocks of a panel's cluster; 0 where its blocks tell each other rows through memory.
    few, others : int
        Multiprocessors for panels, and for what is beside them.
    """

    panels: int
    beside: int
    cluster: int
    few: int
    others: int


class Streams:
    """Streams of a device's factorisations, which stay, as do workspaces that products have there.

    Panels that are one cluster of blocks have multiprocessors of their own, where the driver sets
    some apart.  Blocks of all others wait for one another, so that two panels may not be on a
    device half each: all of these are on one stream, whose priority is high.

    Attributes
    ----------
    whole, left : int
        Of what takes all multiprocessors, and of rows exchanged left of panels.
    plain, apart, alone : Place
        For panels of any number of rows; of so many as a cluster holds, beside products on all
        multiprocessors; and of these where there are no such products.
    """

    def __init__(self, live: Any) -> None:
        self._live = live
        self.lock = threading.Lock()
        api, check = live.api, live.check
        every = live.spec.multiprocessors

        def stream(priority: int = 0) -> int:
            made = api.cuStreamCreateWithPriority(NON_BLOCKING, priority)
            return int(check(made, "making a stream"))

        with live.current():
            self._event = check(api.cuEventCreate(NO_TIMING), "making an event")
            self.whole = stream(_SECOND)
            # Each block of a panel has a multiprocessor: a quarter of them at most.
            few = max(1, min(BLOCKS, every // 4))
            self.plain = self.apart = Place(stream(_FIRST), stream(), 0, few, every - few)
            self.alone, self.left = self.plain, stream()
            found = partitions(live, CLUSTER) if every >= _LEAST else None
            try:
                if found is not None:
                    self._set_apart(*found, every)
            except BackendError:
                pass  # a driver may split multiprocessors and make no streams of them

    def _set_apart(self, mine: Partition, others: Partition, every: int) -> None:
        """Let panels that are a cluster have multiprocessors of their own."""
        sizes = mine.multiprocessors, others.multiprocessors
        apart = Place(mine.stream(_FIRST), others.stream(), CLUSTER, *sizes)
        self.left = others.stream()
        self.apart, self.alone = apart, apart._replace(panels=self.whole, few=every)

    @property
    def all(self) -> set[int]:
        """All streams."""
        places = self.plain, self.apart
        return {self.whole, self.left, *(x for one in places for x in (one.panels, one.beside))}

    def after(self, stream: int, other: int) -> None:
        """Let a stream wait for all that has been enqueued on another one."""
        if stream == other:
            return
        done = self._live.api.cuEventRecord(self._event, other)
        self._live.check(done, "recording an event")
        done = self._live.api.cuStreamWaitEvent(stream, self._event, 0)
        self._live.check(done, "waiting for an event")


_made: dict[Any, Streams] = {}
_making = threading.Lock()


def streams_of(live: Any) -> Streams:
    """Return a device's streams, one set however many threads ask at once."""
    with _making:
        if live not in _made:
            _made[live] = Streams(live)
        return _made[live]
