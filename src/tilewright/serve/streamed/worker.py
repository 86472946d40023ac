"""One device's part of a product of matrices elsewhere: panels there, tiles of C back.

::

    upload      | A0 | B0 | B1 |    A1   | ...
    multiply              | C00 | C01 | C10 | C11 | ...     each as soon as its panels are there
    download                    | C00 | C01 | C10 | ...
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import BackendError
from tilewright.serve.request import Request
from tilewright.serve.streamed.host import HostMatrix
from tilewright.serve.streamed.panels import Panels, Slot
from tilewright.serve.streamed.placed import PlacedMatrix
from tilewright.serve.streamed.schedule import Schedule
from tilewright.serve.streamed.tiling import (
    Piece,
    Place,
    Task,
    Tiling,
    tile_line,
)
from tilewright.serve.streamed.transport import Transport

__all__ = ["Job", "Worker"]


@dataclass
class Job:
    """What all devices of a call work on.

    Parameters
    ----------
    request : Request
        The product.
    tiling : Tiling
        How it is cut.
    schedule : Schedule
        Who computes what.
    a, b, c : HostMatrix or PlacedMatrix
        Its matrices.
    ahead : int
        Tiles that a device has taken and not finished at most; 0 for any number.
    """

    request: Request
    tiling: Tiling
    schedule: Schedule
    a: HostMatrix | PlacedMatrix
    b: HostMatrix | PlacedMatrix
    c: HostMatrix | PlacedMatrix
    ahead: int = 0

    @property
    def reads(self) -> bool:
        """Whether A and B count."""
        return self.request.k > 0 and any(self.request.precision.scalar(self.request.alpha))

    @property
    def adds(self) -> bool:
        """Whether C counts."""
        return any(self.request.precision.scalar(self.request.beta))


class Worker:
    """A device at work.

    Parameters
    ----------
    job : Job
        On what.
    number : int
        Which of the devices it is.
    transport : Transport
        What copies and multiplies; closed at the end.
    tell : callable
        Called between two tiles.
    """

    def __init__(
        self, job: Job, number: int, transport: Transport, tell: Callable[[], None]
    ) -> None:
        self._job, self._number, self._transport, self._tell = job, number, transport, tell
        t, c = job.tiling, job.c
        self._in_place = (
            isinstance(c, PlacedMatrix) and c.is_on(transport.live) and c.is_wider_than(t.m, t.n)
        )
        self._free: queue.Queue[Slot | None] = queue.Queue()
        self._slots: dict[Place, Slot] = {}
        self._finished: queue.Queue[tuple[Place, Slot] | None] = queue.Queue()
        self._panels: tuple[Panels, ...] = ()
        self._begun = 0
        self._ahead = threading.Semaphore(job.ahead) if job.ahead else None
        self._written: Place | None = None  # the tile that is copied back
        self._failed: BaseException | None = None

    def run(self) -> None:
        """Compute tiles until there are no more; what fails is told to the schedule."""
        try:
            self._take_memory()
            if self._transport.overlaps:
                self._overlapped()
            else:
                for one in self._started():
                    self._finish(*one)
                    self._tell()
        except BaseException as error:
            self._fail(error)
        try:
            self._transport.close()
        except BaseException as error:
            self._fail(error)
        if self._failed is not None:  # others begin anew with what is no longer touched here
            self._job.schedule.lose(self._number, self._failed)

    def _overlapped(self) -> None:
        """Let a thread copy finished tiles."""
        thread = threading.Thread(target=self._finish_all, name="tilewright-download", daemon=True)
        thread.start()
        try:
            for one in self._started():
                self._finished.put(one)
                self._tell()
        finally:  # tiles that are computed are copied, whatever went wrong with another
            self._finished.put(None)
            self._wait_for(thread)

    def _fail(self, error: BaseException) -> None:
        """Compute no more; nor do others, unless it is the device's fault and C is as it was."""
        self._failed = self._failed or error
        spoiled = self._job.adds and (self._in_place or self._written is not None)
        if isinstance(error, BackendError) and not spoiled:
            self._job.schedule.retire(self._number)
        else:
            self._job.schedule.stop(error)
        self._free.put(None)  # nobody waits for ever
        if self._ahead is not None:
            self._ahead.release()

    def _wait_for(self, thread: threading.Thread) -> None:
        """Wait until a thread has ended, even if that is interrupted: it copies from our memory.

        Then it leaves out the tiles that it has not begun.
        """
        try:
            thread.join()
        except BaseException as error:
            self._job.schedule.stop(error)
            self._wait_for(thread)
            raise

    def _take_memory(self) -> None:
        """Take room for panels of A and B, and for tiles of C."""
        job, t = self._job, self._job.tiling
        size = job.request.precision.element_bytes
        read = ((job.a, t.m), (job.b, t.n)) if job.reads else ()
        of_panels = [
            [] if of.is_on(self._transport.live) else t.panel_bytes(side, size) for of, side in read
        ]
        of_tiles = [] if self._in_place else t.tile_bytes(size)
        memory = self._transport.allocate([*(x for one in of_panels for x in one), *of_tiles])
        slots = iter([Slot(one) for one in memory])
        self._panels = tuple(
            Panels(
                matrix, self._transport, [next(slots) for _ in sizes],
                list(product(range(len(side)), range(len(t.k)))) if sizes and not t.panels else (),
            )
            for (matrix, side), sizes in zip(read, of_panels, strict=True)
        )  # fmt: skip
        if t.tiles:
            for slot in slots:
                self._free.put(slot)
        elif of_tiles:
            self._slots = dict(zip(product(range(len(t.m)), range(len(t.n))), slots, strict=True))

    # -- products --------------------------------------------------------------------------

    def _started(self) -> Iterator[tuple[Place, Slot]]:
        """Yield each tile once its last product is enqueued."""
        schedule = self._job.schedule
        while (place := self._next()) is not None:
            tile = self._tile(place)
            whole = Task(*place, 0, True, True)
            for task in self._job.tiling.tasks(place) if self._job.reads else (whole,):
                if tile is None or not schedule.works(self._number):
                    return
                self._multiply(task, tile, self._arriving(task))
            self._begun += 1
            assert tile is not None
            yield place, tile

    def _next(self) -> Place | None:
        if self._ahead is not None:
            self._ahead.acquire()
        return self._job.schedule.take(self._number)

    def _arriving(self, task: Task) -> list[Slot]:
        """Return the panels of a product, on their way."""
        job, t = self._job, self._job.tiling
        if not job.reads:
            return []
        rows, columns, terms = t.m[task.i], t.n[task.j], t.k[task.p]
        a, b = (rows, terms), (terms, columns)
        places = (
            a[::-1] if job.request.trans_a.transposed else a,
            b[::-1] if job.request.trans_b.transposed else b,
        )
        numbers = (task.i, task.p), (task.j, task.p)
        return [
            panels.take(number, place)
            for panels, number, place in zip(self._panels, numbers, places, strict=True)
        ]

    def _tile(self, place: Place) -> Slot | None:
        """Return room for a tile of C, with what is there on its way where it is read."""
        c, (rows, columns) = self._job.c, self._pieces(place)
        if self._in_place:
            operand = c.operand(rows, columns)
            return Slot(operand.memory, ld=operand.ld)
        tile = self._slots[place] if self._slots else self._free.get()
        if tile is None or not self._job.schedule.works(self._number):
            return None
        start, stop = columns if c.row_major else rows
        tile.users, tile.arrival = [], []
        tile.ld = tile_line(stop - start, self._job.request.precision.element_bytes)
        if self._job.adds:
            arrived = self._transport.upload(tile.memory, c.lines(rows, columns), tile.ld, ())
            tile.arrival = [] if arrived is None else [arrived]
        return tile

    def _pieces(self, place: Place) -> tuple[Piece, Piece]:
        return self._job.tiling.m[place[0]], self._job.tiling.n[place[1]]

    def _multiply(self, task: Task, tile: Slot, panels: list[Slot]) -> None:
        """Enqueue one product behind its panels."""
        job = self._job
        (top, bottom), (left, right) = self._pieces((task.i, task.j))
        first, last = job.tiling.k[task.p] if job.reads else (0, 0)
        part = replace(
            job.request, m=bottom - top, n=right - left, k=last - first, report=None,
            beta=job.request.beta if task.is_first else 1,
        )  # fmt: skip
        target = tile.operand(), job.c.row_major
        # Operands that are not read are anything.
        operands = [target, target] if not panels else [
            (slot.operand(), of.row_major)
            for slot, of in zip(panels, self._panels, strict=True)
        ]  # fmt: skip
        after = [event for slot in (*panels, tile) for event in slot.arrival]
        ended = self._transport.multiply(part, (*operands, target), after, self._begun)
        if ended is None:
            return
        tile.users = [ended]  # the tile's products follow one another
        if job.tiling.panels:
            for slot in panels:
                slot.users.append(ended)

    # -- finished tiles --------------------------------------------------------------------

    def _finish_all(self) -> None:
        """Copy finished tiles until there are no more."""
        while (one := self._finished.get()) is not None:
            try:
                if self._job.schedule.works(self._number):
                    self._finish(*one)
                else:  # nobody wants it; who waits for its place goes on, and ends
                    self._let_go(one[1])
            except BaseException as error:
                self._fail(error)

    def _finish(self, place: Place, tile: Slot) -> None:
        """Copy one tile to where it belongs."""
        rows, columns = self._pieces(place)
        c, self._written = self._job.c, place
        if self._in_place:
            for event in tile.users:
                event.wait()
        elif isinstance(c, HostMatrix) and not c.is_here:
            shape = rows[1] - rows[0], columns[1] - columns[0]
            part: NDArray[Any] = np.empty(shape, c.array.dtype)  # row-major, as others take parts
            self._transport.download(tile.memory, part, tile.ld, tile.users)
            c.put(rows, columns, part)
        else:
            lines = c.lines(rows, columns)
            self._transport.download(tile.memory, lines, tile.ld, tile.users)
        self._written = None
        self._job.schedule.finish(self._number, place)
        self._let_go(tile)

    def _let_go(self, tile: Slot) -> None:
        """Let a tile's place and turn be another one's."""
        if not self._in_place:
            self._free.put(tile)
        if self._ahead is not None:
            self._ahead.release()
