"""Kernels as the compiler or the scheduler left them: a device's own `compile` may move loops."""

from __future__ import annotations

from typing import Any


def unmoved(live: Any, source: Any) -> Any:
    """Return a kernel on a device whose text stands where it was put first (docs/text.md)."""
    from tilewright.backend import Kernel
    from tilewright.backend.cache import KernelCache
    from tilewright.backend.cuda.compiler import cached_cubin
    from tilewright.backend.cuda.device import LoadedKernel

    cubin = cached_cubin(source, live.arch, KernelCache())
    wants = source.dynamic_shared_bytes, source.part_bytes, source.second
    handle = LoadedKernel(live, cubin, source.entry, *wants)
    return Kernel(handle, source.entry, cubin.seconds, cubin.code)
