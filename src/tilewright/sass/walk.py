"""A loop's multiply-adds walked there and back over the tile, sums in the banks that this wants.

A step along k multiplies each of some factors by each of some others.  With one of them held in a
latch, an FFMA reads the other and its sum: one read of each bank, if they lie in different ones::

             b0   b1   b2   b3        one row there, the next one back: at the turn the factor
    a0      ──────────────────>┐      that has moved so far is at hand, and the one that is held
    a1      <──────────────────┘      changes
    a2      ──────────────────>

The sum that meets b1 has to lie in the bank that b1 does not lie in.  Where it meets factors of
both banks in turns, as real parts of complex products do, it has to change its bank with each, and
so its register: a sum that is read leaves its register to the next one that is written.

Sums that live on beyond the block keep their registers, and so does all that is no sum.  Each sum
keeps the order of its terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.sass.access import UNIFORM, access
from tilewright.sass.dependencies import Block, RefusedError
from tilewright.sass.edit import edit
from tilewright.sass.fetch import cycles, flagged, op_of
from tilewright.sass.hazards import entry
from tilewright.sass.instruction import Instruction
from tilewright.sass.rename import registers_of
from tilewright.sass.reuse import with_flags
from tilewright.sass.stalls import numbered, restalled
from tilewright.sass.waits import rewaited
from tilewright.sass.webs import Webs, find_webs

__all__ = ["fetch_cycles", "walked"]

_FFMA = 0x223  # all operands in registers
_STACK = 1
_MOST_MOVED = 4  # sums that make room for one
_SENT_HOME = 4  # sums that stay where they are, where one that does found no place


@dataclass(frozen=True)
class _Product:
    """A multiply-add of the block: its factors' webs, and its sum's before and after it."""

    at: int
    factors: tuple[int, int]
    before: int
    after: int

    def other(self, factor: int) -> int:
        """Return the factor that is not this one."""
        return self.factors[self.factors[0] == factor]


def walked(
    kernel: Sequence[Instruction], block: Block, arch: int, apart: bool = False
) -> tuple[list[Instruction], int, int]:
    """Return a block walked there and back, and how many multiply-adds moved and sums changed.

    Parameters
    ----------
    kernel : sequence of Instruction
        The whole kernel.
    block : Block
        One of its blocks.
    arch : int
        Architecture number.
    apart : bool
        Whether memory instructions leave the operands' latches alone.

    Raises
    ------
    RefusedError
        If something is not modelled, there is no such tile, or there are no registers left.
    """
    webs = find_webs(kernel)
    best, found, seen = float("inf"), None, []
    for other in (False, True):
        tile = _Tile(kernel[block.start : block.stop], webs, block.start)
        order = tile.merged(tile.backbone(other))
        if order in seen:  # only one side's factors may be held
            continue
        seen.append(order)
        made, moved, renamed = _walked(kernel, block, tile, order, arch)
        cost = fetch_cycles(made, arch, apart)
        if cost < best:
            best, found = cost, (made, moved, renamed)
    assert found is not None
    return found


def fetch_cycles(body: Sequence[Instruction], arch: int, apart: bool) -> int:
    """Return the cycles that a block takes to fetch its operands."""
    ops = [op_of(one, False, arch) for one in body]
    return cycles(ops, flagged(ops), apart)


def _walked(
    kernel: Sequence[Instruction], block: Block, tile: _Tile, order: Sequence[int], arch: int
) -> tuple[list[Instruction], int, int]:
    """Return the block in a new order, with registers and control fields for it."""
    body = kernel[block.start : block.stop]
    given = _Registers(tile, order, registers_of(kernel)).given()
    changed = [tile.written(at, given, arch) for at in order]
    before = entry(kernel, block.start)
    new = restalled(body, rewaited(body, changed, before, arch), before, arch)
    made = numbered(new, body[0].address, arch)
    moved = sum(at != place for place, at in enumerate(order) if at in tile.products)
    renamed = sum(tile.webs.register[web] != register for web, register in given.items())
    return with_flags(made, arch), moved, renamed


class _Tile:
    """A block's multiply-adds by steps along k, and what must stay before what."""

    def __init__(self, body: Sequence[Instruction], webs: Webs, start: int) -> None:
        self.body, self.webs, self.start = body, webs, start
        self.products: dict[int, _Product] = {}
        self.reads = [webs.reads[start + at] for at in range(len(body))]
        self.writes = [webs.writes[start + at] for at in range(len(body))]
        for at, one in enumerate(body):
            if one.opcode == _FFMA and one.guard.always and len(self.reads[at]) == 3:
                a, b, c = (self.reads[at][o.value] for o in one.srcs)
                (after,) = self.writes[at].values()
                self.products[at] = _Product(at, (a, b), c, after)
        if not self.products:
            raise RefusedError("there is no multiply-add to walk")
        self.held: dict[int, int] = {}
        self.sums = self._inner_sums()
        self.needs = self._dependencies()

    def _inner_sums(self) -> dict[int, tuple[int, int]]:
        """Return webs that one multiply-add of the block makes and another one alone takes."""
        inside = range(self.start, self.start + len(self.body))
        made: dict[int, list[int]] = {}
        taken: dict[int, list[int]] = {}
        for names, found in ((self.webs.writes, made), (self.webs.reads, taken)):
            for at, webs in enumerate(names):
                for web in webs.values():
                    found.setdefault(web, []).append(at)
        sums = {}
        for product in self.products.values():
            web, uses = product.after, taken.get(product.after, [])
            if len(made[web]) != 1 or len(uses) != 1 or uses[0] not in inside:
                continue
            reader = self.products.get(uses[0] - self.start)
            alone = len(self.webs.members[self.webs.body[web]]) == 1
            if alone and reader and reader.before == web and web not in reader.factors:
                sums[web] = (product.at, reader.at)
        return sums

    def _names(self, webs: dict[int, int]) -> list[int]:
        """Return what order depends on: registers, and inner sums by themselves."""
        return [-1 - web if web in self.sums else register for register, web in webs.items()]

    def _dependencies(self) -> list[set[int]]:
        """Return what each instruction has to stay behind; what is no product keeps its order."""
        found: list[set[int]] = []
        writer: dict[int, int] = {}
        readers: dict[int, list[int]] = {}
        last = None
        for at, one in enumerate(self.body):
            use, mine = access(one), set()
            others = [r for r in use.reads if r >= UNIFORM], [r for r in use.writes if r >= UNIFORM]
            for name in (*self._names(self.reads[at]), *others[0]):
                if name in writer:
                    mine.add(writer[name])
                readers.setdefault(name, []).append(at)
            for name in (*self._names(self.writes[at]), *others[1]):
                mine |= {x for x in (writer.get(name), *readers.get(name, ())) if x is not None}
                writer[name] = at
                readers[name] = []
            if at not in self.products:
                if last is not None:
                    mine.add(last)
                last = at
            mine.discard(at)
            found.append(mine)
        return found

    def backbone(self, other: bool) -> list[int]:
        """Return the products in their new order; say which factor of each is held."""
        order: list[int] = []
        for step in self._steps():
            rows = self._rows(step, other)
            order += self._there_and_back(rows)
            self.held |= {p.at: factor for factor, row in rows.items() for p in row}
        return order

    def _steps(self) -> list[list[_Product]]:
        """Return the products by steps along k: those that factors join."""
        root: dict[int, int] = {}

        def find(x: int) -> int:
            while root.setdefault(x, x) != x:
                x = root[x]
            return x

        for product in self.products.values():
            a, b = (find(factor) for factor in product.factors)
            root[max(a, b)] = min(a, b)
        found: dict[int, list[_Product]] = {}
        for product in self.products.values():
            found.setdefault(find(product.factors[0]), []).append(product)
        return sorted(found.values(), key=lambda step: sum(p.at for p in step) / len(step))

    def _rows(self, step: Sequence[_Product], other: bool) -> dict[int, list[_Product]]:
        """Return a step's products by the factor to hold, in an order that keeps sums' terms."""
        sides = _sides(step)
        most = sum(p.factors[0] in sides[0] for p in step) * 2 >= len(step)
        for side in sides if most ^ other else sides[::-1]:
            rows: dict[int, list[_Product]] = {}
            for product in step:
                factor = product.factors[0 if product.factors[0] in side else 1]
                rows.setdefault(factor, []).append(product)
            held = _in_order(rows)
            if held:
                return {factor: rows[factor] for factor in held}
        raise RefusedError("sums take their terms in different orders")

    def _there_and_back(self, rows: dict[int, list[_Product]]) -> list[int]:
        """Return one step's products, one factor held after the other."""
        order: list[int] = []
        for number, (factor, row) in enumerate(rows.items()):
            moving = {p.at: self.webs.register[p.other(factor)] for p in row}
            order += sorted(moving, key=moving.__getitem__, reverse=bool(number % 2))
        return order

    def merged(self, backbone: Sequence[int]) -> list[int]:
        """Return all instructions in a new order: what is no product among as many as it was."""
        others, target, count = [], [], 0
        for at in range(len(self.body)):
            if at in self.products:
                count += 1
            else:
                others.append(at)
                target.append(count)
        order: list[int] = []
        done: set[int] = set()

        def emit(at: int) -> None:
            """Emit an instruction, and before it what it needs."""
            waiting = [at]
            while waiting:
                one = waiting[-1]
                missing = [x for x in sorted(self.needs[one]) if x not in done]
                if missing:
                    waiting += missing[:1]
                    continue
                waiting.pop()
                if one not in done:
                    done.add(one)
                    order.append(one)

        def ready(at: int) -> bool:
            return all(x in done for x in self.needs[at])

        place = 0
        for number, at in enumerate(backbone):
            while place < len(others) and (
                others[place] in done or (target[place] <= number and ready(others[place]))
            ):
                emit(others[place])
                place += 1
            emit(at)
        for at in others[place:]:
            emit(at)
        return order

    def written(self, at: int, given: dict[int, int], arch: int) -> Instruction:
        """Return an instruction with the registers of its sums."""
        product = self.products.get(at)
        if product is None:
            return self.body[at]
        fields: dict[str, Any] = {"yields": False}
        if product.factors[0] != self.held[at]:
            a, b = (self.webs.register[web] for web in product.factors)
            fields |= {"a": b, "b": a}
        if product.after in given:
            fields["d"] = given[product.after]
        if product.before in given:
            fields["c"] = given[product.before]
        return edit(self.body[at], arch, reuse=(False, False, False), **fields)


def _sides(step: Sequence[_Product]) -> tuple[set[int], set[int]]:
    """Return the factors of a step by sides: each product has one of each.

    Raises
    ------
    RefusedError
        If there are no such sides.
    """
    near: dict[int, set[int]] = {}
    for product in step:
        a, b = product.factors
        near.setdefault(a, set()).add(b)
        near.setdefault(b, set()).add(a)
    sides: tuple[set[int], set[int]] = ({step[0].factors[0]}, set())
    waiting = [(step[0].factors[0], 0)]
    while waiting:
        factor, side = waiting.pop()
        if near[factor] & sides[side]:
            raise RefusedError("factors of a step are not of two sides")
        waiting += [(other, 1 - side) for other in near[factor] - sides[1 - side]]
        sides[1 - side].update(near[factor])
    return sides


def _in_order(rows: dict[int, list[_Product]]) -> list[int]:
    """Return the factors to hold, such that every sum keeps the order of its terms, if any."""
    made = {p.after: factor for factor, row in rows.items() for p in row}
    behind = {
        factor: {made[p.before] for p in row if p.before in made} - {factor}
        for factor, row in rows.items()
    }
    order: list[int] = []
    while behind:
        free = [factor for factor, needs in behind.items() if needs <= set(order)]
        if not free:
            return []
        order.append(min(free, key=lambda factor: min(p.at for p in rows[factor])))
        del behind[order[-1]]
    return order


class _Registers:
    """Registers of inner sums in a new order of the block."""

    def __init__(self, tile: _Tile, order: Sequence[int], count: int) -> None:
        self.tile, self.order, self.count = tile, order, count
        self.place = {at: n for n, at in enumerate(order)}
        self.wanted = self._wanted()
        self.busy = self._busy()
        self.fixed = list(self.busy)
        self.held: list[set[int]] = [set() for _ in range(count)]
        self.given_now: dict[int, int] = {}

    def _wanted(self) -> dict[int, int]:
        """Return by inner sum the bank that its reader wants it in."""
        tile, wanted = self.tile, {}
        register = tile.webs.register
        for web, (_, reader) in tile.sums.items():
            moving = tile.products[reader].other(tile.held[reader])
            wanted[web] = 1 - (register[moving] & 1)
        return wanted

    def _busy(self) -> list[int]:
        """Return of each register a bit for each place behind which something else is held."""
        tile, size = self.tile, len(self.order)
        busy = [0] * self.count
        entering = 1 << tile.start - 1 if tile.start else 0
        leaving = 1 << tile.start + size - 1
        last: dict[int, int] = {}
        first: dict[int, int] = {}
        kept: set[int] = set()  # by a write that may not happen
        for place, at in enumerate(self.order):
            for web in tile.reads[at].values():
                last[web] = place - 1
            for web in tile.writes[at].values():
                if not tile.body[at].guard.always:
                    kept.add(web)
                first.setdefault(web, place)
                last[web] = max(last.get(web, place), place)
        everything = (1 << size) - 1
        for web, register in enumerate(tile.webs.register):
            if web in tile.sums or register >= self.count:
                continue
            live = tile.webs.live[web]
            inside = web in first or web in last
            if not inside:
                if live & (everything << tile.start):
                    busy[register] = everything
                continue
            begin = first.get(web, 0)
            if web not in first or live & entering:
                begin = 0
            end = size - 1 if live & leaving else last[web]
            # What both enters and leaves may be two lives: free between its last use and its
            # first definition.
            if web in first and live & entering and live & leaving and web not in kept:
                readers = [p for p, at in enumerate(self.order) if web in tile.reads[at].values()]
                early = max((p for p in readers if p <= first[web]), default=0)
                busy[register] |= _bits(0, early - 1) | _bits(first[web], size - 1)
            elif end >= begin:
                busy[register] |= _bits(begin, end)
        for at, one in enumerate(tile.body):
            if access(one).variable:
                for register in tile.reads[at]:
                    busy[register] = everything
        busy[_STACK] = everything
        return busy

    def given(self) -> dict[int, int]:
        """Return the register of each inner sum.

        A sum whose home, the register that it enters the block in, lies in the wanted bank
        throughout stays there; and one for which there was no other place.

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
            lost = self._dealt(chains, at_home)
            if lost is None:
                return self.given_now
            staying = {lost, *others[: _SENT_HOME if lost in at_home else 0]} - at_home
            if not staying:
                raise RefusedError("there are not enough registers for the sums")
            at_home |= staying
            others = [first for first in others if first not in at_home]

    def _home(self, first: int) -> int:
        return self.tile.webs.register[first]

    def _chains(self) -> dict[int, list[int]]:
        """Return inner sums by the web that enters the block, in the order of their terms."""
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

    def _dealt(self, chains: dict[int, list[int]], at_home: set[int]) -> int | None:
        """Deal all registers; return the chain of a sum that found none."""
        self.busy = list(self.fixed)
        self.held = [set() for _ in range(self.count)]
        self.given_now = {}
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
        """Return the places behind which a sum is held."""
        made, taken = (self.place[at] for at in self.tile.sums[web])
        return _bits(made, taken - 1)

    def take(self, web: int, register: int) -> None:
        self.busy[register] |= self.life(web)
        self.held[register].add(web)
        self.given_now[web] = register

    def leave(self, web: int) -> None:
        register = self.given_now.pop(web)
        self.busy[register] &= ~self.life(web)
        self.held[register].discard(web)

    def free(self, web: int, bank: int) -> int | None:
        """Return a register of a bank that is free for a sum's life.

        The tightest gap: what is free for long is for those that live long.
        """
        life, end = self.life(web), self.place[self.tile.sums[web][1]]
        found = [r for r in range(bank, self.count, 2) if not self.busy[r] & life]
        return min(found, key=lambda r: (_gap(self.busy[r], end), r), default=None)

    def cleared(self, web: int, bank: int) -> int | None:
        """Return a register of a bank whose sums could be moved elsewhere, each in its bank."""
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
    """Return for how long a register stays free from a place on."""
    rest = busy >> place
    return (rest & -rest).bit_length() if rest else 1 << 30


def _bits(first: int, last: int) -> int:
    return ((1 << last - first + 1) - 1) << first if last >= first else 0
