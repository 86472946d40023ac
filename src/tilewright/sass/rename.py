"""Give live ranges other registers: exchanges that cannot collide, and the code they make.

A `Renaming` starts with every web in its register.  `exchange` moves a body to another place; the
webs that it meets there move to where it came from, those that they meet there move back, and so
on until nothing collides any more, or something that has to stay is met:

    R9   ──x────x──     ──y────y──    x, y: webs; they live at the same time, so they exchange
    R10  ────y─────y    ────x─────x   registers as a whole

Zeros are different: CS2R clears a pair of registers, whichever values are to live there, and
stays as it is; such webs only exchange registers that are cleared in the same blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.sass.dependencies import blocks
from tilewright.sass.edit import edit
from tilewright.sass.instruction import Instruction
from tilewright.sass.webs import Webs, bits_between, zeroes_pair

__all__ = ["Moves", "Renaming", "registers_of"]

Moves = dict[int, int]  # web to register
_LONGEST = 64  # webs of a chain; longer ones would not be undone by anything near


class Renaming:
    """Which register each web has.

    Parameters
    ----------
    instructions : sequence of Instruction
        The kernel.
    webs : Webs
        Its live ranges.
    registers : int
        Registers of the kernel: no number from here on is given away.
    """

    def __init__(self, instructions: Sequence[Instruction], webs: Webs, registers: int) -> None:
        self.code, self.webs, self.count = instructions, webs, registers
        self.register = list(webs.register)
        self.holders: dict[int, set[int]] = {r: set() for r in range(registers)}
        for web, register in enumerate(self.register):
            self.holders.setdefault(register, set()).add(web)
        self.cleared = _Cleared(instructions, webs)

    def exchange(self, web: int, register: int) -> Moves | None:
        """Return where webs go if one goes to a register, None if something has to stay.

        Nothing is changed; give the answer to `take`.
        """
        moves: Moves = {}
        waiting = [(web, register)]
        while waiting:
            one, to = waiting.pop()
            shift = to - self.register[one]
            body = self.webs.body[one]
            if one in moves:
                if moves[one] != to:
                    return None
                continue
            if body in self.webs.pinned or shift % self.webs.align[body]:
                return None
            for member in self.webs.members[body]:
                target = self.register[member] + shift
                if not 0 <= target < self.count or len(moves) > _LONGEST:
                    return None
                if moves.setdefault(member, target) != target:
                    return None
                waiting += [
                    (other, self.register[other] - shift)
                    for other in self._met(member, target)
                    if moves.get(other) != self.register[other] - shift
                ]
        if not self._fits(moves):
            return None
        return moves

    def _met(self, web: int, register: int) -> list[int]:
        """Return the webs of a register that live when this one does."""
        live = self.cleared.core(web)
        return [
            other
            for other in self.holders[register]
            if other != web and self.cleared.core(other) & live
        ]

    def _fits(self, moves: Moves) -> bool:
        """Whether webs that move meet nothing that has its register then."""
        arriving: dict[int, list[int]] = {}
        for web, register in moves.items():
            arriving.setdefault(register, []).append(web)
        for register, webs in arriving.items():
            held = 0
            for web in self.holders[register]:
                if web not in moves:
                    held |= self.cleared.life(web, register) or 0
            for web in webs:
                life = self.cleared.life(web, register)
                if life is None or life & held or self.cleared.lost(web, register):
                    return False
                held |= life
        return True

    def take(self, moves: Moves) -> Moves:
        """Move webs; return the moves that take it back."""
        back = {web: self.register[web] for web in moves}
        for web, register in moves.items():
            self.holders[self.register[web]].discard(web)
            self.register[web] = register
        for web, register in moves.items():
            self.holders[register].add(web)
        return back

    @property
    def renamed(self) -> int:
        """Webs in another register than the compiler's."""
        return sum(x != y for x, y in zip(self.register, self.webs.register, strict=True))

    def instructions(self, arch: int) -> list[Instruction]:
        """Return the kernel with its new registers; what changes loses its reuse flags."""
        return [self._renamed(index, one, arch) for index, one in enumerate(self.code)]

    def _renamed(self, index: int, one: Instruction, arch: int) -> Instruction:
        reads, writes = self.webs.reads[index], self.webs.writes[index]
        fields: dict[str, int] = {}
        for operand in one.srcs:
            if operand.kind == "reg" and operand.width and reads:
                fields[operand.slot.lower()] = self.register[reads[operand.value]]
        if one.dst and writes and not zeroes_pair(one):
            fields["d"] = self.register[writes[one.dst[0]]]
        was = {o.slot.lower(): o.value for o in one.srcs if o.kind == "reg"}
        if one.dst:
            was["d"] = one.dst[0]
        changed = {name: register for name, register in fields.items() if was[name] != register}
        if not changed:
            return one
        plain = (False, False, False)
        reuse = plain if any(one.control.reuse) else None
        return edit(one, arch, reuse=reuse, **changed)  # type: ignore[arg-type]


class _Cleared:
    """Lives of webs that start as zeros, by the register that they are given.

    A stretch is what lies between the first and the last CS2R of a block: no web that is used in
    it changes its register.
    """

    def __init__(self, instructions: Sequence[Instruction], webs: Webs) -> None:
        self.webs = webs
        self.block: dict[int, int] = {}  # CS2R to its block
        self.where: dict[tuple[int, int], int] = {}  # block and register to the CS2R
        self.at: dict[int, list[int]] = {}  # register to the CS2Rs that clear it
        self.stretch: dict[int, tuple[int, int]] = {}  # block to its first and last CS2R
        for block in blocks(instructions):
            for index in range(block.start, block.stop):
                one = instructions[index]
                if zeroes_pair(one):
                    self.block[index] = block.start
                    first, _ = self.stretch.get(block.start, (index, index))
                    self.stretch[block.start] = (first, index)
                    self.where |= {(block.start, register): index for register in one.dst}
                    for register in one.dst:
                        self.at.setdefault(register, []).append(index)
        used: set[int] = set()
        for first, last in self.stretch.values():
            for index in range(first, last + 1):
                used.update(webs.reads[index].values())
                if index not in self.block:
                    used.update(webs.writes[index].values())
        self.movable = {
            web
            for web, made in webs.zeros.items()
            if web not in used and len({self.block[index] for index in made}) == len(made)
        }
        self._cores: dict[int, int] = {}

    def core(self, web: int) -> int:
        """Return a web's life without the stretches where zeros are written."""
        found = self._cores.get(web)
        if found is None:
            found = self.webs.live[web]
            if web in self.movable:
                for index in self.webs.zeros[web]:
                    found &= ~bits_between(*self.stretch[self.block[index]])
            self._cores[web] = found
        return found

    def life(self, web: int, register: int) -> int | None:
        """Return when a web lives in a register, None where that is not cleared for it."""
        if web not in self.webs.zeros or self.webs.register[web] == register:
            return self.webs.live[web]
        if web not in self.movable:
            return None
        life = self.core(web)
        for index in self.webs.zeros[web]:
            block = self.block[index]
            cleared = self.where.get((block, register))
            if cleared is None:
                return None
            life |= bits_between(cleared, self.stretch[block][1])
        return life

    def lost(self, web: int, register: int) -> bool:
        """Whether a CS2R that is not meant for a web clears it in a register."""
        clearings = self.at.get(register)
        if not clearings:
            return False
        meant = {self.block[index] for index in self.webs.zeros.get(web, ())}
        life = self.core(web)
        return any(life >> index & 1 for index in clearings if self.block[index] not in meant)


def registers_of(instructions: Iterable[Instruction]) -> int:
    """Return how many registers a kernel names: one more than the highest."""
    return 1 + max((r for one in instructions for r in (*one.dst, *one.reads)), default=0)
