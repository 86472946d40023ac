"""Launches that follow one another, on a CUDA stream or on an OpenCL queue."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.backend import Event, Kernel, LiveDevice
from tilewright.library.scratch import Scratch
from tilewright.stencil import Launch

__all__ = ["Launching", "in_order", "on_queue", "on_stream"]

Launching = tuple[Kernel, Launch, tuple[Any, ...]]
"""A kernel with its grid and its arguments."""

# Arguments belong to an OpenCL kernel until it is enqueued, whatever the queue.
_enqueuing = threading.Lock()


def in_order(
    live: LiveDevice,
    scratch: Scratch,
    launches: Sequence[Launching],
    queue: Any,
    after: tuple[Any, ...],
    name: str,
    timed: bool = False,
) -> Event:
    """Enqueue launches that use scratch memory; the caller holds its lock.

    Parameters
    ----------
    live : LiveDevice
        Where they run.
    scratch : Scratch
        Of the queue.
    launches : sequence
        The first one first.
    queue, after
        As of `LiveDevice.launch`.
    name : str
        What a timeline calls them.
    timed : bool
        Whether their time is asked for, as of `LiveDevice.launch_timed`.

    Returns
    -------
    Event
        Of all of them, or of the last.
    """
    if not hasattr(live, "between_events"):
        return on_queue(live, scratch, launches, queue, after)
    stream = live.stream if queue is None else int(queue)  # type: ignore[attr-defined]
    prepared = [(live.prepare(*one), one[0]) for one in launches]  # type: ignore[attr-defined]
    return on_stream(live, prepared, stream, after, name, len(prepared) if timed else 0)


def on_queue(
    live: LiveDevice,
    scratch: Scratch,
    launches: Iterable[Launching],
    queue: Any,
    after: tuple[Any, ...],
) -> Event:
    """One launch after the other, each told to wait for the one before."""
    previous = scratch.last
    waits = tuple(after) + (() if previous is None else (previous.raw,))  # type: ignore[attr-defined]
    with _enqueuing:
        for kernel, launch, arguments in launches:
            event: Any = live.launch(kernel, launch, arguments, queue, waits)
            waits = (event.raw,)
    scratch.last = event
    return event  # type: ignore[no-any-return]


def on_stream(
    live: Any,
    prepared: Sequence[Any],
    stream: int,
    after: tuple[Any, ...],
    name: str,
    held: int = 0,
) -> Event:
    """All launches, each with what it needs besides, between two events of a CUDA stream.

    `held` as of `CUDADevice.between_events`.
    """

    def enqueue() -> None:
        for launch, _ in prepared:
            with launch.lock:
                launch.enqueue(stream)

    given = stream, after, prepared, name, held
    return live.between_events(enqueue, *given)  # type: ignore[no-any-return]
