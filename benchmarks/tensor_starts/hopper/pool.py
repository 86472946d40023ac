"""Compilers in processes of their own, while another process measures."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures import TimeoutError as LateError
from typing import Any, TypeVar

from tilewright.space import Config

from .cases import variant_of
from .ending import end_with_parent

# Precision, case and candidate.
Job = tuple[str, str, Config]

AnyJob = TypeVar("AnyJob")


def compile_one(letter: str, trans: str, name: str, values: dict[str, Any], arch: str) -> str:
    """Put a candidate's cubin into the disk cache; return why not, or nothing."""
    from tilewright.backend.cache import KernelCache
    from tilewright.backend.cuda.arranging import arranged
    from tilewright.backend.cuda.compiler import cached_cubin
    from tilewright.stencil import stencil

    try:
        config = Config(name, values)
        source = stencil(name).source(config, variant_of(letter, trans), "cuda")
        arranged(cached_cubin(source, arch, KernelCache()), KernelCache())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def compiled(
    arch: str, jobs: list[Job], workers: int, until: float
) -> Iterator[tuple[str, str, Config, str]]:
    """Compile in other processes; yield each candidate when it is ready, until a time."""
    calls = [(letter, trans, c.stencil, dict(c), arch) for letter, trans, c in jobs]
    for job, reason in in_processes(compile_one, jobs, calls, workers, until):
        yield (*job, reason)


def in_processes(
    work: Callable[..., str],
    jobs: Sequence[AnyJob],
    calls: Sequence[tuple[Any, ...]],
    workers: int,
    until: float,
) -> Iterator[tuple[AnyJob, str]]:
    """Call a function for each job in other processes; yield those that end, until a time.

    They end with this process: compilers that go on slow down whatever is measured next.
    """
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), end_with_parent, (os.getpid(),)
    )
    futures: dict[Future[str], AnyJob] = {
        pool.submit(work, *call): job for job, call in zip(jobs, calls, strict=True)
    }
    try:
        for done in as_completed(futures, timeout=max(0.0, until - time.time())):
            yield futures[done], done.result()
            if time.time() > until:
                return
    except LateError:
        return
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
