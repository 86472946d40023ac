"""A kernel that keeps a stream busy while launches are enqueued behind it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from tilewright.stencil import Launch, Source
from tilewright.stencil.source_files import read_source

__all__ = ["Hold"]

# At an H100's 1.98 GHz 50 us, and 8 for each launch: two events and a launch take Python some 10, a
# product of cuBLAS's some 20, a guarded product's ten launches some 40.
_CYCLES, _CYCLES_OF_A_LAUNCH = 100_000, 16_000


class Hold:
    """Holds streams; compiled with the first use, and kept.

    Parameters
    ----------
    device : CUDADevice
        Whose streams are held.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._kernel: Any = None
        self._prepared: dict[int, Any] = {}

    def enqueue(self, stream: int, launches: int) -> None:
        """Keep a stream busy while so many launches are enqueued."""
        with self._lock:
            if self._kernel is None:
                text = read_source("hold.cuh", "tilewright.backend.cuda")
                self._kernel = self._device.compile(Source(text, {}, "hold"))
            if launches not in self._prepared:
                cycles = np.int64(_CYCLES + launches * _CYCLES_OF_A_LAUNCH)
                once = Launch((1, 1), (1, 1))
                made = self._device.prepare(self._kernel, once, (cycles,))
                self._prepared[launches] = made
            self._prepared[launches].enqueue(stream)
