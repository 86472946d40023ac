"""A product of matrices in the host's memory, tile by tile.

::

    upload      | A0 | B0 | B1 |    A1   | ...
    multiply              | C00 | C01 | C10 | C11 | ...     each as soon as its panels are there
    download                    | C00 | C01 | C10 | ...

Panels stay on the device as long as there is room; the least recently used one goes.
"""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tilewright.backend import BackendError, Event, Operand
from tilewright.serve.gemm import Request
from tilewright.serve.streamed.host import HostMatrix
from tilewright.serve.streamed.progress import tell
from tilewright.serve.streamed.tiling import (
    Piece,
    Task,
    Tiling,
    aligned,
    longest,
    slot_elements,
)
from tilewright.serve.streamed.transport import Transport

__all__ = ["multiply"]


@dataclass
class _Slot:
    """Device memory for a panel or a tile.

    Parameters
    ----------
    memory : object
        The device's handle.
    arrival : list of Event
        Of what is there, or on its way.
    users : list of Event
        Of the products that read or write it.
    ld : int
        Elements from a line to the next.
    """

    memory: Any
    arrival: list[Event] = field(default_factory=list)
    users: list[Event] = field(default_factory=list)
    ld: int = 1

    def operand(self) -> Operand:
        """Return it as a kernel's operand."""
        return Operand(self.memory, 0, self.ld)


class _Panels:
    """Panels of an operand that are on the device.

    Parameters
    ----------
    matrix : HostMatrix
        Whose.
    transport : Transport
        What copies them.
    slots : list of _Slot
        Room for them.
    """

    def __init__(self, matrix: HostMatrix, transport: Transport, slots: list[_Slot]) -> None:
        self.row_major = matrix.row_major
        self._matrix, self._transport, self._free = matrix, transport, slots
        self._kept: OrderedDict[tuple[Piece, Piece], _Slot] = OrderedDict()

    def take(self, place: tuple[Piece, Piece]) -> _Slot:
        """Return a panel, on its way if it was not there."""
        slot = self._kept.pop(place, None)
        if slot is None:
            slot = self._free.pop() if self._free else self._kept.popitem(last=False)[1]
            lines = self._matrix.lines(*place)
            slot.ld = aligned(lines.shape[1], lines.dtype.itemsize)
            arrived = self._transport.upload(slot.memory, lines, slot.ld, slot.users)
            slot.arrival, slot.users = [] if arrived is None else [arrived], []
        self._kept[place] = slot
        return slot


def multiply(request: Request, tiling: Tiling, transport: Transport) -> None:
    """Compute into ``request.c`` and wait for it.

    Parameters
    ----------
    request : Request
        Of NumPy arrays, or of arrays that give and take parts; C overlaps no other.
    tiling : Tiling
        How it is cut.
    transport : Transport
        What copies and multiplies; closed behind the product.

    Raises
    ------
    BackendError
        If the device fails; it says which tiles of C are whole.  So does a note to any other error,
        KeyboardInterrupt among them.
    """
    done: list[Task] = []
    try:
        _Product(request, tiling, transport, done).run()
    except BackendError as error:
        raise type(error)(f"{error}; {_told(done, tiling)}", error.detail) from None
    except BaseException as error:
        error.add_note(_told(done, tiling))
        raise
    finally:
        transport.close()


def _told(done: Sequence[Task], tiling: Tiling) -> str:
    """Say which tiles of C are whole."""
    count, every = len(done), len(tiling.m) * len(tiling.n)
    places = ", ".join(
        f"[{a}:{b}, {c}:{d}]"
        for (a, b), (c, d) in ((tiling.m[one.i], tiling.n[one.j]) for one in done[:64])
    )
    return f"{count} of {every} tiles of c are computed, the others as they were" + (
        f": {places}{', ...' if count > 64 else ''}" if count else ""
    )


class _Product:
    """One product on its way."""

    def __init__(
        self, request: Request, tiling: Tiling, transport: Transport, done: list[Task]
    ) -> None:
        self._request, self._tiling, self._transport = request, tiling, transport
        self._done = done
        self._c = HostMatrix(request.c)
        self._free: queue.Queue[_Slot] = queue.Queue()
        self._finished: queue.Queue[tuple[Task, _Slot] | None] = queue.Queue()
        self._failed: list[BaseException] = []
        self._panels: tuple[_Panels, ...] = ()
        scalar = request.precision.scalar
        self._reads = request.k > 0 and any(scalar(request.alpha))
        self._adds = any(scalar(request.beta))

    def run(self) -> None:
        """Go through all tasks, with a thread that copies finished tiles where copies overlap."""
        self._panels = self._take_memory()
        if not self._transport.overlaps:
            for one in self._started():
                self._finish(*one)
                self._tell()
            return
        thread = threading.Thread(target=self._finish_all, name="tilewright-download", daemon=True)
        thread.start()
        try:
            for one in self._started():
                self._finished.put(one)
                self._tell()
                if self._failed:
                    break
        finally:
            self._finished.put(None)
            self._wait_for(thread)
        self._tell()
        if self._failed:
            raise self._failed[0]

    def _tell(self) -> None:
        tell(len(self._done), len(self._tiling.m) * len(self._tiling.n))

    def _wait_for(self, thread: threading.Thread) -> None:
        """Wait until a thread has ended, even if that is interrupted: it copies from our memory.

        Then it leaves out the tiles that it has not begun.
        """
        try:
            thread.join()
        except BaseException as error:
            self._failed.append(error)
            self._wait_for(thread)
            raise

    def _take_memory(self) -> tuple[_Panels, ...]:
        """Return room for panels of A and B; tiles of C are in a queue."""
        size, t, request = self._request.precision.element_bytes, self._tiling, self._request
        m, n, k = longest(t.m), longest(t.n), longest(t.k)
        counts = (t.panels_a, t.panels_b) if self._reads else (0, 0)
        sides = (counts[0], m, k), (counts[1], k, n), (t.tiles_c, m, n)
        sizes = [slot_elements(x, y, size) * size for count, x, y in sides for _ in range(count)]
        slots = [_Slot(memory) for memory in self._transport.allocate(sizes)]
        for one in slots[sum(counts) :]:
            self._free.put(one)
        a, b = slots[: counts[0]], slots[counts[0] : sum(counts)]
        return tuple(
            _Panels(HostMatrix(x), self._transport, room)
            for x, room in ((request.a, a), (request.b, b))
            if self._reads
        )

    def _started(self) -> Iterator[tuple[Task, _Slot]]:
        """Enqueue copies and products, and yield each tile behind its last product."""
        tasks = self._tiling.tasks()
        tile: _Slot | None = None
        for task in tasks if self._reads else (one for one in tasks if one.is_first):
            if task.is_first:
                tile = self._tile(task)
                if tile is None:
                    return  # copying another one failed
            assert tile is not None
            places = self._places(task)
            panels = [one.take(at) for one, at in zip(self._panels, places, strict=False)]
            self._multiply(task, tile, panels)
            if task.is_last or not self._reads:
                yield task, tile

    def _places(self, task: Task) -> tuple[tuple[Piece, Piece], tuple[Piece, Piece]]:
        """Return rows and columns of A's and B's panels as they are stored."""
        t, request = self._tiling, self._request
        rows, columns, terms = t.m[task.i], t.n[task.j], t.k[task.p]
        a, b = (rows, terms), (terms, columns)
        return (
            a[::-1] if request.trans_a.transposed else a,
            b[::-1] if request.trans_b.transposed else b,
        )

    def _tile(self, task: Task) -> _Slot | None:
        """Return room for a tile of C, with what is there on its way where it is read."""
        tile = self._free.get()
        if self._failed:
            return None
        (rows, columns), size = self._place(task), self._request.precision.element_bytes
        start, stop = columns if self._c.row_major else rows
        tile.users, tile.arrival, tile.ld = [], [], aligned(stop - start, size)
        if self._adds:
            old = self._c.lines(rows, columns)
            arrived = self._transport.upload(tile.memory, old, tile.ld, ())
            tile.arrival = [] if arrived is None else [arrived]
        return tile

    def _place(self, task: Task) -> tuple[Piece, Piece]:
        return self._tiling.m[task.i], self._tiling.n[task.j]

    def _multiply(self, task: Task, tile: _Slot, panels: list[_Slot]) -> None:
        """Enqueue one product behind its panels."""
        (top, bottom), (left, right) = self._place(task)
        first, last = self._tiling.k[task.p] if self._reads else (0, 0)
        part = replace(
            self._request, m=bottom - top, n=right - left, k=last - first, report=None,
            beta=self._request.beta if task.is_first else 1,
        )  # fmt: skip
        target = tile.operand(), self._c.row_major
        # Operands that are not read are anything.
        operands = [target, target] if not self._reads else [
            (slot.operand(), of.row_major)
            for slot, of in zip(panels, self._panels, strict=True)
        ]  # fmt: skip
        after = [event for slot in (*panels, tile) for event in slot.arrival]
        lane = task.i * len(self._tiling.n) + task.j
        ended = self._transport.multiply(part, (*operands, target), after, lane)
        for slot in (*panels, tile):
            slot.users += [] if ended is None else [ended]

    def _finish_all(self) -> None:
        """Copy finished tiles until there are no more; what fails is kept for who waits."""
        while (one := self._finished.get()) is not None:
            try:
                if not self._failed:
                    self._finish(*one)
            except BaseException as error:
                self._failed.append(error)
                self._free.put(one[1])  # nobody waits for ever

    def _finish(self, task: Task, tile: _Slot) -> None:
        """Copy one tile to the host."""
        rows, columns = self._place(task)
        if self._c.is_here:
            lines = self._c.lines(rows, columns)
            self._transport.download(tile.memory, lines, tile.ld, tile.users)
        else:
            shape = rows[1] - rows[0], columns[1] - columns[0]
            lines = np.empty(shape, self._c.array.dtype)  # row-major, as others are told parts
            self._transport.download(tile.memory, lines, tile.ld, tile.users)
            self._c.put(rows, columns, lines)
        self._done.append(task)
        self._free.put(tile)
