"""Compilers in processes of their own, while another process measures."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures import TimeoutError as LateError
from typing import Any

from tilewright.space import Config

from .cases import variant_of

# Precision, case and candidate.
Job = tuple[str, str, Config]


def compile_one(letter: str, trans: str, name: str, values: dict[str, Any], arch: str) -> str:
    """Put a candidate's cubin into the disk cache; return why not, or nothing."""
    from tilewright.backend.cache import KernelCache
    from tilewright.backend.cuda.compiler import cached_cubin
    from tilewright.stencil import stencil

    try:
        config = Config(name, values)
        source = stencil(name).source(config, variant_of(letter, trans), "cuda")
        cached_cubin(source, arch, KernelCache())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def compiled(
    arch: str, jobs: list[Job], workers: int, until: float
) -> Iterator[tuple[str, str, Config, str]]:
    """Compile in other processes; yield each candidate when it is ready, until a time."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context)
    futures: dict[Future[str], Job] = {
        pool.submit(compile_one, letter, trans, config.stencil, dict(config), arch): (
            letter, trans, config,
        )
        for letter, trans, config in jobs
    }  # fmt: skip
    try:
        for done in as_completed(futures, timeout=max(0.0, until - time.time())):
            yield (*futures[done], done.result())
            if time.time() > until:
                return
    except LateError:
        return
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
