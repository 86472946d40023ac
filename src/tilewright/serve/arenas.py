"""Memory that calls need besides their arrays: an arena a stream, or taken for one call.

Where the caller's library has an allocator it gives the memory, so that what it keeps for later is
not lost to it; this module knows whose it is.  All other memory is the driver's, and the core's
(arena.c).
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tilewright.backend import BackendError, OutOfMemoryError
from tilewright.serve.plan import Plan, WorkspaceError, core
from tilewright.timeline import span

__all__ = ["Memory", "arena_for", "borrowed", "enqueue", "release", "workspace"]

Memory = Callable[[int, int], tuple[int, Any]]
"""Takes a device's number and bytes; returns an address and what keeps the memory.

The memory is the current stream's of the library: whatever is enqueued there later may have it
once it is no longer kept.  An allocator whose attribute ``passing`` is true gives memory for one
call; what is kept for later ones is the driver's.
"""

# What keeps each arena's memory, by its scratch.
_owners: dict[int, Any] = {}
_lock = threading.Lock()


@contextlib.contextmanager
def workspace() -> Iterator[None]:
    """Say of memory that is taken within a ``with`` block what it was for."""
    try:
        yield
    except OutOfMemoryError as problem:
        raise WorkspaceError(str(problem), problem.detail) from problem


def enqueue(live: Any, plan: Plan, call: Any, stream: int, memory: Memory | None = None) -> None:
    """Start a plan on a stream, with the memory that it needs.

    Raises
    ------
    WorkspaceError
        If the device has too little memory.
    BackendError
        As of `Plan.start`.
    """
    with span("launch"):
        if memory is None or (plan.shares and getattr(memory, "passing", False)):
            try:
                _drop(plan.run(call))
                return
            except WorkspaceError:
                if memory is None:
                    raise
        elif plan.shares or live.is_captured(stream):
            # Between the two another thread may have given the arena back.
            while not plan.start(call):
                arena_for(live, plan, stream, memory)
            return
        with borrowed(live, plan.bytes, memory) as address:
            plan.start(call, address)


def arena_for(live: Any, plan: Plan, stream: int, memory: Memory) -> None:
    """Give a stream an arena that is large enough for a plan; it is zero where it must be.

    Raises
    ------
    WorkspaceError
        If the device has too little memory.
    """
    zero, scratch = ctypes.c_uint64(plan.zero_bytes), ctypes.c_uint64(plan.scratch_bytes)
    core().tilewright_arena_sizes(ctypes.byref(zero), ctypes.byref(scratch))
    freed = ctypes.c_uint64()
    with _lock, live.current():
        with workspace():
            address, owner = memory(live.ordinal, zero.value + scratch.value)
        cleared = live.api.cuMemsetD8Async(address, 0, zero.value, stream)
        live.check(cleared, "clearing a workspace")
        status = core().tilewright_arena_put(
            ctypes.c_void_p(live.context), ctypes.c_void_p(stream),
            ctypes.c_uint64(address + zero.value), zero, scratch, ctypes.byref(freed),
        )  # fmt: skip
        if status:
            from tilewright.backend.cuda.driver import error_of

            raise live.failed(error_of(status, "looking at a stream"))
        _owners[address + zero.value] = owner
    _drop(freed.value)


def _drop(scratch: int) -> None:
    """Let the memory of an arena go that is no longer used, if it is a library's."""
    with _lock:
        owner = _owners.pop(scratch, None)
    del owner  # without the lock: it may run anything


@contextlib.contextmanager
def borrowed(live: Any, size: int, memory: Memory) -> Iterator[int]:
    """Return memory for what is enqueued on the library's stream within a ``with`` block.

    Raises
    ------
    WorkspaceError
        If the device has too little memory.
    """
    with live.current(), workspace():
        address, owner = memory(live.ordinal, size)
    yield address
    del owner


def release() -> None:
    """Give back the memory that calls on CUDA devices keep for the next ones on their streams.

    Waits for the devices' work.  Memory that came from PyTorch or CuPy goes back to their
    allocators, which may keep it: ``torch.cuda.empty_cache()``, ``free_all_blocks()``.  So do
    pinned buffers for matrices in the host's memory.
    """
    streamed = sys.modules.get("tilewright.serve.streamed.buffers")
    if streamed is not None:
        streamed.release_buffers()
    from tilewright.backend.cuda import probe
    from tilewright.backend.cuda.device import device_at

    if not core.cache_info().currsize:  # no plan was ever started
        return
    used = [device_at(ordinal) for ordinal in range(probe.count())]
    with _lock:
        before = dict(_owners)
    problems = []
    for live in used:
        if "context" in live.__dict__:  # others were never used
            try:
                _release(live)
            except BackendError as problem:  # no stream of another device may keep its arena
                problems.append(problem)
    with _lock:
        for scratch in [at for at, owner in before.items() if _owners.get(at) is owner]:
            del _owners[scratch]
    before.clear()  # without the lock: it may run anything; in the order of each one's stream
    if problems:
        raise problems[0]


def _release(live: Any) -> None:
    """Forget a context's arenas, once its work has ended."""
    with live.current():
        status = core().tilewright_arena_release(ctypes.c_void_p(live.context))
    if status:
        from tilewright.backend.cuda.driver import error_of

        raise live.failed(error_of(status, f"waiting for {live.id}"))
