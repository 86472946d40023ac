"""A cold cache: what a product finds when others have worked since its data were touched."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.microbench.bandwidth import Stream, Walker
from tilewright.timeline import span

__all__ = ["ColdCache", "host_cache_bytes"]

# Of the cache: replacement is no exact LRU, an H100's L2 is two halves that each keep copies of
# what the other owns, and what is written is whole steps of all blocks, up to a third less.
_TIMES = 3

# Where no size is known: larger than any last cache that is sold today but stacked ones.
_UNKNOWN = 256 << 20


def host_cache_bytes() -> int:
    """Return the size of the host's largest cache, where Linux tells it."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()  # such as 32768K
        if text[:-1].isdecimal() and text[-1:] == "K":
            sizes.append(int(text[:-1]) << 10)
    return max(sizes)


class ColdCache:
    """Fills the caches of a device, and the host's if asked, with something else.

    A buffer larger than the last cache is written: lines that were there are evicted.
    The device's smaller caches are, too, on a GPU; a CPU's private ones only of the cores
    that took part, which is nearly always all of them.

    Parameters
    ----------
    live : LiveDevice
        The device.
    host : bool
        Whether somebody computes on the host's cores as well.

    Attributes
    ----------
    bytes : int
        How much is written on the device.
    """

    def __init__(self, live: LiveDevice, *, host: bool = False) -> None:
        self._live = live
        cpu = live.spec.kind == "cpu"
        known = live.spec.l2_bytes or 0
        wanted = _TIMES * max(known, host_cache_bytes() if cpu else 0) or _UNKNOWN
        # A quarter: somebody else's matrices have to fit, too.
        limits = [live.max_allocation, (live.spec.memory_bytes or 0) // 4]
        walker = Walker(live)
        self.bytes = walker.rounded(min([wanted, *(limit for limit in limits if limit)]))
        self._memory = [live.allocate(size) for size in (self.bytes, walker.sums_bytes)]
        buffer, sums = self._memory
        stream = Stream("memory", "flush", "WRITE", self.bytes, 1)
        walk = walker.walk(stream, (buffer, buffer, sums), self.bytes)
        self._write = partial(live.launch, *walk)
        others = _TIMES * host_cache_bytes() or _UNKNOWN
        self._host = np.zeros(others // 4, np.float32) if host and not cpu else None

    def flush(self) -> None:
        """Fill the caches and wait until that is done."""
        with span("flush", self.bytes):
            self._write().wait()
            if self._host is not None:
                self._host += 1

    def close(self) -> None:
        """Give the buffer's memory back."""
        for memory in self._memory:
            self._live.free(memory)
