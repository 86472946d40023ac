"""Register-bank ports: how many cycles an instruction takes to fetch its operands.

Measured (FFMA loops on an H100 with operands permuted and reuse flags set by hand, 2026-11): the
reuse cache keeps one entry for each operand slot and bank; without reuse flags an FFMA loop falls
to about half of peak.  Assumed: two banks, even and odd register numbers, each read once a cycle;
that an entry stays until another register is read through its slot and bank; that only FFMA-like
instructions on 32-bit registers compete for ports.  As a model of whole kernels it was calibrated
on two kernels and does not yet rank kernels whose warps take turns.  `PortRule` is the seam: a
measured rule replaces `TwoBanks` without a change elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tilewright.sass.instruction import Instruction, Operand

__all__ = ["PortRule", "PortUse", "TwoBanks"]

# Instructions of the FMA and ALU pipes that issue once a cycle and read up to three registers.
_COMPETING = frozenset(("FFMA", "FMUL", "FADD"))


@dataclass(frozen=True)
class PortUse:
    """What fetching the operands of one instruction took.

    Parameters
    ----------
    cycles : int
        Issue cycles, 1 without a conflict.
    reads : tuple of int
        Registers read from each bank.
    hits : int
        Operands found in a reuse cache.
    missed_reuse : int
        Operands that an earlier instruction read through the same slot and
        bank, and that a reuse flag there would have kept.
    """

    cycles: int
    reads: tuple[int, ...]
    hits: int = 0
    missed_reuse: int = 0


class PortRule(Protocol):
    """How operand fetch costs issue cycles."""

    @property
    def name(self) -> str:
        """What a report calls the rule."""
        ...

    def walk(self, body: Sequence[Instruction]) -> list[PortUse]:
        """Return the port use of each instruction of a loop in its steady state."""
        ...


@dataclass(frozen=True)
class TwoBanks:
    """Banks by register number modulo `banks`, `reads_a_cycle` reads each, one reuse entry a slot.

    With ``reuse_across_yield`` off, an instruction that lets the scheduler
    turn to another warp empties the caches.
    """

    banks: int = 2
    reads_a_cycle: int = 1
    reuse_across_yield: bool = True

    @property
    def name(self) -> str:
        """What a report calls the rule."""
        return f"{self.banks} banks, {self.reads_a_cycle} read each a cycle"

    def walk(self, body: Sequence[Instruction]) -> list[PortUse]:
        """Return the port use of each instruction; the loop runs once first to fill the caches."""
        kept: dict[tuple[str, int], int] = {}
        seen: dict[tuple[str, int], int] = {}
        for instruction in body:
            self._step(instruction, kept, seen)
        return [self._step(instruction, kept, seen) for instruction in body]

    def _step(
        self,
        instruction: Instruction,
        kept: dict[tuple[str, int], int],
        seen: dict[tuple[str, int], int],
    ) -> PortUse:
        reads = [0] * self.banks
        hits = missed = 0
        fetched: set[int] = set()
        for operand in instruction.srcs:
            for register in operand.registers:
                entry = (operand.slot, register % self.banks)
                if kept.get(entry) == register:
                    hits += 1
                elif register not in fetched:  # one read serves two slots of one instruction
                    reads[register % self.banks] += 1
                    fetched.add(register)
                    missed += seen.get(entry) == register
                seen[entry] = register
                self._keep(operand, register, entry, kept)
        if not self.reuse_across_yield and instruction.control.yields:
            kept.clear()
        cycles = 1
        if instruction.mnemonic in _COMPETING:
            cycles = max(1, *(-(-count // self.reads_a_cycle) for count in reads))
        return PortUse(cycles, tuple(reads), hits, missed)

    def _keep(
        self,
        operand: Operand,
        register: int,
        entry: tuple[str, int],
        kept: dict[tuple[str, int], int],
    ) -> None:
        if operand.reuse:
            kept[entry] = register
        else:
            kept.pop(entry, None)


class Ports:
    """Register ports of one scheduler as they were measured on sm_90; see the module's text.

    Keeps, for each bank, the cycle from which it has nothing more to read, and
    the reuse caches.
    """

    def __init__(self) -> None:
        self._free = [0.0, 0.0]
        self._kept: dict[tuple[str, int], int] = {}

    def dispatch(self, instruction: Instruction, when: float, switched: bool) -> float:
        """Return the cycle, `when` or later, in which an instruction's operands can be fetched.

        Parameters
        ----------
        instruction : Instruction
            What is issued.
        when : float
            The cycle in which nothing else stands against it.
        switched : bool
            Whether the scheduler served another warp before: its operands are
            no longer in the reuse caches.
        """
        if switched:
            self._kept.clear()
        reads = self._reads(instruction)
        for bank, count in enumerate(reads):
            if count > 1:
                when = max(when, self._free[bank])
        for bank, count in enumerate(reads):
            if count:
                self._free[bank] = max(self._free[bank], when) + count
        if instruction.control.yields:
            self._kept.clear()
        return when

    def _reads(self, instruction: Instruction) -> tuple[int, int]:
        reads = [0, 0]
        fetched: set[int] = set()
        for operand in instruction.srcs:
            for register in operand.registers:
                entry = (operand.slot, register % 2)
                if self._kept.get(entry) != register and register not in fetched:
                    fetched.add(register)
                    reads[register % 2] += 1
                if operand.reuse:
                    self._kept[entry] = register
                else:
                    self._kept.pop(entry, None)
        return reads[0], reads[1]
