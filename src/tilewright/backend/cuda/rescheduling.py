"""From a cubin to one whose main loop is rescheduled: searched once, kept, checked at every use.

    source ──NVRTC──> cubin ──> machine code ──schedule──> machine code ──differences──> cubin'
                                     |                          ^
                                     └──digest──> disk cache ───┘

What the search makes depends on the kernel's machine code, the level and the scheduler's version
alone, so that is the key it is kept under: kernels that differ in their name only, as exported ones
do, share it.  Code from a cache is data like any other: it passes the same check as new code, once.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from tilewright.backend.base import CompileError
from tilewright.backend.cuda.searching import searched
from tilewright.sass import Kernel, RefusedError, decode, differences, patch, read_cubin
from tilewright.sass.scheduler_version import SCHEDULER_VERSION
from tilewright.stencil import Schedule, Source
from tilewright.stencil.schedule import SCHEDULE_SECONDS
from tilewright.timeline import span

if TYPE_CHECKING:
    from tilewright.backend.cache import KernelCache
    from tilewright.backend.cuda.cubin import Cubin

__all__ = ["RefusedScheduleError", "reschedule", "schedule_key"]

# Part of every key: raise it when what is stored under a key changes.
_FORMAT = 1

_PROVED = b"the same\n"  # what is kept of a proof
_PROOF = 2  # part of its key: raise it when a proof asks for more, as its model learns


class RefusedScheduleError(CompileError):
    """A kernel could not be rescheduled, or was not proved to be the same; the twin runs."""


def schedule_key(code: bytes, arch: int, wanted: Schedule) -> str:
    """Return the key of rescheduled code: a digest over everything that makes it.

    Parameters
    ----------
    code : bytes
        The kernel's machine code as the compiler left it.
    arch : int
        Architecture number.
    wanted : Schedule
        The level; its name is no part of the key.
    """
    of = hashlib.sha256(code).hexdigest()
    parts = [_FORMAT, "schedule", SCHEDULER_VERSION, arch, list(wanted.steps), wanted.seed, of]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def reschedule(
    cubin: Cubin,
    source: Source,
    cache: KernelCache | None = None,
    seconds: float = SCHEDULE_SECONDS,
) -> Cubin:
    """Return a cubin with the main loop of its entry rescheduled, proved the same.

    Parameters
    ----------
    cubin : Cubin
        As the compiler left it.
    source : Source
        What it was compiled from, with its schedule.
    cache : KernelCache, optional
        Where results of the search are kept.
    seconds : float
        After which the search gives up.

    Raises
    ------
    RefusedScheduleError
        If the scheduler refuses the kernel, with its reason in one line.
    """
    wanted = source.schedule
    assert wanted is not None
    kernel = read_cubin(cubin.code).kernel(cubin.lowered.get(source.entry, source.entry))
    key = schedule_key(kernel.code, kernel.arch, wanted)
    with span("reschedule", {"level": wanted.name}):
        cached = cache.load(key) if cache is not None else None
        if cached is not None and not _refusal(kernel, cached, cache):
            return _with_code(cubin, kernel, cached)
        if cache is not None:
            cache.drop(key)
        code = _searched(kernel, wanted, cache, seconds)
    if cache is not None:
        cache.save(key, code)
    return _with_code(cubin, kernel, code)


def _searched(kernel: Kernel, wanted: Schedule, cache: KernelCache | None, seconds: float) -> bytes:
    """Return rescheduled code of a kernel, checked."""
    try:
        code = searched(kernel.code, kernel.arch, wanted, seconds)
    except RefusedError as error:
        raise _refused(wanted, str(error)) from None
    if reason := _refusal(kernel, code, cache):
        raise _refused(wanted, reason)
    return code


def _refusal(kernel: Kernel, code: bytes, cache: KernelCache | None) -> str:
    """Return why code may not take a kernel's place; empty if it is proved the same.

    A proof takes seconds.  That there was one is kept beside the binaries, which are the user's
    alone, under both codes' digest: other code has another.
    """
    digests = [hashlib.sha256(one).hexdigest() for one in (kernel.code, code)]
    parts = [_PROOF, "proof", SCHEDULER_VERSION, kernel.arch, *digests]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    if cache is not None and cache.load(key) == _PROVED:
        return ""
    reason = _reason(kernel.code, code, kernel.arch)
    if cache is not None and not reason:
        cache.save(key, _PROVED)
    return reason


def _refused(wanted: Schedule, why: str) -> RefusedScheduleError:
    return RefusedScheduleError(f"schedule {wanted.name!r} is refused: {why}")


@lru_cache(maxsize=256)
def _reason(before: bytes, after: bytes, arch: int) -> str:
    """Return why code may not take another's place; empty if it is proved the same."""
    if len(before) != len(after):
        return f"the code has {len(after)} bytes, not {len(before)}"
    try:
        wrong = differences(decode(before, arch), decode(after, arch), arch)
    except ValueError as error:  # no machine code at all
        return str(error)
    return wrong[0] if wrong else ""


def _with_code(cubin: Cubin, kernel: Kernel, code: bytes) -> Cubin:
    """Return a cubin with a kernel's code replaced."""
    made = patch(cubin.code, decode(code, kernel.arch), kernel.name)
    return replace(cubin, code=made)
