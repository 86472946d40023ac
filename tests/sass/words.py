"""Instructions made by hand, for tests that need a particular one."""

from __future__ import annotations

from tilewright.sass import Instruction
from tilewright.sass.decode import decode_one

FFMA, LDS, BRA, NOP = 0x223, 0x984, 0x947, 0x918


def word(
    opcode: int,
    d: int = 255,
    a: int = 255,
    b: int = 255,
    c: int = 255,
    *,
    reuse: int = 0,
    stall: int = 1,
    write: int = 7,
    wait: int = 0,
    guard: int = 7,
    extra: int = 0,
) -> int:
    """Return 128 bits: register operands, reuse bits (1: A, 2: B, 4: C), scheduling, anything."""
    low = opcode | guard << 12 | d << 16 | a << 24 | b << 32
    control = stall << 105 | 1 << 109 | write << 110 | 7 << 113 | wait << 116 | reuse << 122
    return low | c << 64 | control | extra


def ffma(d: int, a: int, b: int, c: int, reuse: int = 0, address: int = 0) -> Instruction:
    """Return FFMA Rd, Ra, Rb, Rc for sm_90."""
    return decode_one(word(FFMA, d, a, b, c, reuse=reuse), address, 90)


def nop(one: Instruction, arch: int) -> Instruction:
    """Return what does nothing in another one's place, with its stall and waits, and no barrier."""
    raw = word(NOP, stall=one.control.stall, wait=one.control.wait_mask)
    return decode_one(raw, one.address, arch)


def branch_back(distance: int, address: int, guard: int = 0) -> Instruction:
    """Return a guarded branch that leads `distance` bytes back, for sm_80."""
    offset = (-(distance + 16) // 4) & ((1 << 48) - 1)
    condition = 7 << 87  # no further predicate
    return decode_one(BRA | guard << 12 | offset << 34 | condition | 1 << 109, address, 80)
