"""From a cubin to one whose main loop is rescheduled: searched once, kept, checked at every use.

    source ──NVRTC──> cubin ──> machine code ──schedule──> machine code ──differences──> cubin'
                                     |                          ^
                                     └──digest──> disk cache ───┘

The search depends only on the kernel's machine code, the level and the scheduler's version, which
make the cache's key: kernels that differ in nothing but their name, as exported ones do, share one
result.  Code from the cache is checked like new code, once.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from tilewright.backend.base import CompileError
from tilewright.reschedule.levels import SCHEDULE_SECONDS, Level
from tilewright.reschedule.version import SCHEDULER_VERSION
from tilewright.sass import Kernel, RefusedError, decode, patch, read_cubin
from tilewright.timeline import span

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice
    from tilewright.backend.base import Kernel as Loaded
    from tilewright.backend.base import Rewrite
    from tilewright.backend.cache import KernelCache
    from tilewright.backend.cubin import Cubin
    from tilewright.stencil import Source

__all__ = [
    "RefusedScheduleError",
    "compile_kernel",
    "reschedule",
    "rewriting",
    "schedule_key",
    "searched",
]

# Part of every key: raise it when what is stored under a key changes.
_FORMAT = 2

_PROVED = b"the same\n"  # what is kept of a proof
_PROOF = 2  # part of its key: raise it when a proof asks for more, as its model learns


class RefusedScheduleError(CompileError):
    """A kernel could not be rescheduled, or was not proved to be the same; the baseline runs."""


def schedule_key(code: bytes, arch: int, level: Level) -> str:
    """Return the key of rescheduled code: a digest over everything that makes it.

    Parameters
    ----------
    code : bytes
        The kernel's machine code as the compiler left it.
    arch : int
        Architecture number.
    level : Level
        How it is rescheduled.
    """
    of = hashlib.sha256(code).hexdigest()
    parts = [_FORMAT, "schedule", SCHEDULER_VERSION, arch, level.name, of]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def reschedule(cubin: Cubin, entry: str, level: Level, cache: KernelCache | None = None) -> Cubin:
    """Return a cubin with the main loop of its entry rescheduled, proved the same.

    Parameters
    ----------
    cubin : Cubin
        As the compiler left it.
    entry : str
        The kernel's name in the source.
    level : Level
        How its main loop is rescheduled.
    cache : KernelCache, optional
        Where results of the search are kept.

    Raises
    ------
    RefusedScheduleError
        If the scheduler refuses the kernel, with its reason in one line.
    """
    kernel = read_cubin(cubin.code).kernel(cubin.lowered.get(entry, entry))
    key = schedule_key(kernel.code, kernel.arch, level)
    with span("reschedule", {"level": level.name}):
        cached = cache.load(key) if cache is not None else None
        if cached is not None and not _refusal(kernel, cached, cache):
            return _with_code(cubin, kernel, cached)
        if cache is not None:
            cache.drop(key)
        code = _searched(kernel, level, cache)
    if cache is not None:
        cache.save(key, code)
    return _with_code(cubin, kernel, code)


def compile_kernel(live: LiveDevice, source: Source, level: Level | None) -> Loaded:
    """Compile a source for a device, with its main loop rescheduled if a level is given.

    Parameters
    ----------
    live : LiveDevice
        Where it is to run.
    source : Source
        What to compile.
    level : Level, optional
        None for the compiler's own code.

    Raises
    ------
    CompileError
        If the compiler refuses the source, the scheduler the kernel, or the device shows no
        machine code.
    """
    return live.compile(source, rewrite=rewriting(source, level))


def rewriting(source: Source, level: Level | None) -> Rewrite | None:
    """Return what a device's `compile` reschedules a source with; None for no level."""
    if level is None:
        return None
    return lambda cubin, cache: reschedule(cubin, source.entry, level, cache)


def _searched(kernel: Kernel, level: Level, cache: KernelCache | None) -> bytes:
    """Return rescheduled code of a kernel, checked."""
    try:
        code = searched(kernel.code, kernel.arch, level)
    except RefusedError as error:
        raise _refused(level, str(error)) from None
    if reason := _refusal(kernel, code, cache):
        raise _refused(level, f"the rescheduled code is not proved the same: {reason}")
    return code


def searched(code: bytes, arch: int, level: Level) -> bytes:
    """Return rescheduled machine code, not yet checked.

    The search is ended after `SCHEDULE_SECONDS`; what is returned does not depend on it.

    Parameters
    ----------
    code : bytes
        A kernel's machine code.
    arch : int
        Architecture number.
    level : Level
        How it is rescheduled.

    Raises
    ------
    RefusedError
        With the scheduler's reason, or why there is no result.
    """
    request = {"arch": arch, "ahead": level.ahead, "parent": os.getpid()}
    command = [sys.executable, "-m", "tilewright.reschedule.search", json.dumps(request)]
    try:
        done = subprocess.run(  # noqa: S603  # a list of our own making, no shell
            command, input=code, capture_output=True, timeout=SCHEDULE_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise RefusedError(f"the search took longer than {SCHEDULE_SECONDS:g} s") from None
    if done.returncode:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"])[
            -1
        ]
        raise RefusedError(f"the search ended with status {done.returncode}: {last}")
    answer = json.loads(done.stdout)
    if "refused" in answer:
        raise RefusedError(answer["refused"])
    return base64.b64decode(answer["code"])


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


def _refused(level: Level, why: str) -> RefusedScheduleError:
    return RefusedScheduleError(f"schedule {level.name!r} is refused: {why}")


@lru_cache(maxsize=256)
def _reason(before: bytes, after: bytes, arch: int) -> str:
    """Return why code may not take another's place; empty if it is proved the same."""
    # Of rescheduled code alone: whatever compiles imports this module.
    from tilewright.reschedule.equivalence import differences

    if len(before) != len(after):
        return f"the code has {len(after)} bytes, not {len(before)}"
    try:
        wrong = differences(decode(before, arch), decode(after, arch), arch)
    except ValueError as error:  # no machine code at all
        return str(error)
    return wrong[0] if wrong else ""


def _with_code(cubin: Cubin, kernel: Kernel, code: bytes) -> Cubin:
    made = patch(cubin.code, decode(code, kernel.arch), kernel.name)
    return replace(cubin, code=made)
