"""What one machine instruction is, once decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["ACCESS_BITS", "Control", "Guard", "Instruction", "Operand"]

ACCESS_BITS = {"U8": 8, "S8": 8, "U16": 16, "S16": 16, "32": 32, "64": 64, "128": 128}
"""Bits a memory instruction moves for each thread, by the name of its size modifier."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The predicate that decides whether an instruction does anything: ``@!P0`` or ``@UP0``."""

    index: int
    negated: bool
    uniform: bool = False

    @property
    def always(self) -> bool:
        """Whether it is ``@PT``, which is not written."""
        return self.index == 7 and not self.negated

    @property
    def never(self) -> bool:
        """Whether it is ``@!PT``: encoded, fetched, and without any effect."""
        return self.index == 7 and self.negated

    def __str__(self) -> str:
        if self.always:
            return ""
        file = "UP" if self.uniform else "P"
        return f"@{'!' if self.negated else ''}{file}{'T' if self.index == 7 else self.index}"


@dataclass(frozen=True, slots=True)
class Control:
    """The scheduling part of an instruction, written by the compiler.

    Parameters
    ----------
    stall : int
        Cycles the warp waits after issuing before it may issue again.
    yields : bool
        Whether the scheduler is advised to turn to another warp.
    write_barrier, read_barrier : int or None
        Which of the warp's six counters is released when the result has been
        written, or the sources have been read.
    wait_mask : int
        Counters that have to be clear before this instruction issues.
    reuse : tuple of bool
        Whether the operand read through slot A, B, C stays in that slot's
        reuse cache for the next instruction.
    """

    stall: int
    yields: bool
    write_barrier: int | None
    read_barrier: int | None
    wait_mask: int
    reuse: tuple[bool, bool, bool]

    @property
    def waits(self) -> tuple[int, ...]:
        """Numbers of the counters waited for."""
        return tuple(i for i in range(6) if self.wait_mask >> i & 1)


@dataclass(frozen=True, slots=True)
class Operand:
    """What one operand slot reads.

    Parameters
    ----------
    slot : {"A", "B", "C"}
        Collector slot; its reuse cache and its reuse flag go by it.
    kind : {"reg", "ureg", "const", "imm"}
        A range of registers, of uniform registers, a constant, a literal.
    value : int
        First register, byte offset in the constant bank, or the literal's 32
        raw bits.
    width : int
        Registers read: 2 for a 64-bit operand; 0 for ``const`` and ``imm``.
    bank : int
        Constant bank; 0 where there is none.
    reuse : bool
        The reuse flag of this slot.
    """

    slot: Literal["A", "B", "C"]
    kind: Literal["reg", "ureg", "const", "imm"]
    value: int
    width: int = 0
    bank: int = 0
    reuse: bool = False

    @property
    def registers(self) -> tuple[int, ...]:
        """Registers read; none for RZ or any other kind."""
        return tuple(range(self.value, self.value + self.width)) if self.kind == "reg" else ()

    def __str__(self) -> str:
        if self.kind == "reg":
            return f"R{self.value}" + (".reuse" if self.reuse else "") if self.width else "RZ"
        if self.kind == "ureg":
            return f"UR{self.value}" if self.width else "URZ"
        if self.kind == "const":
            return f"c[{self.bank:#x}][{self.value:#x}]"
        return f"{self.value:#x}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One decoded instruction.

    Parameters
    ----------
    address : int
        Byte offset from the kernel's first instruction.
    opcode : int
        The 12 opcode bits, among them the form (which slot holds what is not a
        register).
    mnemonic : str
        Such as ``FFMA``; ``OP_1F0`` where the number is not known here.
    modifiers : tuple of str
        Those that change widths or meaning for a reader of GEMM loops, such as
        ``("128",)`` of LDS.128; not everything nvdisasm prints.
    guard : Guard
        The predicate it runs under.
    dst, udst : tuple of int
        Registers and uniform registers written.
    dst_predicates : tuple of int
        Predicates written.
    srcs : tuple of Operand
        What it reads, in slot order; the address of a memory access is slot A.
    offset : int or None
        Constant byte offset of a memory access.
    target : int or None
        Address a branch leads to.
    control : Control
        Its scheduling part.
    raw : int
        All 128 bits.
    known : bool
        Whether `mnemonic` and the operands are known; otherwise they are empty.
    """

    address: int
    opcode: int
    mnemonic: str
    modifiers: tuple[str, ...]
    guard: Guard
    dst: tuple[int, ...]
    udst: tuple[int, ...]
    dst_predicates: tuple[int, ...]
    srcs: tuple[Operand, ...]
    offset: int | None
    target: int | None
    control: Control
    raw: int
    known: bool

    def at(self, address: int) -> Instruction:
        """Return it at another address, in less time than `dataclasses.replace` takes.

        A branch's target stays, so that its bits are no longer those that lead there.
        """
        return Instruction(
            address, self.opcode, self.mnemonic, self.modifiers, self.guard, self.dst, self.udst,
            self.dst_predicates, self.srcs, self.offset, self.target, self.control, self.raw,
            self.known,
        )  # fmt: skip

    @property
    def reads(self) -> frozenset[int]:
        """Every register it reads."""
        return frozenset(r for operand in self.srcs for r in operand.registers)

    @property
    def ureads(self) -> frozenset[int]:
        """Every uniform register it reads."""
        return frozenset(
            r
            for operand in self.srcs
            if operand.kind == "ureg"
            for r in range(operand.value, operand.value + operand.width)
        )

    @property
    def name(self) -> str:
        """Mnemonic with the modifiers kept here."""
        return ".".join((self.mnemonic, *self.modifiers))

    @property
    def access_bits(self) -> int | None:
        """Bits that a load or store moves for each thread; None for anything else."""
        for modifier in self.modifiers:
            if modifier in ACCESS_BITS and self.offset is not None:
                return ACCESS_BITS[modifier]
        return None

    def __str__(self) -> str:
        parts = []
        if self.dst:
            parts.append(f"R{self.dst[0]}")
        if self.udst:
            parts.append(f"UR{self.udst[0]}")
        parts += [f"P{p}" for p in self.dst_predicates]
        parts += [str(operand) for operand in self.srcs]
        if self.offset:
            parts.append(f"+{self.offset:#x}" if self.offset > 0 else f"-{-self.offset:#x}")
        if self.target is not None:
            parts.append(f"{self.target:#x}")
        guard = f"{self.guard} " if str(self.guard) else ""
        return f"{guard}{self.name} {', '.join(parts)}".rstrip()
