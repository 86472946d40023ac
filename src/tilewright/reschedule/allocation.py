"""Registers for a tile's accumulators, each in the bank that its next multiply-add leaves free.

An accumulator that one multiply-add of the block writes and another one reads gets a register for
each term, in the order of writing.  Accumulators that live beyond the block and all other values
keep their registers.  Factors whose loads move ahead (`Tile.loads`) are allocated first, to aligned
registers, which keeps each in its bank.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.reschedule.access import access
from tilewright.reschedule.tile import Tile
from tilewright.reschedule.webs import bits_between
from tilewright.sass.edit import RefusedError

__all__ = ["Allocator"]

_STACK = 1  # R1 by the calling convention
_MOST_MOVED = 4  # accumulators that are moved to make room for one
# Accumulators that keep the register they enter with, once one that has to keep it found no place.
_SENT_HOME = 4


class Allocator:
    """Allocates registers to a block's inner accumulators in a new order."""

    def __init__(self, tile: Tile, order: Sequence[int], count: int) -> None:
        self.tile, self.order, self.count = tile, order, count
        self.place = {at: n for n, at in enumerate(order)}
        self.wanted = self._wanted()
        self.busy = self._busy()
        self.loaded: dict[int, int] = {}
        self._allocate_loads()
        self.fixed = list(self.busy)
        self.held: list[set[int]] = [set() for _ in range(count)]
        self.given: dict[int, int] = {}

    def _wanted(self) -> dict[int, int]:
        """Return by accumulator the bank that its reader wants it in."""
        tile, wanted = self.tile, {}
        register = tile.webs.register
        for web, (_, reader) in tile.sums.items():
            moving = tile.products[reader].other(tile.held[reader])
            wanted[web] = 1 - (register[moving] & 1)
        return wanted

    def _busy(self) -> list[int]:
        """Return by register a bit for each place after which another value occupies it."""
        tile, everything = self.tile, bits_between(0, len(self.order) - 1)
        busy = [0] * self.count
        used = self._used()
        for web, register in enumerate(tile.webs.register):
            if web in tile.apart or register >= self.count:
                continue
            if web in used:
                busy[register] |= self._life_of(web, *used[web])
            elif tile.webs.live[web] & everything << tile.start:
                busy[register] = everything
        # An access may read its registers long after its issue.
        for at, one in enumerate(tile.body):
            if access(one).variable:
                for register in tile.reads[at]:
                    busy[register] = everything
        busy[_STACK] = everything
        return busy

    def _used(self) -> dict[int, tuple[list[int], list[int]]]:
        """Return by web the places where the block reads it, and where it writes it."""
        used: dict[int, tuple[list[int], list[int]]] = {}
        for place, at in enumerate(self.order):
            for which, names in enumerate((self.tile.reads[at], self.tile.writes[at])):
                for web in names.values():
                    used.setdefault(web, ([], []))[which].append(place)
        return used

    def _life_of(self, web: int, reads: list[int], writes: list[int]) -> int:
        """Return the places after which a web that is no inner accumulator is live."""
        tile, size = self.tile, len(self.order)
        live = tile.webs.live[web]
        enters = bool(tile.start and live >> tile.start - 1 & 1)
        leaves = bool(live >> tile.start + size - 1 & 1)
        begin = 0 if enters or not writes else writes[0]
        end = size - 1 if leaves else max([at - 1 for at in reads[-1:]] + writes[-1:])
        surely = all(tile.body[self.order[at]].guard.always for at in writes)
        if writes and enters and leaves and surely:
            # Two lives: it is free between what reads the first and what makes the second.
            early = max((at for at in reads if at <= writes[0]), default=0)
            return bits_between(0, early - 1) | bits_between(writes[0], size - 1)
        return bits_between(begin, end)

    def _allocate_loads(self) -> None:
        """Allocate factors whose loads move ahead, first where no accumulator enters the block.

        Raises
        ------
        RefusedError
            If there are too few.
        """
        tile = self.tile
        homes = {
            tile.webs.register[product.before]
            for product in tile.products.values()
            if product.before not in tile.sums
        }
        used: set[int] = set()
        for load in sorted(tile.loads, key=lambda load: self.place[load.at]):
            width, last = len(load.webs), max(self.place[reader] for reader in load.readers)
            life = bits_between(self.place[load.at], last - 1)
            free = [
                (len(homes & set(range(first, first + width))), first not in used, first)
                for first in range(0, self.count - width + 1, 1 << (width - 1).bit_length())
                if not any(self.busy[first + at] & life for at in range(width))
            ]
            if not free:
                raise RefusedError("there are not enough registers for the factors")
            *_, first = min(free)
            used.add(first)
            for at, web in enumerate(sorted(load.webs, key=tile.webs.register.__getitem__)):
                self.busy[first + at] |= life
                self.loaded[web] = first + at

    def allocate(self) -> dict[int, int]:
        """Return the register of each inner accumulator and of each factor whose load moves.

        An accumulator keeps its home, the register that it enters the block in, where that lies in
        the wanted bank for all of its terms, or where no other register is free.

        Raises
        ------
        RefusedError
            If there are too few.
        """
        chains = self._chains()
        at_home = {
            first
            for first, webs in chains.items()
            if all(self.wanted[web] == self._home(first) & 1 for web in webs)
        }
        others = sorted(chains.keys() - at_home)
        while True:
            lost = self._allocated(chains, at_home)
            if lost is None:
                return self.given | self.loaded
            staying = {lost, *others[: _SENT_HOME if lost in at_home else 0]} - at_home
            if not staying:
                raise RefusedError("there are not enough registers for the sums")
            at_home |= staying
            others = [first for first in others if first not in at_home]

    def _home(self, first: int) -> int:
        return self.tile.webs.register[first]

    def _chains(self) -> dict[int, list[int]]:
        """Return accumulators by the web that enters the block, in the order of their terms."""
        first: dict[int, int] = {}
        chains: dict[int, list[int]] = {}
        sums = self.tile.sums
        for at in self.order:
            product = self.tile.products.get(at)
            if product is not None and product.after in sums:
                root = first.get(product.before, product.before)
                first[product.after] = root
                chains.setdefault(root, []).append(product.after)
        return chains

    def _allocated(self, chains: dict[int, list[int]], at_home: set[int]) -> int | None:
        """Allocate all registers; return the chain of an accumulator that found none."""
        self.busy = list(self.fixed)
        self.held = [set() for _ in range(self.count)]
        self.given = {}
        away: dict[int, int] = {}
        for first, webs in chains.items():
            for web in webs:
                if first in at_home and not self.busy[self._home(first)] & self.life(web):
                    self.take(web, self._home(first))
                else:
                    away[web] = first
        for web in sorted(away, key=lambda web: self.place[self.tile.sums[web][0]]):
            for bank in (self.wanted[web], 1 - self.wanted[web]):
                register = self.free(web, bank)
                if register is None:
                    register = self.cleared(web, bank)
                if register is not None:
                    self.take(web, register)
                    break
            else:
                return away[web]
        return None

    def life(self, web: int) -> int:
        """Return the places after which an accumulator is live."""
        made, taken = (self.place[at] for at in self.tile.sums[web])
        return bits_between(made, taken - 1)

    def take(self, web: int, register: int) -> None:
        """Give an accumulator a register, which must be free while it lives."""
        self.busy[register] |= self.life(web)
        self.held[register].add(web)
        self.given[web] = register

    def leave(self, web: int) -> None:
        """Free an accumulator's register."""
        register = self.given.pop(web)
        self.busy[register] &= ~self.life(web)
        self.held[register].discard(web)

    def free(self, web: int, bank: int) -> int | None:
        """Return a register of a bank that is free while an accumulator lives: the tightest gap."""
        life, end = self.life(web), self.place[self.tile.sums[web][1]]
        found = [r for r in range(bank, self.count, 2) if not self.busy[r] & life]
        return min(found, key=lambda r: (_gap(self.busy[r], end), r), default=None)

    def cleared(self, web: int, bank: int) -> int | None:
        """Return a register of a bank whose accumulators could be moved, each within its bank."""
        life = self.life(web)
        for register in range(bank, self.count, 2):
            if self.fixed[register] & life:
                continue
            there = [other for other in self.held[register] if self.life(other) & life]
            if len(there) > _MOST_MOVED:
                continue
            for other in there:
                self.leave(other)
            self.busy[register] |= life
            moved = []
            for other in there:
                to = self.free(other, register & 1)
                if to is None:
                    break
                self.take(other, to)
                moved.append(other)
            self.busy[register] &= ~life
            if len(moved) == len(there):
                return register
            for other in moved:
                self.leave(other)
            for other in there:
                self.take(other, register)
        return None


def _gap(busy: int, place: int) -> int:
    """Return how many places a register stays free from one on."""
    rest = busy >> place
    return (rest & -rest).bit_length() if rest else 1 << 30
