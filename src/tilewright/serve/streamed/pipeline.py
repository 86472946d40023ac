"""A product of matrices in the host's memory, or on devices, tile by tile, by one or more devices.

The first failure that others cannot make up for ends it; what a lost device had is computed by the
others.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from contextvars import copy_context

from tilewright.backend import BackendError
from tilewright.serve.request import Request
from tilewright.serve.streamed.host import HostMatrix
from tilewright.serve.streamed.placed import PlacedMatrix
from tilewright.serve.streamed.progress import said_of, tell
from tilewright.serve.streamed.schedule import Schedule, schedule_of
from tilewright.serve.streamed.tiling import Tiling
from tilewright.serve.streamed.transport import Transport
from tilewright.serve.streamed.worker import Job, Worker

__all__ = ["multiply"]

# How often whoever asks is told how far devices are.
_TELL_SECONDS = 0.1


def multiply(
    request: Request,
    tiling: Tiling,
    transports: Sequence[Transport],
    matrices: Sequence[HostMatrix | PlacedMatrix],
) -> None:
    """Compute into ``request.c`` and wait for it.

    Parameters
    ----------
    request : Request
        The product; C overlaps no other.
    tiling : Tiling
        How it is cut.
    transports : sequence of Transport
        What copies and multiplies, one a device; closed behind the product.
    matrices : sequence of HostMatrix or PlacedMatrix
        A, B and C.

    Raises
    ------
    BackendError
        If all devices fail; it says which tiles of C are whole.  So does a note to any other error,
        KeyboardInterrupt among them.

    Warns
    -----
    RuntimeWarning
        If a device failed, and others computed what it had.
    """
    every, count = len(tiling.places()), len(transports)
    schedule, together = schedule_of(tiling, count)
    a, b, c = matrices
    job = Job(request, tiling, schedule, a, b, c, together)

    def told() -> None:
        tell(len(schedule.done), every)

    try:
        _together(job, transports, told)
    except BaseException as error:
        schedule.stop(error)
    failed = schedule.error
    if isinstance(failed, BackendError):
        whole = f"{failed}; {said_of(schedule.done, tiling)}"
        raise type(failed)(whole, failed.detail) from None
    if failed is not None:
        failed.add_note(said_of(schedule.done, tiling))
        raise failed
    told()
    for number, lost in schedule.lost:
        warnings.warn(
            f"{transports[number].live.id} failed, and others computed what it had: {lost}",
            RuntimeWarning, stacklevel=2,
        )  # fmt: skip


def _together(job: Job, transports: Sequence[Transport], told: Callable[[], None]) -> None:
    """Let threads enqueue what devices do, where no Ctrl-C leaves a lock taken.

    One thread for all devices where it waits for no copy and no room: several would wait for one
    another in Python, the last one longest before its first product.
    """
    workers = [Worker(job, number, one) for number, one in enumerate(transports)]
    matrices = job.a, job.b, job.c
    waits = job.tiling.tiles or not all(isinstance(x, PlacedMatrix) for x in matrices)
    threads = [
        threading.Thread(
            target=copy_context().run, args=(_in_turn, job.schedule, some),
            name=f"tilewright-device-{number}", daemon=True,
        )
        for number, some in enumerate([[one] for one in workers] if waits else [workers])
    ]  # fmt: skip
    try:
        for thread in threads:
            thread.start()
    except BaseException as error:
        job.schedule.stop(error)
    for thread in threads:
        _wait_for(job.schedule, thread, told)


def _in_turn(schedule: Schedule, workers: Sequence[Worker]) -> None:
    """Let each device do a step after the other, until none has any left."""
    going = [(worker, worker.steps()) for worker in workers]
    while going:
        changes, idle = schedule.changes, True
        for one in tuple(going):
            worker, steps = one
            did = worker.step(steps)
            if did is None:
                going.remove(one)
            idle = idle and did is False
        if idle:
            schedule.wait(changes)


def _wait_for(schedule: Schedule, thread: threading.Thread, told: Callable[[], None]) -> None:
    """Wait until a thread has ended; interrupted, until it has left what it has."""
    try:
        while thread.is_alive():
            thread.join(_TELL_SECONDS)
            told()
    except BaseException as error:
        schedule.stop(error)
        _wait_for(schedule, thread, lambda: None)  # who is told may be what failed
