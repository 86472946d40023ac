"""A block's multiply-adds as a register tile, and their serpentine order over it.

Multiply-adds that share factors form a step along k.  Its factors have two sides, those of A and
those of B: one side's are held in turn, while the other side's move there and back (`serpentine`
has a drawing).  All other instructions keep their order, after as many multiply-adds as before.

Shared loads may move ahead of their first readers, to registers of their own: the compiler places a
load after the last reader of the register that it overwrites, which is too late in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.reschedule.access import UNIFORM, access
from tilewright.reschedule.webs import Sets, Webs
from tilewright.sass.edit import RefusedError, edit
from tilewright.sass.instruction import Instruction

__all__ = ["Load", "Product", "Tile"]

_FFMA = 0x223  # all operands in registers
# Multiply-adds between two loads that move ahead: shared memory serves a warp's load in two cycles,
# and eight warps ask.
_APART = 6

Users = dict[int, list[int]]  # instructions by web


@dataclass(frozen=True)
class Product:
    """A multiply-add of the block: webs of its factors, and of its accumulator before and after."""

    at: int
    factors: tuple[int, int]
    before: int
    after: int

    def other(self, factor: int) -> int:
        """Return the factor that is not this one."""
        return self.factors[self.factors[0] == factor]


@dataclass(frozen=True)
class Load:
    """A shared load whose values only multiply-adds of the block read, as factors.

    Parameters
    ----------
    at : int
        Where it stands in the block.
    webs : tuple of int
        What it reads, in the order of registers.
    readers : tuple of int
        The products that take them.
    """

    at: int
    webs: tuple[int, ...]
    readers: tuple[int, ...]


class Tile:
    """A block's multiply-adds by steps along k, and what must stay before what.

    Parameters
    ----------
    body : sequence of Instruction
        The block.
    webs : Webs
        Of the whole kernel.
    start : int
        Where the block begins in it.
    ahead : int, optional
        How many products loads stand ahead of their first reader, at least; None leaves them
        where they are, in their registers.
    """

    def __init__(
        self, body: Sequence[Instruction], webs: Webs, start: int, ahead: int | None = None
    ) -> None:
        self.body, self.webs, self.start, self.ahead = body, webs, start, ahead
        self.products: dict[int, Product] = {}
        self.reads = [webs.reads[start + at] for at in range(len(body))]
        self.writes = [webs.writes[start + at] for at in range(len(body))]
        for at, one in enumerate(body):
            if one.opcode == _FFMA and one.guard.always and len(self.reads[at]) == 3:
                a, b, c = (self.reads[at][o.value] for o in one.srcs)
                (after,) = self.writes[at].values()
                self.products[at] = Product(at, (a, b), c, after)
        if not self.products:
            raise RefusedError("there is no multiply-add to walk")
        self.held: dict[int, int] = {}
        made, taken = _users(webs.writes), _users(webs.reads)
        self.sums = self._inner_sums(made, taken)
        self.loads = [] if ahead is None else self._inner_loads(made, taken)
        self.apart = {*self.sums, *(web for load in self.loads for web in load.webs)}
        self.needs = self._dependencies()

    def _inner_sums(self, made: Users, taken: Users) -> dict[int, tuple[int, int]]:
        """Return webs that one multiply-add of the block writes and only one other reads."""
        inside = range(self.start, self.start + len(self.body))
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

    def _inner_loads(self, made: Users, taken: Users) -> list[Load]:
        """Return the shared loads whose values only later multiply-adds of the block read."""
        found = []
        for at, one in enumerate(self.body):
            webs = tuple(self.writes[at].values())
            if access(one).kind != "shared" or not webs or not one.guard.always:
                continue
            readers = sorted({x - self.start for web in webs for x in taken.get(web, ())})
            alone = all(made[web] == [self.start + at] for web in webs)
            whole = sorted(self.webs.members[self.webs.body[webs[0]]]) == sorted(webs)
            factors = all(
                x > at and x in self.products and self.products[x].before not in webs
                for x in readers
            )
            free = self.webs.body[webs[0]] not in self.webs.pinned
            if readers and alone and whole and factors and free:
                found.append(Load(at, webs, tuple(readers)))
        return found

    def _names(self, webs: dict[int, int]) -> list[int]:
        """Return what order depends on: registers, or webs where these get other registers."""
        return [-1 - web if web in self.apart else register for register, web in webs.items()]

    def _dependencies(self) -> list[set[int]]:
        """Return the instructions that each must follow; all but multiply-adds keep their order."""
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
        """Return the multiply-adds in serpentine order; note in `held` which factor each holds."""
        order: list[int] = []
        for step in self._steps():
            rows = self._rows(step, other)
            order += self._there_and_back(rows)
            self.held |= {p.at: factor for factor, row in rows.items() for p in row}
        return order

    def _steps(self) -> list[list[Product]]:
        """Return the multiply-adds by steps along k: those that share factors."""
        sets, number = Sets(), {}
        for product in self.products.values():
            for factor in product.factors:
                if factor not in number:
                    number[factor] = sets.new()
            sets.join(*(number[factor] for factor in product.factors))
        found: dict[int, list[Product]] = {}
        for product in self.products.values():
            found.setdefault(sets.find(number[product.factors[0]]), []).append(product)
        return sorted(found.values(), key=lambda step: sum(p.at for p in step) / len(step))

    def _rows(self, step: Sequence[Product], other: bool) -> dict[int, list[Product]]:
        """Return a step's multiply-adds by the factor to hold, keeping the order of all terms."""
        sides = _sides(step)
        most = sum(p.factors[0] in sides[0] for p in step) * 2 >= len(step)
        for side in sides if most ^ other else sides[::-1]:
            rows: dict[int, list[Product]] = {}
            for product in step:
                factor = product.factors[0 if product.factors[0] in side else 1]
                rows.setdefault(factor, []).append(product)
            held = _in_order(rows)
            if held:
                return {factor: rows[factor] for factor in held}
        raise RefusedError("sums take their terms in different orders")

    def _there_and_back(self, rows: dict[int, list[Product]]) -> list[int]:
        """Return one step's multiply-adds, one factor held after the other."""
        order: list[int] = []
        for number, (factor, row) in enumerate(rows.items()):
            moving = {p.at: self.webs.register[p.other(factor)] for p in row}
            order += sorted(moving, key=moving.__getitem__, reverse=bool(number % 2))
        return order

    def merged(self, backbone: Sequence[int]) -> list[int]:
        """Return all instructions in order, others after as many multiply-adds as before."""
        others, target, count = [], [], 0
        for at in range(len(self.body)):
            if at in self.products:
                count += 1
            else:
                others.append(at)
                target.append(count)
        self._advance_loads(others, target, backbone)
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

    def _advance_loads(
        self, others: Sequence[int], target: list[int], backbone: Sequence[int]
    ) -> None:
        """Move loads ahead of their first readers, and apart from each other."""
        number = {at: n for n, at in enumerate(backbone)}
        first = {load.at: min(number[x] for x in load.readers) for load in self.loads}
        next_load = len(backbone)
        for place in reversed(range(len(others))):
            if others[place] in first:
                assert self.ahead is not None
                wanted = min(first[others[place]] - self.ahead, next_load - _APART)
                target[place] = max(0, min(target[place], wanted))
                next_load = target[place]
            if place + 1 < len(others):
                target[place] = min(target[place], target[place + 1])

    def written(self, at: int, given: dict[int, int], arch: int) -> Instruction:
        """Return an instruction with the registers that its accumulator and factors were given."""
        product = self.products.get(at)
        if product is None:
            made = [given[web] for web in self.writes[at].values() if web in given]
            return edit(self.body[at], arch, d=made[0]) if made else self.body[at]
        fields: dict[str, Any] = {"yields": False}
        a, b = (given.get(web, self.webs.register[web]) for web in product.factors)
        if product.factors[0] != self.held[at]:
            a, b = b, a
        fields |= {"a": a, "b": b}
        if product.after in given:
            fields["d"] = given[product.after]
        if product.before in given:
            fields["c"] = given[product.before]
        return edit(self.body[at], arch, reuse=(False, False, False), **fields)


def _users(names: Sequence[dict[int, int]]) -> Users:
    """Return the instructions that read, or write, each web."""
    found: Users = {}
    for at, webs in enumerate(names):
        for web in webs.values():
            found.setdefault(web, []).append(at)
    return found


def _sides(step: Sequence[Product]) -> tuple[set[int], set[int]]:
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


def _in_order(rows: dict[int, list[Product]]) -> list[int]:
    """Return the factors in an order that keeps all accumulators' terms; empty if none does."""
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
