"""One device's part of a product of matrices elsewhere: panels there, tiles of C back.

::

    upload      | slab 0 | slab 1  | rest of B | rest of A ...
    multiply             | slab 0   | slab 1   | C0 | C1 | ...     as soon as its panels are there
    download                                        | C0 | C1 | ...
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import BackendError, Event
from tilewright.problem import Trans
from tilewright.serve.decision import DECISION_WORDS
from tilewright.serve.request import Request
from tilewright.serve.streamed.host import HostMatrix
from tilewright.serve.streamed.panels import Panels, Slot
from tilewright.serve.streamed.placed import PlacedMatrix
from tilewright.serve.streamed.schedule import Schedule
from tilewright.serve.streamed.tiling import Piece, Place, Task, Tiling, aligned, span, tile_line
from tilewright.serve.streamed.transport import Transport

if TYPE_CHECKING:
    from tilewright.serve.streamed.parts import SplitOperand

__all__ = ["Job", "Worker"]


class Begun(NamedTuple):
    """A tile on its way to where it belongs.

    Parameters
    ----------
    place : Place
        Which.
    tile : Slot
        Where it comes from.
    events : sequence of Event
        Of its end.
    part : ndarray, optional
        Where it comes to, for an array that takes parts.
    """

    place: Place
    tile: Slot
    events: Sequence[Event]
    part: NDArray[Any] | None


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
    together : int
        Tiles that a device begins together at most, where the tiling has tiles that come early.
    """

    request: Request
    tiling: Tiling
    schedule: Schedule
    a: HostMatrix | PlacedMatrix
    b: HostMatrix | PlacedMatrix
    c: HostMatrix | PlacedMatrix
    together: int

    @property
    def reads(self) -> bool:
        """Whether A and B are read."""
        return self.request.k > 0 and any(self.request.precision.scalar(self.request.alpha))

    @property
    def adds(self) -> bool:
        """Whether C is read."""
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
    """

    def __init__(self, job: Job, number: int, transport: Transport) -> None:
        self._job, self._number, self._transport = job, number, transport
        t, c = job.tiling, job.c
        # A tile that may be computed anew (see `_prove`) needs C as it was.
        self._in_place = (
            isinstance(c, PlacedMatrix)
            and c.is_on(transport.live)
            and (t.has_wide_operands or c.is_wider_than(t.m, t.n))
            and not (t.split and job.adds)
        )
        self._whole: Any = None  # room for all of C
        self._free: queue.Queue[Slot | None] = queue.Queue()
        self._finished: queue.Queue[tuple[Place, Slot] | None] = queue.Queue()
        self._panels: tuple[Panels, ...] = ()
        self._begun = 0
        self._written: set[Place] = set()  # tiles that are copied back
        self._failed: BaseException | None = None
        self._requests: dict[tuple[int, int, int, bool], Request] = {}

    def steps(self) -> Iterator[bool]:
        """Compute tiles until there are no more; what fails is told to the schedule.

        Each step enqueues a product and what it needs, and yields whether it did; where it did not,
        other tiles have to be finished first.  `step` takes each.
        """
        steps = self._overlapped() if self._transport.overlaps else self._one_by_one()
        try:
            self._take_memory()
            yield from steps
        except BaseException as error:
            self._fail(error)
        try:
            self._transport.close()
        except BaseException as error:
            self._fail(error)
        if self._failed is not None:  # nothing here touches its tiles now: others begin them anew
            self._job.schedule.lose(self._number, self._failed)

    def step(self, steps: Iterator[bool]) -> bool | None:
        """Take one of `steps` on the device; return None where there are no more."""
        try:
            with self.current():
                return next(steps, None)
        except BaseException as error:  # it cannot be made current: there are no more
            self._fail(error)
            return next(steps, None)

    def current(self) -> AbstractContextManager[None]:
        """Return what a thread does all it does within: a CUDA device is made current once.

        Arrays that give and take parts may run anything, and what uses another device in the
        thread leaves that one current.
        """
        job = self._job
        if not all(getattr(x, "is_here", True) for x in (job.a, job.b, job.c)):
            return nullcontext()
        return getattr(self._transport.live, "staying_current", nullcontext)()

    def _one_by_one(self) -> Iterator[bool]:
        """Copy a tile back before the next one is computed."""
        for one in self._products():
            if one is not None and one[0].is_last:
                self._finish(one[0].place, one[1])
            yield one is not None

    def _overlapped(self) -> Iterator[bool]:
        """Let a thread copy finished tiles."""
        thread = threading.Thread(target=self._finish_all, name="tilewright-download", daemon=True)
        try:
            for one in self._products():
                if one is not None and one[0].is_last:
                    if thread.ident is None:
                        thread.start()
                    self._finished.put((one[0].place, one[1]))
                yield one is not None
        finally:  # tiles that are computed are copied, whatever went wrong with another
            self._finished.put(None)
            if thread.ident is not None:
                self._wait_for(thread)

    def _fail(self, error: BaseException) -> None:
        """Compute no more.  Others go on only where the device failed and C is as it was."""
        self._failed = self._failed or error
        spoiled = self._job.adds and (self._in_place or bool(self._written))
        if isinstance(error, BackendError) and not spoiled:
            self._job.schedule.retire(self._number)
        else:
            self._job.schedule.stop(error)
        self._free.put(None)  # so that nobody waits for ever

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
        x, y = job.request.trans_a.transposed, job.request.trans_b.transposed
        read = ((job.a, t.m, x), (job.b, t.n, not y)) if job.reads else ()
        of_panels = [
            [] if of.is_on(self._transport.live) else t.panel_bytes(side, size)
            for of, side, _ in read
        ]
        of_tiles = [] if self._in_place else t.tile_bytes(size)
        of_parts = [t.parts_bytes(side, size) for _, side, _ in read if t.split]
        memory = self._transport.allocate(
            [*of_parts, *(x for one in of_panels for x in one), *of_tiles]
        )
        rest = iter(memory)
        splits = iter([
            self._split(side, rows_are_k != of.row_major, next(rest))
            for of, side, rows_are_k in read if t.split
        ])  # fmt: skip
        self._panels = tuple(
            Panels(
                of, self._transport, [next(rest) for _ in sizes], t, side, rows_are_k,
                next(splits, None),
            )
            for (of, side, rows_are_k), sizes in zip(read, of_panels, strict=True)
        )  # fmt: skip
        if t.tiles:
            for one in rest:
                self._free.put(Slot(one))
        elif of_tiles:
            self._whole = next(rest)

    def _split(self, side: Sequence[Piece], k_fast: bool, memory: Any) -> SplitOperand:
        """Return an operand in parts."""
        from tilewright.serve.streamed.parts import SplitOperand

        ks = self._job.tiling.k
        told = self._transport.words((len(side), len(ks), DECISION_WORDS))
        return SplitOperand(side[-1][1], ks, len(side), k_fast, memory, told)

    # -- products --------------------------------------------------------------------------

    def _products(self) -> Iterator[tuple[Task, Slot] | None]:
        """Yield each product that is enqueued, and its tile; None where there is none now."""
        schedule, tiling, reads = self._job.schedule, self._job.tiling, self._job.reads
        while not schedule.is_over(self._number):
            tiles: dict[Place, Slot] = {}
            places = self._next()
            if not places:
                yield None
            whole = (Task(place, (0, 1), True, True) for place in places)
            for task in tiling.tasks(places) if reads else whole:
                tile = tiles.get(task.place) or self._tile(task.place)
                if tile is None or not schedule.works(self._number):
                    return
                tiles[task.place] = tile
                self._multiply(task, tile, self._arriving(task))
                yield task, tile

    def _next(self) -> list[Place]:
        """Return tiles to begin together: first as many as may be, for slabs of k."""
        schedule, number = self._job.schedule, self._number
        place = schedule.offer(number)
        places = [] if place is None else [place]
        if self._job.tiling.early and not self._begun and places:
            while len(places) < self._job.together and (more := schedule.offer(number, own=True)):
                places.append(more)
        return places

    def _arriving(self, task: Task) -> list[Slot]:
        """Return the panels of a product, on their way."""
        return [
            panels.take(number, task.steps)
            for panels, number in zip(self._panels, task.place, strict=False)
        ]

    def _tile(self, place: Place) -> Slot | None:
        """Return room for a tile of C, with what is there on its way where it is read."""
        t, c, size = self._job.tiling, self._job.c, self._job.request.precision.element_bytes
        rows, columns = self._pieces(place)
        if self._in_place:
            operand = c.operand(rows, columns)
            self._begun += 1
            return Slot(operand.memory, ld=operand.ld, lane=self._begun)
        line, within = (rows, columns) if c.row_major else (columns, rows)
        line_of = aligned if t.has_wide_operands else tile_line
        if t.tiles:
            tile = self._free.get()
            if tile is None or not self._job.schedule.works(self._number):
                return None
            tile.users, tile.arrival = [], []
            tile.ld = line_of(within[1] - within[0], size)
        else:
            ld = line_of(t.n[-1][1] if c.row_major else t.m[-1][1], size)
            offset = (line[0] * ld + within[0]) * size
            tile = Slot(self._transport.part(self._whole, offset), ld=ld)
        tile.lane = self._begun
        self._begun += 1
        if self._job.adds:
            arrived = self._transport.upload(tile.memory, c.lines(rows, columns), tile.ld, ())
            tile.arrival = [] if arrived is None else [arrived]
        return tile

    def _pieces(self, place: Place) -> tuple[Piece, Piece]:
        return self._job.tiling.m[place[0]], self._job.tiling.n[place[1]]

    def _multiply(
        self, task: Task, tile: Slot, panels: list[Slot], *, of_parts: bool = True
    ) -> None:
        """Enqueue one product behind its panels, of their parts where they have some."""
        job = self._job
        (top, bottom), (left, right) = self._pieces(task.place)
        first, last = span(job.tiling.k, task.steps) if job.reads else (0, 0)
        part = self._request(bottom - top, right - left, last - first, task.is_first)
        target = tile.operand(), job.c.row_major
        if panels:
            operands = [
                (slot.operand(), of.row_major)
                for slot, of in zip(panels, self._panels, strict=True)
            ]
        else:  # A and B are not read: C stands for them, with a leading dimension that fits
            operands = [target, target]
            part = replace(part, trans_a=Trans.N, trans_b=Trans.N)
        after = [event for slot in (*panels, tile) for event in slot.arrival]
        parts = [slot.part for slot in panels if slot.part is not None and of_parts]
        ended = self._transport.multiply(part, (*operands, target), after, tile.lane, parts)
        if ended is None:
            return
        tile.users = [ended]  # the tile's products follow one another on its lane
        if job.tiling.panels:
            for slot in panels:
                slot.users.append(ended)

    def _request(self, m: int, n: int, k: int, is_first: bool) -> Request:
        """Return the request of a product of some sizes: the same for many tiles."""
        of, key = self._job.request, (m, n, k, is_first)
        if key not in self._requests:
            beta = of.beta if is_first else 1
            self._requests[key] = replace(of, m=m, n=n, k=k, report=None, beta=beta)
        return self._requests[key]

    # -- finished tiles --------------------------------------------------------------------

    def _finish_all(self) -> None:
        """Copy finished tiles until there are no more; each begins while another is copied."""
        try:
            with self.current():
                self._finish_each()
        except BaseException as error:  # or whoever waits for tiles would wait for ever
            self._fail(error)

    def _finish_each(self) -> None:
        begun: Begun | None = None
        while True:
            if begun is not None and self._finished.empty():
                self._end(begun)
                begun = None
            one = self._finished.get()
            after = self._begin(*one) if one is not None else None
            if begun is not None:
                self._end(begun)
            if one is None:
                return
            begun = after

    def _finish(self, place: Place, tile: Slot) -> None:
        """Copy one tile to where it belongs."""
        begun = self._begin(place, tile)
        if begun is not None:
            self._end(begun)

    def _begin(self, place: Place, tile: Slot) -> Begun | None:
        """Begin to copy a tile; return None where the call has failed, or this does."""
        if not self._job.schedule.works(self._number):
            self._let_go(tile)  # a thread that waits for its room goes on, and ends
            return None
        rows, columns = self._pieces(place)
        c, part, events = self._job.c, None, tile.users
        self._written.add(place)
        try:
            if self._job.tiling.split and self._job.reads:
                self._prove(place, tile)
                events = tile.users
            if not self._in_place:
                if isinstance(c, HostMatrix) and not c.is_here:
                    shape = rows[1] - rows[0], columns[1] - columns[0]
                    part = np.empty(shape, c.array.dtype)  # row-major, as others take parts
                lines = c.lines(rows, columns) if part is None else part
                copied = self._transport.fetch(tile.memory, lines, tile.ld, tile.users)
                events = [] if copied is None else [copied]
        except BaseException as error:
            self._fail(error)
            return None
        return Begun(place, tile, events, part)

    def _end(self, begun: Begun) -> None:
        """Wait for a tile."""
        rows, columns = self._pieces(begun.place)
        try:
            for event in begun.events:
                event.wait()
            if begun.part is not None and isinstance(self._job.c, HostMatrix):
                self._job.c.put(rows, columns, begun.part)
            self._written.discard(begun.place)
            self._job.schedule.finish(self._number, begun.place)
            self._let_go(begun.tile)
        except BaseException as error:
            self._fail(error)

    def _prove(self, place: Place, tile: Slot) -> None:
        """Compute a tile anew, by whole products, where parts of its operands are not right."""
        from tilewright.serve.streamed.parts import are_multiplied

        job = self._job
        last = Task(place, (0, len(job.tiling.k)), True, True)
        for event in dict.fromkeys(x for slot in self._arriving(last) for x in slot.arrival):
            event.wait()
        for p, (start, stop) in enumerate(job.tiling.k):
            a, b = (x.counts(number, p) for x, number in zip(self._panels, place, strict=True))
            if not are_multiplied(a, b, stop - start):
                break
        else:
            return
        if job.adds:
            lines = job.c.lines(*self._pieces(place))
            arrived = self._transport.upload(tile.memory, lines, tile.ld, tile.users)
            tile.arrival = [] if arrived is None else [arrived]
        for task in job.tiling.tasks([place]):
            self._multiply(task, tile, self._arriving(task), of_parts=False)

    def _let_go(self, tile: Slot) -> None:
        """Let another tile have this one's room."""
        if self._job.tiling.tiles:
            self._free.put(tile)
