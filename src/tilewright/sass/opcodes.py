"""Opcodes of NVIDIA's 128-bit encoding (sm_70 and later) and what each reads and writes.

An opcode is 12 bits: 9 bits say which operation (`Op.base`), 3 bits (the *form*) say which
operand is not a register.  NVIDIA publishes mnemonics only ("CUDA Binary Utilities", Instruction
Set Reference).  The numbers, operand fields and widths below were read off cubins that NVRTC 12.9
and 13.4 compiled for sm_75 to sm_120, beside nvdisasm 13.5's listing and its register life ranges
(``-plr``); ``tests/sass/test_against_nvdisasm.py`` repeats the comparison.  Field positions of
forms agree with the open-source NAK compiler of Mesa (``src/nouveau/compiler/nak/sm70_encode.rs``).
An opcode that is not in the table keeps its number as its name and claims no operands.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

__all__ = ["OPS", "Layout", "Op", "find_op"]

Layout = Literal[
    "alu",  # A, B, C as the form says
    "add",  # A and one more: slot B in register form, slot C where a literal takes B's place
    "add_c",  # A and one more, always slot C
    "uniform",  # as "alu", on uniform registers
    "load",  # D <- [A + UR + offset]
    "store",  # [A + UR + offset] <- B
    "copy",  # shared [D] <- global [A]
    "atomic",  # D <- [A + offset] op B
    "constant",  # D <- c[bank][A + offset]
    "uconstant",  # UD <- c[bank][offset]
    "special",  # D <- special register
    "uspecial",  # UD <- special register
    "to_uniform",  # UD <- A
    "branch",  # a target, perhaps a register
    "wgmma",  # D <- descriptors in UR
    "udma",  # descriptors in UR at A, B
    "shuffle",  # D <- A across the warp; B and C as the form says
    "barrier",  # an mbarrier in shared memory: [A + UR] with data B
    "none",  # no register operand
]


@dataclass(frozen=True, slots=True)
class Op:
    """What an opcode means.

    Parameters
    ----------
    base : int
        The low nine opcode bits.
    mnemonic : str
        NVIDIA's name.
    layout : str
        Where the operands are; see `Layout`.
    widths : tuple of int
        Registers of D, A, B, C in 32-bit registers, before `tilewright.sass.widths`
        adjusts them; 0 where the operation has no such operand.
    predicates : int
        Predicates it may write: 1 at [83:81], 2 at [86:84] also.
    first, last : int
        Architectures (75 for sm_75) on which the number has this meaning.
    form : int or None
        The one form that has it; None for all.
    """

    base: int
    mnemonic: str
    layout: Layout
    widths: tuple[int, int, int, int] = (0, 0, 0, 0)
    predicates: int = 0
    first: int = 70
    last: int = 999
    form: int | None = None


_ARITHMETIC = (
    Op(0x020, "FMUL", "alu", (1, 1, 1, 0)),
    Op(0x021, "FADD", "add", (1, 1, 1, 1)),
    Op(0x023, "FFMA", "alu", (1, 1, 1, 1)),
    Op(0x028, "DMUL", "alu", (2, 2, 2, 0)),
    Op(0x029, "DADD", "add_c", (2, 2, 0, 2)),
    Op(0x02B, "DFMA", "alu", (2, 2, 2, 2)),
    Op(0x02A, "DSETP", "add", (0, 2, 2, 2), 2),
    Op(0x030, "HADD2", "add", (1, 1, 1, 1)),
    Op(0x031, "HFMA2", "alu", (1, 1, 1, 1)),
    Op(0x032, "HMUL2", "alu", (1, 1, 1, 0)),
    Op(0x035, "HFMA2", "alu", (1, 1, 1, 1), last=99),  # HFMA2.MMA: the tensor pipe's half FMA
    Op(0x035, "IADD", "alu", (1, 1, 1, 0), 1, first=120),
    Op(0x049, "FFMA2", "alu", (2, 2, 2, 2), first=100),
    Op(0x04A, "FMUL2", "alu", (2, 2, 2, 0), first=100),
    Op(0x04B, "FADD2", "add", (2, 2, 2, 2), first=100),
    Op(0x008, "FSEL", "alu", (1, 1, 1, 0)),
    Op(0x009, "FMNMX", "alu", (1, 1, 1, 0)),
    Op(0x00B, "FSETP", "alu", (0, 1, 1, 0), 2),
    Op(0x102, "FCHK", "alu", (0, 1, 1, 0), 1),
    Op(0x108, "MUFU", "alu", (1, 0, 1, 0)),
    Op(0x104, "F2F", "alu", (1, 0, 1, 0)),
    Op(0x110, "F2F", "alu", (1, 0, 1, 0)),
    Op(0x105, "F2I", "alu", (1, 0, 1, 0)),
    Op(0x111, "F2I", "alu", (1, 0, 1, 0)),
    Op(0x106, "I2F", "alu", (1, 0, 1, 0)),
    Op(0x112, "I2F", "alu", (1, 0, 1, 0)),
    Op(0x045, "I2FP", "alu", (1, 0, 1, 0), first=80),
)

_MATRIX = (
    Op(0x037, "IMMA", "alu", (4, 4, 2, 4)),
    Op(0x03C, "HMMA", "alu", (4, 4, 2, 4)),
    Op(0x03F, "DMMA", "alu", (4, 2, 2, 4), first=80),
    Op(0x1F0, "HGMMA", "wgmma", (4, 0, 0, 4), first=90, last=99, form=4),
    Op(0x1F0, "HGMMA", "wgmma", (4, 4, 4, 4), first=90, last=99, form=6),
    Op(0x1F1, "IGMMA", "wgmma", (4, 0, 0, 4), first=90, last=99, form=4),
    Op(0x1F3, "QGMMA", "wgmma", (4, 0, 0, 4), first=90, last=99, form=4),
    Op(0x1C5, "WARPGROUP", "none", first=90, last=99),
    Op(0x1C8, "WARPGROUP", "none", first=90, last=99),
)

_INTEGER = (
    Op(0x002, "MOV", "alu", (1, 0, 1, 0)),
    Op(0x003, "P2R", "alu", (1, 1, 0, 0)),
    Op(0x007, "SEL", "alu", (1, 1, 1, 0)),
    Op(0x00C, "ISETP", "alu", (0, 1, 1, 0), 2),
    Op(0x010, "IADD3", "alu", (1, 1, 1, 1), 2),
    Op(0x011, "LEA", "alu", (1, 1, 1, 1), 1),
    Op(0x012, "LOP3", "alu", (1, 1, 1, 1), 1),
    Op(0x013, "IABS", "alu", (1, 0, 1, 0)),
    Op(0x016, "PRMT", "alu", (1, 1, 1, 1)),
    Op(0x017, "IMNMX", "alu", (1, 1, 1, 0)),
    Op(0x019, "SHF", "alu", (1, 1, 1, 1)),
    Op(0x01C, "PLOP3", "none", predicates=2),
    Op(0x024, "IMAD", "alu", (1, 1, 1, 1), 1),
    Op(0x025, "IMAD", "alu", (2, 1, 1, 2), 1),  # IMAD.WIDE
    Op(0x027, "IMAD", "alu", (1, 1, 1, 2), 1),  # IMAD.HI adds to a 64-bit C
    Op(0x036, "VIADD", "alu", (1, 1, 1, 0), first=90),
    Op(0x046, "VIADDMNMX", "alu", (1, 1, 1, 1), first=90),
    Op(0x048, "VIMNMX", "alu", (1, 1, 1, 0), first=90),
    Op(0x100, "FLO", "alu", (1, 0, 1, 0)),
    Op(0x109, "POPC", "alu", (1, 0, 1, 0)),
    Op(0x006, "VOTE", "special", (1, 0, 0, 0), 1),
)

_UNIFORM = (
    Op(0x055, "UFFMA", "uniform", (1, 1, 1, 1), first=120),
    Op(0x082, "UMOV", "uniform", (1, 0, 1, 0)),
    Op(0x087, "USEL", "uniform", (1, 1, 1, 0)),
    Op(0x08C, "UISETP", "uniform", (0, 1, 1, 0)),
    Op(0x09C, "UPLOP3", "none"),
    Op(0x090, "UIADD3", "uniform", (1, 1, 1, 1)),
    Op(0x091, "ULEA", "uniform", (1, 1, 1, 1)),
    Op(0x092, "ULOP3", "uniform", (1, 1, 1, 1)),
    Op(0x097, "UIADD3", "uniform", (2, 2, 2, 2), first=90),  # UIADD3.64
    Op(0x099, "USHF", "uniform", (1, 1, 1, 1)),
    Op(0x0A4, "UIMAD", "uniform", (1, 1, 1, 1)),
    Op(0x0A5, "UIMAD", "uniform", (2, 1, 1, 2)),  # UIMAD.WIDE
    Op(0x086, "VOTEU", "uspecial", (1, 0, 0, 0)),
    Op(0x02F, "ELECT", "uspecial", (1, 0, 0, 0), 1, first=90),
    Op(0x0B9, "ULDC", "uconstant", (1, 0, 0, 0), last=99),
    Op(0x1AC, "LDCU", "uconstant", (1, 0, 0, 0), first=100),
    Op(0x0CA, "R2UR", "to_uniform", (1, 1, 0, 0), 1, first=90),
    Op(0x1C2, "R2UR", "to_uniform", (1, 1, 0, 0), last=89),
    Op(0x1C3, "S2UR", "uspecial", (1, 0, 0, 0)),
)

_MEMORY = (
    Op(0x180, "LD", "load", (1, 2, 0, 0)),
    Op(0x181, "LDG", "load", (1, 2, 0, 0)),
    Op(0x183, "LDL", "load", (1, 1, 0, 0)),
    Op(0x184, "LDS", "load", (1, 1, 0, 0)),
    Op(0x03B, "LDSM", "load", (1, 1, 0, 0)),
    Op(0x186, "STG", "store", (0, 2, 1, 0)),
    Op(0x187, "STL", "store", (0, 1, 1, 0)),
    Op(0x188, "STS", "store", (0, 1, 1, 0)),
    Op(0x1AE, "LDGSTS", "copy", (1, 2, 0, 0), first=80),
    Op(0x1A3, "ATOMG", "atomic", (1, 2, 1, 0), 1, first=90),
    Op(0x1A8, "ATOMG", "atomic", (1, 2, 1, 0), 1),
    Op(0x182, "LDC", "constant", (1, 1, 0, 0)),
    Op(0x189, "SHFL", "shuffle", (1, 1, 1, 1), 1),
    Op(0x005, "CS2R", "special", (1, 0, 0, 0)),
    Op(0x119, "S2R", "special", (1, 0, 0, 0)),
    Op(0x1A7, "SYNCS", "barrier", (0, 1, 1, 0), 1, first=90, form=2),  # SYNCS.PHASECHK
    Op(0x1A7, "SYNCS", "barrier", (1, 1, 1, 0), first=90, form=4),  # SYNCS.ARRIVE
    Op(0x1B2, "SYNCS", "udma", (0, 1, 2, 0), first=90),  # SYNCS.EXCH: an mbarrier's first value
    Op(0x1B4, "UTMALDG", "udma", (0, 2, 6, 0), first=90),
    Op(0x1BA, "UBLKCP", "udma", (0, 2, 2, 1), first=90),
    Op(0x02D, "PREEXIT", "none", first=90),  # griddepcontrol.launch_dependents
    Op(0x02E, "ACQBULK", "none", first=90),  # griddepcontrol.wait
    Op(0x18F, "CCTL", "none"),
    Op(0x192, "MEMBAR", "none"),
    Op(0x1AB, "ERRBAR", "none", form=4),
    Op(0x1AB, "CGAERRBAR", "none", first=90, form=2),
    Op(0x1C6, "FENCE", "none", first=90),
    Op(0x1C7, "UCGABAR_ARV", "none", first=90, form=4),
    Op(0x1C7, "UCGABAR_WAIT", "none", first=90, form=6),
    Op(0x1AF, "LDGDEPBAR", "none", first=80),
    Op(0x11A, "DEPBAR", "none"),
    Op(0x11D, "BAR", "none"),
)

_FLOW = (
    Op(0x118, "NOP", "none"),
    Op(0x141, "BSYNC", "none"),
    Op(0x142, "BREAK", "none"),
    Op(0x143, "CALL", "to_uniform", (0, 2, 0, 0)),  # CALL.ABS through a register pair
    Op(0x144, "CALL", "branch"),
    Op(0x145, "BSSY", "branch"),
    Op(0x146, "YIELD", "none"),
    Op(0x147, "BRA", "branch"),
    Op(0x148, "WARPSYNC", "none"),
    Op(0x14D, "EXIT", "none"),
    Op(0x150, "RET", "branch", (0, 2, 0, 0)),
)

OPS = _ARITHMETIC + _MATRIX + _INTEGER + _UNIFORM + _MEMORY + _FLOW

_BY_BASE: dict[int, list[Op]] = {}
for _op in OPS:
    _BY_BASE.setdefault(_op.base, []).append(_op)


@lru_cache(maxsize=1 << 12)  # a kernel has some dozen
def find_op(opcode: int, arch: int) -> Op | None:
    """Return what a 12-bit opcode means on an architecture, None where it is not known here."""
    for op in _BY_BASE.get(opcode & 0x1FF, ()):
        if op.first <= arch <= op.last and op.form in (None, opcode >> 9):
            return op
    return None
