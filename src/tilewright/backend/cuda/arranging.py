"""From a cubin to one whose main loops stand where a launch brings them near, if they do not."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.backend.cuda.arrange import arrange, moved_only
from tilewright.backend.cuda.compiler import cached_cubin
from tilewright.backend.cuda.instruction_offsets import with_places
from tilewright.sass import decode, patch, read_cubin
from tilewright.sass.machine import FETCHED_BYTES
from tilewright.timeline import span

if TYPE_CHECKING:
    from tilewright.backend.base import Rewrite
    from tilewright.backend.cache import KernelCache
    from tilewright.backend.cubin import Cubin
    from tilewright.stencil import Source

__all__ = ["arranged", "arranged_cubin"]

# Part of every key: raise it when what is stored under a key changes.
_FORMAT = 1


def arranged_cubin(
    source: Source, arch: str, cache: KernelCache | None, rewrite: Rewrite | None = None
) -> Cubin:
    """Return what is loaded of a source: compiled, or from the cache, rewritten and arranged.

    Neither a GPU nor the driver is touched, and nothing depends on them.

    Parameters
    ----------
    source : Source
        CUDA C++.
    arch : str
        What it is compiled for, such as ``"sm_90a"``.
    cache : KernelCache or None
        The disk cache, if it is read and written.
    rewrite : callable, optional
        As `LiveDevice.compile` takes it.

    Raises
    ------
    CompileError
        If the compiler refuses the source, or `rewrite` the cubin.
    """
    cubin = cached_cubin(source, arch, cache)
    return arranged(cubin if rewrite is None else rewrite(cubin, cache), cache)


def arranged(cubin: Cubin, cache: KernelCache | None = None) -> Cubin:
    """Return a cubin with its kernels' main loops among the code that is fetched first.

    A cubin that cannot be arranged, or need not be, is returned as it is: it computes the same.

    Parameters
    ----------
    cubin : Cubin
        As the compiler or the scheduler left it.
    cache : KernelCache, optional
        Where results are kept: arranging and proving take a tenth of a second.
    """
    if not _is_long(cubin):
        return cubin
    parts = [_FORMAT, "arranged", hashlib.sha256(cubin.code).hexdigest()]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    code = cache.load(key) if cache is not None else None
    if code is None or len(code) != len(cubin.code):
        with span("arrange"):
            code = _arranged(cubin.code)
        if cache is not None:
            cache.save(key, code)
    return replace(cubin, code=code)


def _is_long(cubin: Cubin) -> bool:
    """Whether any kernel is longer than what is fetched first."""
    try:
        kernels = read_cubin(cubin.code).kernels
    except ValueError:  # of a kind that is not known here
        return False
    return any(len(one.code) > FETCHED_BYTES.get(one.arch, len(one.code)) for one in kernels)


def _arranged(code: bytes) -> bytes:
    """Return a cubin's bytes with every kernel arranged that can be."""
    for kernel in read_cubin(code).kernels:
        try:
            before = decode(kernel.code, kernel.arch)
            after = arrange(before, kernel.arch)
            if after is not None:
                where = moved_only(before, after, kernel.arch)
                code = with_places(patch(code, after, kernel.name), kernel.name, where)
        except ValueError:  # refused, or not to be written as it should be: it runs as it is
            continue
    return code
