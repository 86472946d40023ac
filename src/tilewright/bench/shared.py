"""How long devices take to share a product of matrices that lie on the first one: simulated.

::

    host     | slab 0, strips | slab 1 ...                    enqueues, one thing after another
    link            | slab 0 | strips | slab 1 | ...          from the first device to each other
    products                 | slab 0 of strips | slab 1 ...  behind what they multiply
    link back                                        | C ...

Tiles and who takes which are the pipeline's own (`tilewright.serve.streamed`).  What overlaps is
taken to cost nothing else; a link's rate is each device's while one copies from the first, and
shared where several do.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from tilewright.serve.routes.split.promise import MOST_K
from tilewright.serve.streamed.schedule import Schedule, schedule_of
from tilewright.serve.streamed.tiling import Piece, Place, Tiling, span

__all__ = ["Rates", "seconds_of"]


class Rates(NamedTuple):
    """What a simulation is given.

    Parameters
    ----------
    kernel : float
        Seconds of the whole product on one device.
    link : float
        Bytes a second from a device to another.
    begin, enqueue, launch : float
        Seconds before the host enqueues anything, of each thing that it enqueues, and of each
        launch and copy on the device.
    rewritten : float
        Bytes of C a second that are read and written again for another piece of k.
    split : float
        Elements a second of passes that split an operand of "fp32"; part of `kernel`.
    blocks : int
        That a device computes at once, of 128 x 128 elements.
    """

    kernel: float
    link: float
    begin: float = 1.5e-3  # of a host with two H100s, and so is the next
    enqueue: float = 0.05e-3
    launch: float = 0.01e-3
    rewritten: float = 1e12
    split: float = 2.7e11
    blocks: int = 132


@dataclass
class _Device:
    """When each part of a device is free, and when what it has is there."""

    host: float
    first: bool
    link: float = 0.0
    back: float = 0.0
    passes: float = 0.0
    products: float = 0.0
    there: dict[tuple[bool, int, int], float] = field(default_factory=dict)
    begun: bool = False


def seconds_of(tiling: Tiling, itemsize: int, devices: int, rates: Rates) -> float:
    """Return the seconds from the call to its return."""
    schedule, together = schedule_of(tiling, devices)
    every = [_Device(rates.begin, number == 0) for number in range(devices)]
    run = _Run(tiling, itemsize, rates, rates.link / max(1, devices - 1))
    events: list[tuple[float, int, Place]] = []
    now = rates.begin
    waiting = list(range(devices))
    while True:
        for number in waiting:
            for end, place in _begun(run, schedule, every[number], number, together, now):
                heapq.heappush(events, (end, number, place))
        if not events:
            return now
        now, number, place = heapq.heappop(events)
        schedule.finish(number, place)
        waiting = [number, *(one for one in range(devices) if one != number)]


def _begun(
    run: _Run, schedule: Schedule, device: _Device, number: int, together: int, now: float
) -> list[tuple[float, Place]]:
    """Let a device begin what it may now; return when each tile is where it belongs."""
    ends: list[tuple[float, Place]] = []
    while (place := schedule.offer(number)) is not None:
        device.host, places = max(device.host, now), [place]
        while run.tiling.early and not device.begun and len(places) < together:
            more = schedule.offer(number, own=True)
            if more is None:
                break
            places.append(more)
        device.begun = True
        ends += run.tiles(device, places)
    return ends


@dataclass
class _Run:
    tiling: Tiling
    itemsize: int
    rates: Rates
    link: float  # of each device, where all copy

    def tiles(self, device: _Device, places: list[Place]) -> list[tuple[float, Place]]:
        """Enqueue tiles; return when each is where it belongs."""
        t, rates, ends = self.tiling, self.rates, []
        m, n, k = (side[-1][1] for side in (t.m, t.n, t.k))
        whole = rates.kernel
        if t.split:  # what counts by itself below
            whole -= (m + n) * k / rates.split + (_launches(k) - 1) * self._rewritten(m * n)
        for task in t.tasks(places):
            ready = max(
                self._arrival(device, is_b, task.place[is_b], p)
                for is_b in (False, True) for p in range(*task.steps)
            )  # fmt: skip
            rows, columns = t.m[task.place[0]], t.n[task.place[1]]
            height, width = rows[1] - rows[0], columns[1] - columns[0]
            steps = span(t.k, task.steps)
            blocks = ceil(height / 128) * ceil(width / 128)
            # Lanes fill most of what a last wave leaves.
            waves = max(1.0, 0.6 + 0.4 * rates.blocks * ceil(blocks / rates.blocks) / blocks)
            takes = whole * (height / m) * (width / n) * ((steps[1] - steps[0]) / k) * waves
            launches = _launches(steps[1] - steps[0]) if t.split else 1
            takes += (launches - task.is_first) * self._rewritten(height * width)
            device.host += rates.enqueue
            begin = max(device.products, ready, device.host)
            device.products = begin + takes + rates.launch
            if task.is_last:
                size = 0 if device.first else height * width * self.itemsize
                device.back = max(device.back, device.products) + size / rates.link + rates.launch
                ends.append((device.back + rates.enqueue, task.place))
        return ends

    def _rewritten(self, elements: int) -> float:
        return elements * self.itemsize / self.rates.rewritten

    def _arrival(self, device: _Device, is_b: bool, number: int, p: int) -> float:
        """Return when a part of an operand is there; its copy begins now unless it has begun."""
        t, rates = self.tiling, self.rates
        sides = t.n if is_b else t.m
        found = device.there.get((is_b, number, p))
        if found is not None:
            return found
        unit: Piece = t.unit(number, p) if len(sides) > 1 else (p, p + 1)
        begin, end = span(t.k, unit)
        elements = (sides[number][1] - sides[number][0]) * (end - begin)
        device.host += rates.enqueue
        found = device.host
        if not device.first:
            device.link = max(device.link, found) + elements * self.itemsize / self.link
            found = device.link = device.link + rates.launch
        if t.split:  # beside products, of which they take some of the memory's time
            device.passes = found = max(device.passes, found) + elements / rates.split
            device.products += elements / rates.split / 2
        device.there.update({(is_b, number, one): found for one in range(*unit)})
        return found


def _launches(k: int) -> int:
    """Return how many products of parts follow one another along k."""
    return -(-k // MOST_K)
