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

__all__ = ["PortUse", "Ports", "port_use"]

_ARCH = 90  # whose rule it is
WINDOW = 3  # instructions that read at a time; 2 and 4 predict ten times as many loops wrongly
WRITES = (3, 4)  # cycles after its dispatch in which an instruction's result drops kept copies
# No loop of these was measured; each keeps its pipe for longer than it could read.
_UNKNOWN = frozenset(("DMMA",))
# A latch by its slot, and by the bank of a register read through it.
_LATCHES = {"A": (0, 1), "B": (2, 3), "C": (4, 5)}


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


@dataclass(frozen=True, slots=True)
class _Reads:
    """What an instruction reads, whatever the latches hold; sets of latches have a bit for each.

    `registers` has each register with its latches, and them as a set; `flags` every latch with its
    register and whether that is kept there.
    """

    instruction: Instruction
    registers: tuple[tuple[int, tuple[int, ...], int], ...]
    flags: tuple[tuple[int, int, bool], ...]
    latches: int

    @classmethod
    def of(cls, instruction: Instruction, none: bool) -> _Reads:
        """Return an instruction's reads; `none` if they take no port."""
        wanted: dict[int, list[int]] = {}
        flags = []
        for operand in () if none else instruction.srcs:
            for register in operand.registers:
                latch = _LATCHES[operand.slot][register % 2]
                flags.append((latch, register, operand.reuse))
                wanted.setdefault(register, []).append(latch)
        registers = tuple((r, tuple(x), sum({1 << y for y in x})) for r, x in wanted.items())
        return cls(instruction, registers, tuple(flags), sum({1 << at for at, _, _ in flags}))


@dataclass(slots=True)
class _Fetch:
    """An instruction in the window: sets of latches it still has to read, by bank; its own."""

    even: list[int]
    odd: list[int]
    latches: int
    writes: tuple[int, ...]
    reads: tuple[int, int]
    hits: int
    missed: int
    dispatched: int = -1


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
        self._cycle = 0
        self._window: list[_Fetch] = []
        self._kept: dict[int, int] = {}
        self._before: dict[int, int] = {}
        self._reads: dict[int, _Reads] = {}  # a loop's instructions come again and again
        self._written: deque[tuple[int, tuple[int, ...]]] = deque()
        self.newest: _Fetch

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
        self._advance(when)
        while len(self._window) >= WINDOW:
            self._tick()
        if switched:
            self._kept.clear()
        self._drop_written()
        self.newest = self._decode(self._reads_of(instruction))
        self._window.append(self.newest)
        if instruction.control.yields:
            self._kept.clear()
        return self._cycle

    def drained(self) -> int:
        """Let the window run empty; return the cycle in which that is done."""
        while self._window:
            self._tick()
        return self._cycle

    def _advance(self, when: int) -> None:
        while self._cycle < when and self._window:
            self._tick()
        self._cycle = max(self._cycle, when)

    def _tick(self) -> None:
        """Serve each bank once, then dispatch the oldest instruction if it has all it needs."""
        taken = 0
        for fetch in self._window:
            if fetch.even and _serve(fetch.even, taken):
                break
            taken |= fetch.latches
        taken = 0
        for fetch in self._window:
            if fetch.odd and _serve(fetch.odd, taken):
                break
            taken |= fetch.latches
        oldest = self._window[0]
        if not oldest.even and not oldest.odd:
            oldest.dispatched = self._cycle
            if oldest.writes:
                self._written.append((self._cycle, oldest.writes))
            del self._window[0]
        self._cycle += 1

    def _drop_written(self) -> None:
        """Forget kept copies of registers whose new value has arrived by now.

        Copies are made by `issue` only, so it is enough to look before each.
        """
        while self._written and self._written[0][0] + WRITES[0] <= self._cycle:
            when, registers = self._written[0]
            for latch in [at for at, kept in self._kept.items() if kept in registers]:
                del self._kept[latch]
            if self._cycle < when + WRITES[1]:
                break  # a copy made in this cycle is still dropped in the next one
            self._written.popleft()

    def _reads_of(self, instruction: Instruction) -> _Reads:
        known = self._reads.get(id(instruction))
        if known is None or known.instruction is not instruction:
            memory = self._apart and pipe_of(instruction, _ARCH)[0] == "memory"
            known = _Reads.of(instruction, memory or instruction.mnemonic in _UNKNOWN)
            self._reads[id(instruction)] = known
        return known

    def _decode(self, reads: _Reads) -> _Fetch:
        """Look operands up in the latches; keep what is flagged, forget what is read over."""
        kept, before = self._kept, self._before
        hits = missed = 0
        pending: tuple[list[int], list[int]] = ([], [])
        for register, through, latches in reads.registers:
            for latch in through:
                if kept.get(latch) != register:
                    for each in through:
                        missed += before.get(each) == register
                    pending[register & 1].append(latches)
                    break
            else:
                hits += len(through)
        for latch, register, keep in reads.flags:
            before[latch] = register
            if keep:
                kept[latch] = register
            else:
                kept.pop(latch, None)
        even, odd = pending
        counts = len(even), len(odd)
        return _Fetch(even, odd, reads.latches, reads.instruction.dst, counts, hits, missed)


def _serve(pending: list[int], taken: int) -> bool:
    """Read the first register whose latches are all free; return whether there was one."""
    for index, through in enumerate(pending):
        if not taken & through:
            del pending[index]
            return True
    return False


def port_use(body: Sequence[Instruction], apart: bool = False) -> list[PortUse]:
    """Return the port use of each instruction of a loop in its steady state; see `Ports`."""
    ports = Ports(apart)
    last = -1
    fetches: list[_Fetch] = []
    # Trips before the last one fill the latches, and the window until it is the same each trip.
    for _ in range(2 + 4 * WINDOW // len(body)):
        before = fetches[-1:]
        fetches = []
        for instruction in body:
            last = ports.issue(instruction, last + 1)
            fetches.append(ports.newest)
    ports.drained()
    times = [fetch.dispatched for fetch in before + fetches]
    spans = [now - earlier for earlier, now in itertools.pairwise(times)]
    return [
        PortUse(span, f.reads, f.hits, f.missed) for f, span in zip(fetches, spans, strict=True)
    ]
