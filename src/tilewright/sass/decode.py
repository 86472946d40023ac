"""Decode NVIDIA's 128-bit machine code into `Instruction` objects.

Fields common to all instructions: opcode [11:0], guard predicate [14:12] with its negation [15],
D [23:16], A [31:24], B [39:32], C [71:64], bit 91 (an operand is in a uniform register), and the
scheduling field: stall [108:105], "keep issuing" [109], write barrier [112:110], read barrier
[115:113], wait mask [121:116], reuse flags of slots A, B, C [122] [123] [124].  They were compared
with nvdisasm on sm_75 to sm_120 (``tests/sass``); sm_70 has the same layout as sm_75 but today's
nvdisasm no longer reads it, so it is assumed.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tilewright.sass.instruction import Control, Guard, Instruction, Operand
from tilewright.sass.opcodes import Op, find_op
from tilewright.sass.widths import Widths, widths_and_modifiers

__all__ = ["INSTRUCTION_BYTES", "OLDEST", "controls", "decode", "decode_one", "opcodes"]

INSTRUCTION_BYTES = 16
OLDEST = 70  # Volta: before it, instructions were 64 bits with control words of their own.
RZ = 255  # reads as zero, forgets what is written
PT = 7  # the predicate that is always true
_UNIFORM_REGISTER_BITS_SINCE = 100  # sm_100 widened uniform register numbers from 6 to 8 bits
_SPLIT_BRANCH_SINCE = 90  # sm_90 put the low byte of a branch offset where D was

# The scheduling field: its lowest bit, and as many as there are up to the reuse flags' highest.
_CONTROL_AT, _CONTROL_MASK = 105, (1 << 20) - 1

# Layouts that write uniform registers, that keep something else where D is, and that have a
# constant byte offset.
_TO_UNIFORM = frozenset(("uniform", "uconstant", "uspecial", "to_uniform"))
_NO_DESTINATION = _TO_UNIFORM | {"copy", "branch", "udma"}
_WITH_OFFSET = frozenset(("load", "store", "copy"))

# What slots hold but registers, by the form.
_KINDS = {"B": {4: "imm", 5: "const", 6: "ureg"}, "C": {2: "imm", 3: "const", 7: "ureg"}}

Words = npt.NDArray[np.uint64]


def decode(code: bytes, arch: int) -> tuple[Instruction, ...]:
    """Decode a kernel's machine code.

    Parameters
    ----------
    code : bytes
        Contents of a ``.text`` section: a multiple of 16 bytes.
    arch : int
        Architecture number, such as 90.

    Raises
    ------
    ValueError
        If the architecture is older than sm_70 or the length is no multiple
        of 16.
    """
    words = _words(code, arch)
    fields = controls(words)
    return tuple(
        decode_one(low | high << 64, INSTRUCTION_BYTES * index, arch, control)
        for index, ((low, high), control) in enumerate(zip(words.tolist(), fields, strict=True))
    )


def opcodes(code: bytes, arch: int) -> npt.NDArray[np.uint64]:
    """Return the 12-bit opcodes of a kernel's machine code, for counting without decoding."""
    return _words(code, arch)[:, 0] & np.uint64(0xFFF)


def _words(code: bytes, arch: int) -> Words:
    if arch < OLDEST:
        raise ValueError(
            f"arch=sm_{arch} has another instruction format; compile for sm_70 or later"
        )
    if len(code) % INSTRUCTION_BYTES:
        raise ValueError(
            f"code={len(code)} bytes is no multiple of 16, an instruction's length; give whole ones"
        )
    return np.frombuffer(code, dtype="<u8").reshape(-1, 2)


def controls(words: Words) -> list[Control]:
    """Return the scheduling field of every instruction of an (n, 2) array of 64-bit words."""
    fields = words[:, 1] >> np.uint64(_CONTROL_AT - 64) & np.uint64(_CONTROL_MASK)
    return [_control(field) for field in fields.tolist()]


@lru_cache(maxsize=1 << 12)  # of 56 kernels there were 928
def _control(field: int) -> Control:
    """Return what the scheduling field, from its lowest bit on, says."""
    write, read, reuse = field >> 5 & 7, field >> 8 & 7, field >> 17
    return Control(
        stall=field & 15,
        yields=not field >> 4 & 1,
        write_barrier=None if write == 7 else write,
        read_barrier=None if read == 7 else read,
        wait_mask=field >> 11 & 63,
        reuse=(bool(reuse & 1), bool(reuse & 2), bool(reuse & 4)),
    )


@lru_cache(maxsize=32)  # all there are
def _guard(field: int, uniform: bool) -> Guard:
    return Guard(field & 7, bool(field >> 3), uniform)


def decode_one(raw: int, address: int, arch: int, control: Control | None = None) -> Instruction:
    """Decode one instruction from its 128 bits."""
    if control is None:
        control = _control(raw >> _CONTROL_AT & _CONTROL_MASK)
    opcode = raw & 0xFFF
    op = find_op(opcode, arch)
    if op is None:
        name, guard = f"OP_{opcode:03X}", _guard(raw >> 12 & 15, False)
        return Instruction(
            address, opcode, name, (), guard, (), (), (), (), None, None, control, raw, False
        )
    layout = op.layout
    widths, modifiers = widths_and_modifiers(raw, op, arch)
    reader = _Reader(raw, arch, control.reuse, op, widths)
    return Instruction(
        address,
        opcode,
        op.mnemonic,
        modifiers,
        _guard(raw >> 12 & 15, layout == "uniform"),
        () if layout in _NO_DESTINATION else reader.destination(),
        reader.uniform_destination() if layout in _TO_UNIFORM else (),
        reader.predicates() if op.predicates else (),
        reader.sources(),
        reader.offset() if layout in _WITH_OFFSET else None,
        reader.target(address) if layout == "branch" else None,
        control,
        raw,
        True,
    )


def _signed(value: int, bits: int) -> int:
    """Read a two's complement field."""
    return value - (1 << bits) if value >> bits - 1 else value


@lru_cache(maxsize=1 << 13)  # the same few thousand again and again
def _register(slot: str, number: int, width: int, reuse: bool) -> Operand:
    return Operand(slot, "reg", number, width, reuse=reuse)  # type: ignore[arg-type]


@lru_cache(maxsize=1 << 12)
def _numbers(first: int, width: int) -> tuple[int, ...]:
    return tuple(range(first, first + width))


class _Reader:
    """Reads the operand fields of one instruction whose operation is known."""

    def __init__(
        self, raw: int, arch: int, reuse: tuple[bool, bool, bool], op: Op, widths: Widths
    ) -> None:
        self.raw, self.arch, self.reuse, self.op, self.widths = raw, arch, reuse, op, widths
        self.form = raw >> 9 & 7
        self.uniform_bits = 8 if arch >= _UNIFORM_REGISTER_BITS_SINCE else 6

    def _field(self, low: int, count: int = 8) -> int:
        return self.raw >> low & ((1 << count) - 1)

    def _uniform(self, low: int, width: int, slot: str = "B") -> Operand:
        number = self._field(low, self.uniform_bits)
        none = number == (1 << self.uniform_bits) - 1
        return Operand(slot, "ureg", number, 0 if none else width)  # type: ignore[arg-type]

    def _register(self, slot: str, low: int, width: int) -> Operand:
        number = self.raw >> low & 0xFF
        return _register(slot, number, 0 if number == RZ else width, self.reuse["ABC".index(slot)])

    def _constant(self, slot: str) -> Operand:
        return Operand(slot, "const", self._field(38, 16), bank=self._field(54, 5))  # type: ignore[arg-type]

    def destination(self) -> tuple[int, ...]:
        """Return the registers written, of a layout that has them in D."""
        first = self.raw >> 16 & 0xFF
        return () if first == RZ else _numbers(first, self.widths[0])

    def uniform_destination(self) -> tuple[int, ...]:
        """Uniform registers written, of a layout that does."""
        first = self._field(16, self.uniform_bits)
        none = first == (1 << self.uniform_bits) - 1
        return () if none else _numbers(first, self.widths[0])

    def predicates(self) -> tuple[int, ...]:
        """Predicates written, at [83:81] and [86:84]; PT there means none."""
        fields = (self._field(81, 3), self._field(84, 3))[: self.op.predicates]
        return tuple(p for p in fields if p != PT)

    def offset(self) -> int:
        """Signed byte offset of a memory access; the shared one of a copy from global memory."""
        copies = self.op.layout == "copy"
        return _signed(self._field(44, 20), 20) if copies else _signed(self._field(40, 24), 24)

    def target(self, address: int) -> int | None:
        """Address a branch leads to; None for one through a register."""
        if self.op.mnemonic == "RET":
            return None
        if self.op.mnemonic == "BSSY":  # a reconvergence point, in bytes
            distance = _signed(self._field(32, 32), 32)
        elif self.arch >= _SPLIT_BRANCH_SINCE:
            distance = 4 * _signed(self._field(34, 48) << 8 | self._field(16), 56)
        else:
            distance = 4 * _signed(self._field(34, 48), 48)
        return address + INSTRUCTION_BYTES + distance  # counted from the next instruction

    def sources(self) -> tuple[Operand, ...]:
        """Operands read, in slot order."""
        layout = self.op.layout
        if layout in ("alu", "add", "add_c"):
            return self._arithmetic()
        if layout == "uniform":
            return self._uniform_arithmetic()
        if layout in ("load", "store", "copy", "atomic", "barrier"):
            return self._memory()
        if layout in ("constant", "uconstant"):
            index = (
                (self._register("A", 24, self.widths[1]),)
                if layout == "constant" and self._field(24) != RZ
                else ()
            )
            return (*index, self._constant("B"))
        if layout in ("to_uniform", "branch"):
            return (self._register("A", 24, self.widths[1]),) if self.widths[1] else ()
        if layout == "shuffle":
            return self._shuffle()
        return self._descriptors()

    def _arithmetic(self) -> tuple[Operand, ...]:
        """Return A, B, C; forms 2, 3, 7 put what is no register into C, forms 4, 5, 6 into B."""
        _, a, b, c = self.widths
        found = [self._register("A", 24, a)] if a else []
        swapped = self.form in (2, 3, 7)  # B then lies where C was
        if self.op.mnemonic in ("MOV", "SEL") and self.form in (2, 3):  # sm_120's 64-bit forms
            literal = Operand("B", "imm", self._field(32, 32))
            return (*found, literal if self.form == 2 else self._register("B", 32, b))
        if self.op.layout == "add":
            b, c = (0, c) if swapped else (b, 0)
        if b:
            found.append(self._slot("B", b, 64 if swapped else 32))
        if c:
            found.append(self._slot("C", c, 64))
        return tuple(found)

    def _slot(self, slot: str, width: int, low: int) -> Operand:
        """Return slot B or C, a register at `low` unless the form says otherwise."""
        kind = _KINDS[slot].get(self.form, "reg")
        if kind == "imm":
            return Operand(slot, "imm", self._field(32, 32))  # type: ignore[arg-type]
        if kind == "const":
            return self._constant(slot)
        if kind == "ureg":
            return self._uniform(32, width, slot)
        return self._register(slot, low, width)

    def _uniform_arithmetic(self) -> tuple[Operand, ...]:
        _, a, b, c = self.widths
        swapped = self.form in (2, 3, 7)
        found = [self._uniform(24, a, "A")] if a else []
        if b and self.form == 4:
            found.append(Operand("B", "imm", self._field(32, 32)))
        elif b:
            found.append(self._uniform(64 if swapped else 32, b, "B"))
        if c and swapped:
            found.append(Operand("C", "imm", self._field(32, 32)))
        elif c:
            found.append(self._uniform(64, c, "C"))
        return tuple(found)

    def _memory(self) -> tuple[Operand, ...]:
        """Address in A; data in B; a shared address to copy to in D; a uniform part by bit 91."""
        d, a, b, _ = self.widths
        found = [self._register("A", 24, a)]
        if b:
            found.append(self._register("B", 32, b))
        if self.op.layout == "copy":
            found.append(self._register("C", 16, d))
        if self._field(91, 1):
            # Global accesses read a 64-bit descriptor there, shared ones a 32-bit address.
            width = 2 if a == 2 or self.op.mnemonic in ("LD", "LDG", "STG", "ATOMG") else 1
            low = 32 if self.op.layout == "load" else 64
            found.append(self._uniform(low, width, "C" if low == 64 else "B"))
        return tuple(found)

    def _shuffle(self) -> tuple[Operand, ...]:
        """SHFL: lane in B unless the form has it as a literal, clamp in C likewise."""
        found = [self._register("A", 24, 1)]
        if self.form in (1, 2):
            found.append(self._register("B", 32, 1))
        if self.form in (1, 4):
            found.append(self._register("C", 64, 1))
        return tuple(found)

    def _descriptors(self) -> tuple[Operand, ...]:
        """Uniform registers of bulk copies, and of the warpgroup MMA with its accumulator."""
        _, a, b, c = self.widths
        if self.op.layout == "udma":
            slots = (("A", 24, a), ("B", 32, b), ("C", 64, c))
            return tuple(self._uniform(low, width, slot) for slot, low, width in slots if width)
        if self.op.layout == "wgmma":
            first: tuple[Operand, ...]
            if self.form == 6:  # A from registers, B described in memory
                first = (self._register("A", 24, 4), self._uniform(32, 4, "B"))
            else:  # descriptors of A and of B, side by side
                first = (self._uniform(24, 4, "A"),)
            return (*first, self._register("C", 64, c))
        return ()
