"""Pages of a mapped file that a result goes to, made before the result comes.

A new file has no pages in memory, and whoever writes to one first waits until the system has found
and cleared it: threads that copy tiles of C there would wait so instead of copying.  Until the
first tile comes they have nothing to do, and the system has the pages made meanwhile.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import count
from typing import Any

import numpy as np

from tilewright.serve.overlap import address_of, memory_of

__all__ = ["made_ahead"]

# MADV_POPULATE_WRITE of mman.h, from Linux 5.14 on: older ones refuse it.
_POPULATE_WRITE = 23

# Made at a time, in about a millisecond: a call that has ended waits for no more.
_BYTES = 2 << 20

# A host of 16 cores made 2 GB/s of pages in a file on tmpfs with one thread, 5 with four, and no
# more with twelve, which also copy.
_THREADS = 4

# Of the host's memory, the part that pages made ahead may take.  Of more the first would have to go
# to the file, zeros as they are, and be read again, to make room for the last.
_PART_OF_MEMORY = 1 / 4


@contextmanager
def made_ahead(c: Any) -> Iterator[None]:
    """Let the pages of a mapped file be made within a ``with`` block, in the order of addresses.

    Parameters
    ----------
    c : array
        What the block writes.  Nothing is done for one that is in no mapped file, or has gaps,
        which may be holes of a file, or where the system refuses.
    """
    make = _call()
    dense = isinstance(c, np.ndarray) and (c.flags.c_contiguous or c.flags.f_contiguous)
    if make is None or not dense or not memory_of(c)[0]:
        yield
        return
    first = address_of(c) // mmap.PAGESIZE * mmap.PAGESIZE
    most = int(_PART_OF_MEMORY * os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE)
    behind = address_of(c) + min(c.nbytes, most)
    begins, ended = count(first, _BYTES), threading.Event()

    def made() -> None:
        for begin in begins:  # of all threads
            if begin >= behind or ended.is_set() or make(begin, min(_BYTES, behind - begin)):
                return

    threads = [
        threading.Thread(target=made, name="tilewright-pages", daemon=True) for _ in range(_THREADS)
    ]
    try:
        with suppress(RuntimeError):  # there may be no more threads
            for thread in threads:
                thread.start()
        yield
    finally:
        ended.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join()


@lru_cache(maxsize=1)
def _call() -> Callable[[int, int], int] | None:
    """Return what makes so many bytes of pages from an address on, and 0; None where nothing is."""
    if sys.platform != "linux":
        return None
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return lambda address, size: int(madvise(address, size, _POPULATE_WRITE))
