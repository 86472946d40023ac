"""Who computes which tile of C: several devices share them, each at its own pace.

::

    strips of C     | cuda:0 | cuda:1 | cuda:0 | cuda:1 ...      of what fits devices
    tiles of C      | cuda:0          | cuda:1          |        of what does not
                                      <- a device without any more takes the last ones of another

A device copies one operand whole and its own part of the other.  A tile is the same product
whoever computes it, so that bits depend on no device's speed, nor on how many there are.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from itertools import product

from tilewright.serve.streamed.tiling import Piece, Place, Tiling

__all__ = ["Schedule", "schedule_of", "shares_of"]

# Tiles that each of several devices has taken and not finished: one is computed, one is copied
# back, one waits.  What is taken is lost to the others.
_AHEAD = 3


def schedule_of(tiling: Tiling, devices: int) -> tuple[Schedule, int]:
    """Return who computes what, and how many tiles each begins together at most."""
    if devices == 1:
        return Schedule(shares_of(tiling, 1)), len(tiling.places())
    return Schedule(shares_of(tiling, devices), _AHEAD), max(_AHEAD, tiling.early // devices)


def shares_of(tiling: Tiling, devices: int) -> list[list[Place]]:
    """Return each device's own tiles.

    Of what fits, the next strip goes to the device that has least.  Else a device has neighbouring
    columns of tiles, or rows where these are more.
    """
    rows, columns = range(len(tiling.m)), range(len(tiling.n))
    if not tiling.panels or devices == 1:
        shares: list[list[Place]] = [[] for _ in range(devices)]
        lengths = [0] * devices
        for place in tiling.places():
            least = lengths.index(min(lengths))
            shares[least].append(place)
            lengths[least] += tiling.elements(place)
        return shares
    if (len(rows), tiling.m[-1][1]) > (len(columns), tiling.n[-1][1]):
        return [list(product(own, columns)) for own in _groups(tiling.m, devices)]
    return [list(product(rows, own)) for own in _groups(tiling.n, devices)]


def _groups(pieces: Sequence[Piece], count: int) -> list[list[int]]:
    """Part pieces into so many groups of neighbours of nearly equal lengths; some may be empty."""
    made: list[list[int]] = [[] for _ in range(count)]
    for number, (start, stop) in enumerate(pieces):
        middle = (start + stop) / 2 / pieces[-1][1]
        made[min(count - 1, int(middle * count))].append(number)
    return made


class Schedule:
    """Tiles that are not computed yet, and who has which of the others.

    Parameters
    ----------
    shares : sequence of sequence of Place
        Each device's own.
    ahead : int
        How many tiles a device may have taken and not finished, those aside that it begins
        together; 0 for any number.
    """

    def __init__(self, shares: Sequence[Sequence[Place]], ahead: int = 0) -> None:
        self._ahead = ahead
        self._shares = [deque(one) for one in shares]
        self._returned: deque[Place] = deque()
        self._held: list[list[Place]] = [[] for _ in shares]
        self._changed = threading.Condition()
        self._working = set(range(len(shares)))
        self.done: list[Place] = []
        self.lost: list[tuple[int, BaseException]] = []
        self.error: BaseException | None = None
        self.changes = 0  # how often it changed what is offered, or whether anything will be

    def offer(self, device: int, *, own: bool = False) -> Place | None:
        """Return a tile to compute; None if there is none now.

        There is none while the device has `ahead` tiles to finish.  With `own` it is one of the
        device's own, to begin together with those before.
        """
        with self._changed:
            place = self._next(device, own) if self.works(device) else None
            if place is not None:
                self._held[device].append(place)
            return place

    def is_over(self, device: int) -> bool:
        """Whether a device is offered no tile any more, not even one that another gives back."""
        with self._changed:
            left = self._returned or any(self._shares) or any(self._held)
            return not (left and self.works(device))

    def wait(self, changes: int) -> None:
        """Wait until `changes` is another number than that."""
        with self._changed:
            self._changed.wait_for(lambda: self.changes != changes)

    def _tell(self) -> None:
        self.changes += 1
        self._changed.notify_all()

    def _next(self, device: int, own: bool) -> Place | None:
        mine, held = self._shares[device], len(self._held[device])
        if own:
            return mine.popleft() if mine else None
        if 0 < self._ahead <= held:
            return None
        if self._returned:
            return self._returned.popleft()
        if mine:
            return mine.popleft()
        if held > 1:  # what is taken early is not left to who is free first
            return None
        most = max(self._shares, key=len)
        return most.pop() if most else None

    def finish(self, device: int, place: Place) -> None:
        """Say that a tile is where it belongs."""
        with self._changed:
            self._held[device].remove(place)
            self.done.append(place)
            self._tell()

    def retire(self, device: int) -> None:
        """Let a device take no more tiles."""
        with self._changed:
            self._working.discard(device)
            self._tell()

    def lose(self, device: int, error: BaseException) -> None:
        """Give what a device has to others; the error is the call's if there are none."""
        with self._changed:
            self._working.discard(device)
            self.lost.append((device, error))
            self._returned.extend(self._held[device])
            self._held[device].clear()
            if not self._working:
                self.error = self.error or error
            self._tell()

    def stop(self, error: BaseException) -> None:
        """Let nobody take another tile."""
        with self._changed:
            self.error = self.error or error
            self._tell()

    def works(self, device: int) -> bool:
        """Whether a device goes on."""
        return self.error is None and device in self._working
