"""Prove, without a device, that rescheduled code computes what the compiler's code does.

`differences` compares two versions of a kernel that differ in the order of instructions within
blocks, the operands' sides, the registers' names and the control fields:

1. *Values.*  Symbolic execution, block by block, finds which registers of the one version hold the
   values of which registers of the other at each block's start (`_Walk`).  Then every effect
   (access, branch, barrier, clock) must have the same operands in the same order in both.
2. *Waiting.*  No effect meets an access in flight that was over before (`in_flight`).
3. *Time.*  `tilewright.reschedule.hazards` finds nothing, in the whole kernel, that is read or
   overwritten too early, nor a reuse copy that has become stale.

It shares `latency` and `access` with the scheduler, and nothing else.  Where an instruction is not
modelled, or control arrives from an unknown place, each register must hold what the register of the
same number holds in the other version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.reschedule.access import Access, access, name_of
from tilewright.reschedule.dependencies import Block, blocks
from tilewright.reschedule.hazards import hazards
from tilewright.reschedule.in_flight import still_under_way
from tilewright.reschedule.values import Symbols, execute, meaning
from tilewright.sass.flow import successors
from tilewright.sass.instruction import Instruction

__all__ = ["differences", "same_values"]

State = tuple[int, ...]  # the class of each place, of the old kernel and then of the new one


def differences(
    before: Sequence[Instruction], after: Sequence[Instruction], arch: int
) -> list[str]:
    """Return why a rescheduled kernel may not replace another; nothing if it may.

    Parameters
    ----------
    before, after : sequence of Instruction
        Whole kernels.
    arch : int
        Architecture number.
    """
    found = same_values(before, after, arch)
    if found or all(x.raw == y.raw for x, y in zip(before, after, strict=True)):
        return found
    known = hazards(before)
    if unclear := [hazard for hazard in known if not hazard.copy]:
        return [f"the kernel itself is not understood: {unclear[0]}"]
    # ptxas knows when a write clears a copy in a latch; here it is only known that it does so.
    return [str(hazard) for hazard in hazards(after) if hazard not in known]


def same_values(
    before: Sequence[Instruction], after: Sequence[Instruction], arch: int
) -> list[str]:
    """Return how two versions of a kernel differ in what they do or wait for; see `differences`."""
    if len(before) != len(after):
        return [f"there are {len(after)} instructions, not {len(before)}"]
    if [one.address for one in before] != [one.address for one in after]:
        return ["the instructions do not stand at the same addresses"]
    if [_jump(one) for one in before] != [_jump(one) for one in after]:
        return ["a branch has moved or leads elsewhere"]
    walk = _Walk(before, after, arch)
    walk.settle()
    return list(walk.reasons())


def _jump(one: Instruction) -> tuple[str, int | None] | None:
    """Return what ends or starts a block, so that both versions have the same blocks."""
    ends = ("BRA", "EXIT", "RET", "CALL", "BSSY", "BSYNC", "WARPSYNC", "BREAK")
    if one.target is None and one.mnemonic not in ends and one.known:
        return None
    return one.mnemonic, one.target


class _Walk:
    """Which places hold the same value where a block begins, whatever way leads there.

    A place is a resource of the old kernel or of the new one.  Places start in one class each
    with its namesake, and wherever ways meet two of them stay together only if they are on every
    way: the usual forward analysis, which can only part what it had put together.
    """

    def __init__(
        self, before: Sequence[Instruction], after: Sequence[Instruction], arch: int
    ) -> None:
        self.blocks = blocks(before)
        self.code = (before, after)
        self.uses = tuple([access(one) for one in code] for code in self.code)
        counted = frozenset(
            one.control.write_barrier
            for one in before
            if one.mnemonic == "LDGDEPBAR" and one.control.write_barrier is not None
        )
        self.meanings = tuple(
            [meaning(one, arch, counted, use) for one, use in zip(code, uses, strict=True)]
            for code, uses in zip(self.code, self.uses, strict=True)
        )
        named = {r for uses in self.uses for use in uses for r in use.reads | use.writes}
        # What is not modelled may name any register.
        named |= {r for code in self.code for i in code for r in (*i.dst, *i.reads)}
        self.resources = sorted(named)
        self.symbols = Symbols()
        self.strange = [
            any(u.kind == "unknown" for u in self.uses[0][b.start : b.stop]) for b in self.blocks
        ]
        self.states: dict[int, State] = {}
        self.at = {block.start: number for number, block in enumerate(self.blocks)}
        after_each = successors(before)
        self.following = [[self.at[i] for i in after_each[block.stop - 1]] for block in self.blocks]

    @property
    def namesakes(self) -> State:
        """Every place with its namesake."""
        return (*range(len(self.resources)), *range(len(self.resources)))

    def settle(self) -> None:
        """Execute blocks until nothing changes."""
        for first in range(len(self.blocks)):
            if first in self.states:
                continue
            # The kernel's start, or where control comes from nowhere that is known.
            self.states[first] = self.namesakes
            waiting = [first]
            while waiting:
                number = waiting.pop(0)
                end = self._execute(number)[0]
                for following in self.following[number]:
                    known = self.states.get(following)
                    state = end if known is None else _classes(list(zip(known, end, strict=True)))
                    if state != known:
                        self.states[following] = state
                        if following not in waiting:
                            waiting.append(following)

    def _execute(self, number: int) -> tuple[State, list[int], list[int]]:
        """Return the state behind a block, and the effects of both versions."""
        block, state = self.blocks[number], self.states[number]
        symbols, count = self.symbols, len(self.resources)
        if self.strange[number]:
            return self.namesakes, [], []
        first = [symbols.number(("first", number, c)) for c in state]
        values, effects = [], []
        for version in (0, 1):
            mine = dict(zip(self.resources, first[version * count :], strict=False))
            body = self.meanings[version][block.start : block.stop]
            effects.append(execute(body, mine, symbols, block.start))
            values += [mine[r] for r in self.resources]
        return _classes(values), effects[0], effects[1]

    def reasons(self) -> Iterator[str]:
        for number, block in enumerate(self.blocks):
            old, new = (code[block.start : block.stop] for code in self.code)
            where = f"the block at {old[0].address:#x}"
            if self.strange[number]:
                yield from self._strange(number, old, new)
                continue
            _, mine, theirs = self._execute(number)
            if mine != theirs:
                yield f"effects of {where} differ: {self._first(block, mine, theirs)}"
            elif any(x.raw != y.raw for x, y in zip(old, new, strict=True)):
                yield from still_under_way(self._version(0, block), self._version(1, block))

    def _version(
        self, version: int, block: Block
    ) -> tuple[Sequence[Instruction], Sequence[Access], list[bool]]:
        span = slice(block.start, block.stop)
        effects = [m.effect for m in self.meanings[version][span]]
        return self.code[version][span], self.uses[version][span], effects

    def _strange(
        self, number: int, old: Sequence[Instruction], new: Sequence[Instruction]
    ) -> Iterator[str]:
        """Yield why a block that is not modelled may not follow what was changed."""
        one = next(i for i in old if access(i).kind == "unknown")
        what = f"{one.name} at {one.address:#x} is not modelled"
        if any(x.raw != y.raw for x, y in zip(old, new, strict=True)):
            yield f"{what}, and its block has changed"
            return
        state, count = self.states[number], len(self.resources)
        for place, resource in enumerate(self.resources):
            if state[place] != state[count + place]:
                yield f"{what}, and {name_of(resource)} holds another value before it"
                return

    def _first(self, block: Block, mine: list[int], theirs: list[int]) -> str:
        """Return the first effect of the new version that is another one."""
        span = slice(block.start, block.stop)
        found: list[Instruction] = []
        for code, meanings in zip(self.code, self.meanings, strict=True):
            effects = [i for i, m in zip(code[span], meanings[span], strict=True) if m.effect]
            place = next(
                (n for n, (x, y) in enumerate(zip(mine, theirs, strict=False)) if x != y),
                min(len(mine), len(theirs)),
            )
            found += effects[place : place + 1]
        return " and ".join(f"{one} at {one.address:#x}" for one in found)


def _classes(values: Sequence[object]) -> State:
    """Return each value's number, by first occurrence."""
    known: dict[object, int] = {}
    return tuple(known.setdefault(value, len(known)) for value in values)
