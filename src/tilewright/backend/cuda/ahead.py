"""Sources compiled and arranged ahead, on all cores, into the disk cache.

In processes: NVRTC works outside Python's lock, but what arranges machine code is Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

from tilewright.backend.base import BackendError
from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.arranging import arranged
from tilewright.backend.cuda.compiler import cached_cubin
from tilewright.stencil import Source

__all__ = ["compiling_ahead"]


@contextmanager
def compiling_ahead(arch: str) -> Iterator[Callable[[Source], Future[bool]]]:
    """Yield what begins to compile a source; its future says whether the compiler took it.

    What was not begun at the end is not compiled.

    Parameters
    ----------
    arch : str
        What is compiled for, such as ``"sm_90a"``.
    """
    directory = KernelCache().directory
    pool = ProcessPoolExecutor(mp_context=get_context("spawn"))  # a forked driver is of no use
    try:
        yield lambda source: pool.submit(_compiles, source, arch, directory)
    finally:
        pool.shutdown(cancel_futures=True)


def _compiles(source: Source, arch: str, directory: Path) -> bool:
    cache = _cache(directory)
    try:
        arranged(cached_cubin(source, arch, cache), cache)
    except BackendError:
        return False
    return True


@lru_cache  # which prunes once a process
def _cache(directory: Path) -> KernelCache:
    return KernelCache(directory)
