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
    busy : list of Event
        What reads or writes it at last.
    """

    memory: Any
    busy: list[Event] = field(default_factory=list)


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
        self._matrix, self._transport = matrix, transport
        self._free = slots
        self._kept: OrderedDict[tuple[Piece, Piece], tuple[_Slot, list[Event], int]] = OrderedDict()

    def take(self, rows: Piece, columns: Piece) -> tuple[_Slot, list[Event], Operand]:
        """Return a panel's slot, what to wait for, and the operand."""
        found = self._kept.pop((rows, columns), None)
        if found is None:
            slot = self._free.pop() if self._free else self._kept.popitem(last=False)[1][0]
            lines = self._matrix.lines(rows, columns)
            ld = aligned(lines.shape[1], lines.dtype.itemsize)
            arrived = self._transport.upload(slot.memory, lines, ld, slot.busy)
            slot.busy = []
            found = slot, [] if arrived is None else [arrived], ld
        self._kept[rows, columns] = found
        slot, arrived_at, ld = found
        return slot, arrived_at, Operand(slot.memory, 0, ld)


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
        raise type(error)(f"{error}; {_told(done, tiling)}") from None
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
        self._finished: queue.Queue[tuple[Task, _Slot, list[Event], int] | None] = queue.Queue()
        self._failed: list[BaseException] = []

    def run(self) -> None:
        """Go through all tasks, with a thread that copies finished tiles where copies overlap."""
        size, t = self._request.precision.element_bytes, self._tiling
        m, n, k = longest(t.m), longest(t.n), longest(t.k)

        def slots(count: int, rows: int, columns: int) -> list[_Slot]:
            one = slot_elements(rows, columns, size) * size
            return [_Slot(self._transport.allocate(one)) for _ in range(count)]

        reads = self._request.k > 0 and any(self._request.precision.scalar(self._request.alpha))
        a, b = (
            _Panels(HostMatrix(x), self._transport, slots(count, *sizes)) if reads else None
            for x, count, sizes in (
                (self._request.a, t.panels_a, (m, k)), (self._request.b, t.panels_b, (k, n))
            )
        )  # fmt: skip
        for one in slots(t.tiles_c, m, n):
            self._free.put(one)
        tasks = t.tasks() if reads else (one for one in t.tasks() if one.is_first)
        if not self._transport.overlaps:
            for _ in self._started(tasks, a, b):
                self._finish(self._finished.get())
            return
        thread = threading.Thread(target=self._finish_all, name="tilewright-download", daemon=True)
        thread.start()
        try:
            for _ in self._started(tasks, a, b):
                if self._failed:
                    break
        finally:
            self._finished.put(None)
            thread.join()
        if self._failed:
            raise self._failed[0]

    def _started(
        self, tasks: Iterator[Task], a: _Panels | None, b: _Panels | None
    ) -> Iterator[Task]:
        """Enqueue copies and products, and yield each tile whose last product is enqueued."""
        request, t = self._request, self._tiling
        tile: tuple[_Slot, int] | None = None
        for task in tasks:
            rows, columns, terms = t.m[task.i], t.n[task.j], t.k[task.p]
            if task.is_first:
                tile = self._tile(rows, columns)
                if tile is None:
                    return  # copies of others failed
            assert tile is not None
            slot, ld = tile
            target = Operand(slot.memory, 0, ld)
            x, y = request.trans_a.transposed, request.trans_b.transposed
            used, after = [slot], list(slot.busy)
            operands = [(target, self._c.row_major)] * 3
            if a is not None and b is not None:
                for at, panels, place in (
                    (0, a, (terms, rows) if x else (rows, terms)),
                    (1, b, (columns, terms) if y else (terms, columns)),
                ):
                    panel, arrived, operand = panels.take(*place)
                    used.append(panel)
                    after += arrived
                    operands[at] = operand, panels._matrix.row_major
            part = replace(
                request,
                m=rows[1] - rows[0], n=columns[1] - columns[0],
                k=terms[1] - terms[0] if a is not None else 0,
                beta=request.beta if task.is_first else 1, report=None,
            )  # fmt: skip
            ended = self._transport.multiply(part, tuple(operands), after)
            for one in used:
                one.busy = [] if ended is None else [ended]
            if task.is_last or a is None:
                self._finished.put((task, slot, slot.busy, ld))
                yield task

    def _tile(self, rows: Piece, columns: Piece) -> tuple[_Slot, int] | None:
        """Return room for a tile of C, with what is there where it is read."""
        slot = self._free.get()
        if self._failed:
            return None
        slot.busy = []
        lines = columns if self._c.row_major else rows
        ld = aligned(lines[1] - lines[0], self._request.precision.element_bytes)
        if any(self._request.precision.scalar(self._request.beta)):
            old = self._c.lines(rows, columns)
            arrived = self._transport.upload(slot.memory, old, ld, ())
            slot.busy = [] if arrived is None else [arrived]
        return slot, ld

    def _finish_all(self) -> None:
        """Copy finished tiles until there are no more; what fails is kept for who waits."""
        while (one := self._finished.get()) is not None:
            try:
                if not self._failed:
                    self._finish(one)
            except BaseException as error:
                self._failed.append(error)
            finally:
                self._free.put(one[1])  # nobody waits for ever

    def _finish(self, one: Any) -> None:
        """Copy one tile to the host."""
        task, slot, after, ld = one
        rows, columns = self._tiling.m[task.i], self._tiling.n[task.j]
        if self._c.is_here:
            self._transport.download(slot.memory, self._c.lines(rows, columns), ld, after)
        else:
            shape = rows[1] - rows[0], columns[1] - columns[0]
            lines = np.empty(shape, self._c.array.dtype)
            self._transport.download(slot.memory, lines, ld, after)
            self._c.put(rows, columns, lines)  # row-major
        self._done.append(task)
        if not self._transport.overlaps:
            self._free.put(slot)
