"""Give a loop's sums registers in the banks that their neighbours' operands leave free.

A bank serves one read a cycle, so that an FFMA whose product comes from one bank wants its sum in
the other one (`tilewright.sass.ports`).  The search looks at instructions that dispatch late, and
exchanges what they read with a register of the other bank (`tilewright.sass.rename`), together
with whatever has to move for that; it keeps what takes cycles away.  Factors stay as they lie:
their loads fill four registers in a row, two of each bank.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from tilewright.sass.dependencies import Block
from tilewright.sass.fetch import Op, cycles, flagged, op_of, slow
from tilewright.sass.instruction import Instruction
from tilewright.sass.rename import Moves, Renaming, registers_of
from tilewright.sass.reuse import settable, with_flags
from tilewright.sass.webs import find_webs

__all__ = ["with_banks"]

# Instructions before a change that set the latches, behind it until fetch is the same again, and
# behind that until reuse flags are.
_BEFORE, _BEHIND, _FLAGS = 8, 14, 12
_NEAR = 4  # instructions before a late one that may have kept it waiting
_TRIES = 10  # registers tried for each web
_MANY = 24  # webs that one change moves: with more, something gets worse


class _Search:
    """The loop's blocks as operand fetch sees them, and which webs their reads name."""

    def __init__(
        self, kernel: Sequence[Instruction], spans: Sequence[Block], arch: int, apart: bool
    ) -> None:
        webs = find_webs(kernel)
        self.renaming = Renaming(kernel, webs, registers_of(kernel))
        self.apart = apart
        places = [i for span in spans for i in range(span.start, span.stop)]
        self.ops: list[Op] = []
        self.named: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        self.at: dict[int, list[int]] = {}
        for place, index in enumerate(places):
            one = kernel[index]
            op = op_of(one, settable(one), arch)
            reads = webs.reads[index]
            read = tuple(reads.get(r, -1) for r in op.registers)
            written = tuple(webs.writes[index].get(r, -1) for r in op.written)
            self.ops.append(op)
            self.named.append((read, written))
            for web in (*read, *written):
                self.at.setdefault(web, []).append(place)

    def cost(self, ops: Sequence[Op]) -> int:
        """Return the cycles of a stretch."""
        return cycles(ops, flagged(ops), self.apart)

    def near(self, stretches: Iterable[tuple[int, int]]) -> int:
        """Return the cycles of some stretches, each by itself."""
        total = 0
        for first, last in stretches:
            ops = self.ops[first : last + _FLAGS]
            flags = flagged(ops)
            total += cycles(ops[: last - first], flags[: last - first], self.apart)
        return total

    def stretches(self, moves: Moves) -> list[tuple[int, int]]:
        """Return where the loop fetches differently once these webs have moved."""
        now = self.renaming.register
        places = sorted(
            {
                place
                for web, register in moves.items()
                if (register ^ now[web]) & 1
                for place in self.at.get(web, ())
                if web in self.named[place][0]
            }
        )
        found: list[tuple[int, int]] = []
        for place in places:
            first, last = max(0, place - _BEFORE), min(len(self.ops), place + _BEHIND)
            if found and first <= found[-1][1]:
                found[-1] = (found[-1][0], last)
            else:
                found.append((first, last))
        return found

    def take(self, moves: Moves) -> Moves:
        """Move webs; return what takes it back."""
        back = self.renaming.take(moves)
        register = self.renaming.register
        for web in moves:
            for place in self.at.get(web, ()):
                op, (read, written) = self.ops[place], self.named[place]
                self.ops[place] = op._replace(
                    registers=tuple(
                        register[w] if w >= 0 else r
                        for w, r in zip(read, op.registers, strict=True)
                    ),
                    written=tuple(
                        register[w] if w >= 0 else r
                        for w, r in zip(written, op.written, strict=True)
                    ),
                )
        return back

    def late(self) -> list[int]:
        """Return the instructions that dispatch late."""
        return slow(self.ops, flagged(self.ops), self.apart)

    def mend(self, place: int, draw: random.Random) -> bool:
        """Try other banks for what is read near a late instruction; keep the first gain."""
        near = range(max(0, place - _NEAR), min(len(self.ops), place + 1))
        webs = [w for at in near for w in self.named[at][0] if w >= 0]
        draw.shuffle(webs)
        for web in dict.fromkeys(webs):
            if len(self.renaming.webs.members[self.renaming.webs.body[web]]) > 1:
                continue
            bank = self.renaming.register[web] & 1
            others = range(1 - bank, self.renaming.count, 2)
            for register in draw.sample(others, min(_TRIES, len(others))):
                moves = self.renaming.exchange(web, register)
                if moves and len(moves) <= _MANY and self._gains(moves):
                    return True
        return False

    def _gains(self, moves: Moves) -> bool:
        stretches = self.stretches(moves)
        before = self.near(stretches)
        back = self.take(moves)
        if self.near(stretches) < before:
            return True
        self.take(back)
        return False


def with_banks(
    kernel: Sequence[Instruction],
    spans: Sequence[Block],
    arch: int,
    draw: random.Random,
    rounds: int,
    apart: bool = False,
) -> tuple[list[Instruction], int]:
    """Return a kernel with registers renamed for its loop's sake, and the webs that moved.

    Parameters
    ----------
    kernel : sequence of Instruction
        The whole kernel.
    spans : sequence of Block
        The loop's blocks, as indices into the kernel.
    arch : int
        Architecture number.
    draw : random.Random
        Decides what is tried first.
    rounds : int
        How often the search goes over all late instructions.
    apart : bool
        Whether memory instructions leave the operands' latches alone.

    Raises
    ------
    RefusedError
        If the kernel has an instruction that is not modelled.
    """
    search = _Search(kernel, spans, arch, apart)
    before = search.cost(search.ops)
    for _ in range(rounds):
        late = search.late()
        draw.shuffle(late)
        if not sum(search.mend(place, draw) for place in late):
            break
    if search.cost(search.ops) >= before:
        return list(kernel), 0
    made = search.renaming.instructions(arch)
    for span in spans:
        made[span.start : span.stop] = with_flags(made[span.start : span.stop], arch)
    return made, search.renaming.renamed
