"""Memory that calls need besides their arrays: an arena a stream, or taken for one call.

Where the caller's library has an allocator it gives the memory, so that what it keeps for later is
not lost to it.  The core's table (arena.c) knows where each stream's arena is; this module knows
whose memory that is.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tilewright.backend import OutOfMemoryError
from tilewright.serve.plan import Plan, core

__all__ = [
    "MOST_ARENA",
    "Memory",
    "WorkspaceError",
    "arena_for",
    "borrowed",
    "release",
    "workspace",
]

Memory = Callable[[int, int], tuple[int, Any]]
"""Takes a device's number and bytes; returns an address and what keeps the memory.

The memory is the current stream's of the library: whatever is enqueued there later may have it
once it is no longer kept.
"""

# The least that a stream's arena has: words of four launches' blocks that share sums, and parts
# of a block for each of 132 multiprocessors.
_LEAST_ZERO, _LEAST_SCRATCH = 64 * 2**10, 8 * 2**20

# Kept for the next call on a stream; what needs more takes it from its allocator for the call.
MOST_ARENA = 64 * 2**20

# Whose memory each arena is, by its scratch.
_owners: dict[int, Callable[[], None]] = {}
_lock = threading.Lock()


class WorkspaceError(OutOfMemoryError):
    """A device has too little memory for what a call needs besides; nothing was enqueued."""


@contextlib.contextmanager
def workspace() -> Iterator[None]:
    """Say of memory that is taken within a ``with`` block what it was for."""
    try:
        yield
    except OutOfMemoryError as problem:
        raise WorkspaceError(str(problem), problem.detail) from problem


def arena_for(live: Any, plan: Plan, stream: int, memory: Memory | None = None) -> None:
    """Give a stream an arena that is large enough for a plan; it is zero where it must be.

    Raises
    ------
    WorkspaceError
        If the device has too little memory.
    """
    zero = max(_LEAST_ZERO, _power(plan.zero_bytes))
    scratch = max(_LEAST_SCRATCH, _power(plan.scratch_bytes))
    with _lock, live.current():
        address, give_back = _take(live, zero + scratch, stream, memory)
        freed = ctypes.c_uint64()
        try:
            cleared = live.api.cuMemsetD8Async(address, 0, zero, stream)
            live.check(cleared, "clearing a workspace")
            status = core().tilewright_arena_put(
                ctypes.c_void_p(live.context), ctypes.c_void_p(stream),
                ctypes.c_uint64(address + zero), ctypes.c_uint64(zero), ctypes.c_uint64(scratch),
                ctypes.byref(freed),
            )  # fmt: skip
            if status:
                from tilewright.backend.cuda.driver import error_of

                raise live.failed(error_of(status, "looking at a stream"))
        except BaseException:
            give_back()
            raise
        _owners[address + zero] = give_back
        before = _owners.pop(freed.value, None)
    if before is not None:
        before()


def _power(size: int) -> int:
    """Return the power of two that holds so many bytes: growing by doubling, few times."""
    return 1 << max(0, size - 1).bit_length()


def _take(
    live: Any, size: int, stream: int, memory: Memory | None
) -> tuple[int, Callable[[], None]]:
    """Return memory for work on a stream, and what gives it back once that work has ended."""
    with workspace():
        if memory is not None:
            address, owner = memory(live.ordinal, size)
            held = [owner]
            return address, held.clear
        taken = live.api.cuMemAllocAsync(size, stream)
        address = int(live.check(taken, f"{live.id} cannot allocate {size} bytes"))

    def give_back() -> None:
        if live.lost is None:
            with live.current():
                # The stream may be gone: then its work has ended, and any stream may do it.
                (status,) = live.api.cuMemFreeAsync(address, stream)
                if int(status):
                    live.api.cuMemFree(address)

    return address, give_back


@contextlib.contextmanager
def borrowed(live: Any, size: int, stream: int, memory: Memory | None = None) -> Iterator[int]:
    """Return memory for what is enqueued on a stream within a ``with`` block.

    Raises
    ------
    WorkspaceError
        If the device has too little memory.
    """
    with live.current():
        address, give_back = _take(live, size, stream, memory)
    try:
        yield address
    finally:
        give_back()


def release() -> None:
    """Give back the memory that calls on CUDA devices keep for the next ones on their streams.

    Waits for the devices' work.  Memory that came from PyTorch or CuPy goes back to their
    allocators, which may keep it: ``torch.cuda.empty_cache()``, ``free_all_blocks()``.
    """
    from tilewright.backend.cuda.device import device_at

    with _lock:
        owners = list(_owners.values())
        _owners.clear()
        if not owners:
            return
        core().tilewright_arena_forget()
    from tilewright.backend.cuda import probe

    try:
        for ordinal in range(probe.count()):
            live = device_at(ordinal)
            if "context" in live.__dict__:  # others were never used
                live.finish()
    finally:  # in the order of each one's stream, whatever the others say
        for give_back in owners:
            give_back()
