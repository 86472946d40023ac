"""Register ports: when an instruction's operands can be fetched, as measured on sm_90.

    slot        A   B   C         each instruction reads through three slots
    bank E     [ ] [ ] [ ]        registers of even number     one read a cycle
    bank O     [ ] [ ] [ ]        registers of odd number      one read a cycle

- Each slot has one latch a bank.  An operand is read into its latch and stays there until its
  instruction is dispatched; a flag keeps it there for later ones (the reuse cache).
- The three oldest instructions that are not dispatched yet may read.  Each cycle a bank serves the
  oldest of them that has something to read there and finds the latch free: no older instruction in
  the window uses it.  One that is blocked does not block younger ones.
- Dispatch is in order, one a cycle, once nothing is left to read.
- RZ takes no read and no latch; a hit in the reuse cache takes the latch but no read; a register
  named in several slots is read once, unless it is kept in every one of them.
- A latch forgets its reuse copy with the next read through it that has no flag, when the register
  is written (three and four cycles after the dispatch of what writes it), and when the scheduler
  turns to another warp or the instruction advises it to.
- How tensor cores read doubles (DMMA) is not known; it is taken to be in nobody's way.

Found on an H100 with loops of 512 FFMA whose register fields were written into a compiled cubin;
``docs/register_ports.md`` has the data and how far each part of the rule is borne out by them.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.sass.instruction import Instruction
from tilewright.sass.pipes import pipe_of

__all__ = [
    "LATCHES",
    "NOTHING",
    "NO_REGISTER",
    "PortUse",
    "Ports",
    "Reads",
    "Window",
    "port_use",
    "reads_of",
]

_ARCH = 90  # whose rule it is
WINDOW = 3  # instructions that read at a time; 2 and 4 predict ten times as many loops wrongly
WRITES = (3, 4)  # cycles after its dispatch in which an instruction's result drops kept copies
# No loop of these was measured; each keeps its pipe for longer than it could read.
_UNKNOWN = frozenset(("DMMA",))

# A latch is 2 * slot + bank; what it keeps is a register, or none.
LATCHES, NO_REGISTER = 6, -1

Reads = tuple[tuple[int, ...], tuple[int, ...], tuple[bool, ...]]
"""Of each register read: the slot, the register, and whether it is flagged for reuse."""
NOTHING: Reads = ((), (), ())


@dataclass(frozen=True)
class PortUse:
    """Operand fetch of one instruction in a loop's steady state, one warp alone.

    Parameters
    ----------
    cycles : int
        From the previous instruction's dispatch to this one's.
    reads : tuple of int
        Registers read from each bank.
    hits : int
        Operands found in their latch.
    missed_reuse : int
        Operands that the same latch held before, but not for this instruction.
    """

    cycles: int
    reads: tuple[int, int]
    hits: int = 0
    missed_reuse: int = 0


class Window:
    """The instructions that read their operands, what latches keep, and what dispatch will drop.

    On tuples of numbers, fast enough for tens of thousands of stretches in a search.

    Attributes
    ----------
    times : list of int
        When each instruction was dispatched.
    missing : set of int
        Registers that the newest one has to read.
    """

    def __init__(self) -> None:
        self.times: list[int] = []
        self.missing: set[int] = set()
        # Of each: sets of latches still to be read by bank, its latches, registers it writes.
        self._waiting: list[tuple[tuple[list[int], list[int]], int, tuple[int, ...]]] = []
        self._cycle = 0
        self._written: deque[tuple[int, tuple[int, ...]]] = deque()
        self._kept = [NO_REGISTER] * LATCHES

    def issue(
        self, reads: Reads, written: tuple[int, ...], when: int, switched: bool, yields: bool
    ) -> int:
        """Return the cycle, `when` or later, in which an instruction enters; see `Ports.issue`."""
        waiting = self._waiting
        while self._cycle < when and waiting:
            self._tick()
        if self._cycle < when:
            self._cycle = when
        while len(waiting) >= WINDOW:
            self._tick()
        if switched:
            self._kept = [NO_REGISTER] * LATCHES
        if self._written:
            self._drop_written()
        waiting.append(self._looked_up(reads, written))
        if yields:
            self._kept = [NO_REGISTER] * LATCHES
        return self._cycle

    def drained(self) -> int:
        """Let the window run empty; return the cycle in which that is done."""
        while self._waiting:
            self._tick()
        return self._cycle

    def _tick(self) -> None:
        """Serve each bank once, then dispatch the oldest instruction if it has all it needs."""
        waiting = self._waiting
        for bank in (0, 1):
            taken = 0
            for pending, latches, _ in waiting:
                mine = pending[bank]
                served = False
                for place, through in enumerate(mine):
                    if not through & taken:
                        del mine[place]
                        served = True
                        break
                if served:
                    break
                taken |= latches
        (even, odd), _, written = waiting[0]
        if not even and not odd:
            self.times.append(self._cycle)
            if written:
                self._written.append((self._cycle, written))
            del waiting[0]
        self._cycle += 1

    def _drop_written(self) -> None:
        """Forget kept copies of registers whose new value has arrived by now.

        Copies are made by `issue` only, so it is enough to look before each.
        """
        written, kept = self._written, self._kept
        while written and written[0][0] + WRITES[0] <= self._cycle:
            when, registers = written[0]
            for latch in range(LATCHES):
                if kept[latch] in registers:
                    kept[latch] = NO_REGISTER
            if self._cycle < when + WRITES[1]:
                return  # a copy made in this cycle is still dropped in the next one
            written.popleft()

    def _looked_up(
        self, reads: Reads, written: tuple[int, ...]
    ) -> tuple[tuple[list[int], list[int]], int, tuple[int, ...]]:
        """Look operands up in the latches; keep what is flagged, forget what is read over."""
        slots, registers, flags = reads
        wanted: dict[int, int] = {}
        kept = self._kept
        latches, missing = 0, set()
        for slot, register in zip(slots, registers, strict=True):
            latch = 2 * slot + (register & 1)
            latches |= 1 << latch
            wanted[register] = wanted.get(register, 0) | 1 << latch
            if kept[latch] != register:
                missing.add(register)
        for slot, register, keep in zip(slots, registers, flags, strict=True):
            kept[2 * slot + (register & 1)] = register if keep else NO_REGISTER
        pending: tuple[list[int], list[int]] = ([], [])
        for register, through in wanted.items():
            if register in missing:
                pending[register & 1].append(through)
        self.missing = missing
        return pending, latches, written


def reads_of(instruction: Instruction) -> Reads:
    """Return what an instruction reads through its slots."""
    every = [(operand, r) for operand in instruction.srcs for r in operand.registers]
    return (
        tuple("ABC".index(operand.slot) for operand, _ in every),
        tuple(register for _, register in every),
        tuple(operand.reuse for operand, _ in every),
    )


class Ports:
    """Register ports of one scheduler.

    Parameters
    ----------
    apart : bool
        Whether memory instructions read their registers by another way, which
        neither takes a port nor touches a latch (`tilewright.sass.Machine`).
    """

    def __init__(self, apart: bool = False) -> None:
        self._apart = apart
        # A loop's instructions come again and again.
        self._reads: dict[int, tuple[Instruction, Reads]] = {}
        self.window = Window()
        self.drained = self.window.drained

    def issue(self, instruction: Instruction, when: int, switched: bool = False) -> int:
        """Return the cycle, `when` or later, in which an instruction enters the window.

        Parameters
        ----------
        instruction : Instruction
            The next one that the scheduler issues.
        when : int
            The first cycle in which nothing else stands against it; calls
            come in order, no two in one cycle.
        switched : bool
            Whether the scheduler served another warp before.
        """
        yields = instruction.control.yields
        return self.window.issue(self.reads(instruction), instruction.dst, when, switched, yields)

    def reads(self, instruction: Instruction) -> Reads:
        """Return what an instruction reads through ports."""
        known = self._reads.get(id(instruction))
        if known is None or known[0] is not instruction:
            memory = self._apart and pipe_of(instruction, _ARCH)[0] == "memory"
            none = memory or instruction.mnemonic in _UNKNOWN
            known = instruction, NOTHING if none else reads_of(instruction)
            self._reads[id(instruction)] = known
        return known[1]


def port_use(body: Sequence[Instruction], apart: bool = False) -> list[PortUse]:
    """Return the port use of each instruction of a loop in its steady state; see `Ports`."""
    ports = Ports(apart)
    last = -1
    before: dict[int, int] = {}  # by latch, the register that was read through it last
    found: list[tuple[tuple[int, int], int, int]] = []
    # Trips before the last one fill the latches, and the window until it is the same each trip.
    for _ in range(2 + 4 * WINDOW // len(body)):
        found = []
        for instruction in body:
            last = ports.issue(instruction, last + 1)
            slots, registers, _ = ports.reads(instruction)
            latches = [2 * slot + r % 2 for slot, r in zip(slots, registers, strict=True)]
            missing = ports.window.missing
            odd = sum(r % 2 for r in missing)
            hits = sum(r not in missing for r in registers)
            again = [
                r in missing and before.get(x) == r for x, r in zip(latches, registers, strict=True)
            ]
            found.append(((len(missing) - odd, odd), hits, sum(again)))
            before.update(zip(latches, registers, strict=True))
    ports.drained()
    times = itertools.pairwise(ports.window.times[-len(body) - 1 :])
    return [PortUse(now - earlier, *use) for use, (earlier, now) in zip(found, times, strict=True)]
