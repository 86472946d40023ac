"""Sources compiled and arranged ahead, on all cores, into the disk cache.

In processes: NVRTC works outside Python's lock, but what arranges machine code is Python.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path

from tilewright.backend.base import BackendError
from tilewright.backend.cache import KernelCache
from tilewright.backend.cuda.arranging import arranged_cubin
from tilewright.parent import end_with
from tilewright.stencil import Source

__all__ = ["compiling_ahead"]


@contextmanager
def compiling_ahead(arch: str) -> Iterator[Callable[[Source], Callable[[], bool]]]:
    """Yield a function that begins to compile a source and returns one that waits.

    That one says whether the source compiles.  What was not begun at the end is not compiled.
    Where a process that compiles was ended, as where memory runs out, what is left counts as right:
    who needs it compiles it.

    Parameters
    ----------
    arch : str
        What is compiled for, such as ``"sm_90a"``.
    """
    directory = KernelCache().directory
    # A forked driver is of no use.
    ours = get_context("spawn")
    pool = ProcessPoolExecutor(mp_context=ours, initializer=end_with, initargs=(os.getpid(),))
    try:
        yield lambda source: _begun(pool, source, arch, directory)
    finally:
        pool.shutdown(cancel_futures=True)


def _begun(
    pool: ProcessPoolExecutor, source: Source, arch: str, directory: Path
) -> Callable[[], bool]:
    try:
        return partial(_waited, pool.submit(_compiles, source, arch, directory))
    except BrokenProcessPool:
        return lambda: True


def _waited(compiled: Future[bool]) -> bool:
    try:
        return compiled.result()
    except BrokenProcessPool:
        return True


def _compiles(source: Source, arch: str, directory: Path) -> bool:
    try:
        arranged_cubin(source, arch, _cache(directory))
    except BackendError:
        return False
    return True


@lru_cache  # which prunes once a process
def _cache(directory: Path) -> KernelCache:
    return KernelCache(directory)
