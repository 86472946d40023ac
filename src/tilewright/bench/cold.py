"""A cold cache: what a product finds when others have worked since its data were touched."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.stencil import Launch, Source
from tilewright.stencil.text import read_text
from tilewright.timeline import span

__all__ = ["ColdCache", "flush_source", "host_cache_bytes"]

# Twice the cache: replacement is no exact LRU, and an H100's L2 is two halves that each keep
# copies of what the other owns.
_TIMES = 2

# Where no size is known: larger than any last cache that is sold today but stacked ones.
_UNKNOWN = 256 << 20

# Words of a block's chunk: long enough to be streamed, and a multiple of any thread count here.
_CHUNK = 1 << 14


def flush_source(dialect: str, threads: int) -> Source:
    """Return the kernel's text after a dialect's and the single precision's prelude."""
    own = files("tilewright.bench").joinpath("flush.cl").read_text(encoding="utf-8")
    preludes = read_text(f"prelude/dialect_{dialect}.h") + read_text("prelude/s.h")
    return Source(preludes + own, {"CHUNK": _CHUNK, "THREADS": threads}, "flush")


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

    A buffer twice as large as the last cache is written: lines that were there are evicted.
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
        block = 4 * _CHUNK
        # A quarter: somebody else's matrices have to fit, too.
        limits = [live.max_allocation, (live.spec.memory_bytes or 0) // 4]
        wanted = min([wanted, *(limit for limit in limits if limit)])
        blocks = max(1, wanted // block)
        self.bytes = blocks * block
        threads = 1 if cpu else 256
        self._launch = Launch((blocks, 1), (threads, 1))
        self._kernel = live.compile(flush_source(live.dialect, threads))
        self._memory = live.allocate(self.bytes)
        others = _TIMES * host_cache_bytes() or _UNKNOWN
        self._host = np.zeros(others // 4, np.float32) if host and not cpu else None

    def flush(self) -> None:
        """Fill the caches and wait until that is done."""
        with span("flush", self.bytes):
            arguments = (self._memory, np.float32(1))
            self._live.launch(self._kernel, self._launch, arguments).wait()
            if self._host is not None:
                self._host += 1

    def close(self) -> None:
        """Give the buffer's memory back."""
        self._live.free(self._memory)
