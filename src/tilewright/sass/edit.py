"""Change machine code: fields of instructions, and where they stand in a cubin.

`edit` returns an instruction with some fields set to other values; `patch` writes instructions at
their addresses into a cubin, whose other bytes stay as they are.  Whoever reorders a loop edits
each instruction's ``address`` (branches keep their targets) and patches them all at once.

Nothing here knows whether the result still computes the same: stalls and barriers that keep
dependent instructions apart are the caller's to set.  Fields lie where `tilewright.sass.decode`
reads them; `edit` decodes what it has written and refuses to return anything else than asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.sass.decode import INSTRUCTION_BYTES, RZ, decode_one
from tilewright.sass.elf import read_cubin
from tilewright.sass.instruction import Instruction
from tilewright.sass.opcodes import find_op

__all__ = ["RefusedError", "edit", "patch", "register_places", "with_target"]

# First bit and bits of each field of the scheduling part.
_STALL, _KEEP, _WRITE, _READ, _WAIT, _REUSE = (
    (105, 4), (109, 1), (110, 3), (113, 3), (116, 6), (122, 3),
)  # fmt: skip
_NO_BARRIER = 7
_BARRIERS = 6  # counters of a warp
_DESTINATION = 16
_REGISTERS = 8  # bits of a register's number
_B_IN_PLACE_OF_C = (2, 3, 7)  # forms whose literal, constant or uniform operand takes B's place
# A reader of uniform registers or of nothing has no register to set in these.
_WITHOUT_DESTINATION = ("uniform", "uconstant", "uspecial", "to_uniform", "copy", "branch", "udma")
_SPLIT_BRANCH_SINCE = 90
_UNIT = 4  # bytes that a branch's distance counts


class RefusedError(ValueError):
    """Machine code that is left as it is, with the reason."""


def edit(
    instruction: Instruction,
    arch: int,
    *,
    d: int | None = None,
    a: int | None = None,
    b: int | None = None,
    c: int | None = None,
    reuse: tuple[bool, bool, bool] | None = None,
    stall: int | None = None,
    yields: bool | None = None,
    write_barrier: int | None = -1,
    read_barrier: int | None = -1,
    wait_mask: int | None = None,
    address: int | None = None,
    target: int | None = None,
) -> Instruction:
    """Return an instruction with some of its fields changed.

    Parameters
    ----------
    instruction : Instruction
        As `tilewright.sass.decode` returned it.
    arch : int
        Architecture number, such as 90.
    d, a, b, c : int, optional
        First register of the destination and of the operand slots; 255 is RZ.
    reuse : tuple of bool, optional
        Reuse flags of slots A, B, C.
    stall : int, optional
        Cycles, 0 to 15.
    yields : bool, optional
        Whether the scheduler is advised to turn to another warp.
    write_barrier, read_barrier : int or None, optional
        0 to 5, or None for none; left out (-1), it stays.
    wait_mask : int, optional
        Six bits.
    address : int, optional
        Where it is to stand, in bytes; a branch keeps its target.
    target : int, optional
        Where a branch is to lead.

    Raises
    ------
    ValueError
        If the instruction has no such field, or the field cannot hold the value.
    """
    raw = instruction.raw
    for name, register in (("d", d), ("a", a), ("b", b), ("c", c)):
        if register is not None:
            raw = _with_register(raw, instruction, arch, name, register)
    if reuse is not None:
        raw = _put(raw, "reuse", _REUSE, sum(flag << i for i, flag in enumerate(reuse)))
    if stall is not None:
        raw = _put(raw, "stall", _STALL, stall)
    if yields is not None:
        raw = _put(raw, "yields", _KEEP, int(not yields))
    if wait_mask is not None:
        raw = _put(raw, "wait_mask", _WAIT, wait_mask)
    for name, where, barrier in (
        ("write_barrier", _WRITE, write_barrier),
        ("read_barrier", _READ, read_barrier),
    ):
        if barrier != -1:
            raw = _with_barrier(raw, name, where, barrier)
    where_to = instruction.address if address is None else address
    leads = instruction.target if target is None else target
    if target is not None and instruction.target is None:
        raise ValueError(f"target={target:#x}: {instruction} is no branch with a distance; leave")
    if leads is not None:
        raw = with_target(raw, instruction, arch, where_to, leads)
    made = decode_one(raw, where_to, arch)
    _check(made, instruction, {"d": d, "a": a, "b": b, "c": c}, leads)
    return made


def _put(raw: int, name: str, where: tuple[int, int], value: int) -> int:
    """Return the bits with one field set."""
    low, count = where
    if not 0 <= value < 1 << count:
        raise ValueError(f"{name}={value} does not fit; give 0 to {(1 << count) - 1}")
    return raw & ~(((1 << count) - 1) << low) | value << low


def _with_barrier(raw: int, name: str, where: tuple[int, int], barrier: int | None) -> int:
    if barrier is not None and not 0 <= barrier < _BARRIERS:
        raise ValueError(f"{name}={barrier} is no barrier; give 0 to {_BARRIERS - 1}, or None")
    return _put(raw, name, where, _NO_BARRIER if barrier is None else barrier)


def _with_register(raw: int, old: Instruction, arch: int, name: str, register: int) -> int:
    """Return the bits with the register of an operand, or of the destination, changed."""
    place, width = _register_field(old, arch, name)
    top = RZ - max(1, width)
    if register != RZ and not 0 <= register <= top:
        raise ValueError(f"{name}={register} does not fit {old}; give 0 to {top}, or {RZ} for RZ")
    if register != RZ and width in (2, 4) and register % width:
        raise ValueError(f"{name}={register} is not aligned; {old} takes multiples of {width}")
    return _put(raw, name, (place, _REGISTERS), register)


def _register_field(old: Instruction, arch: int, name: str) -> tuple[int, int]:
    """Return the first bit of a register's field, and how many registers it stands for."""
    op = find_op(old.opcode, arch)
    if op is not None and name == "d" and op.layout not in _WITHOUT_DESTINATION:
        # RZ as destination writes nothing: its width is then that of the operation at most.
        if old.dst or op.widths[0]:
            return _DESTINATION, len(old.dst) or op.widths[0]
    elif op is not None:
        for operand in old.srcs:
            if operand.slot.lower() == name and operand.kind == "reg":
                return _place(op.layout, old.opcode >> 9, name), operand.width
    raise ValueError(f"{name}: {old} has no such register; edit another field")


def register_places(instruction: Instruction, arch: int) -> tuple[int, ...]:
    """Return the first bits of the fields that name registers: of its sources and its result.

    RZ is a constant, no register: its field is not among them.
    """
    op = find_op(instruction.opcode, arch)
    if op is None:
        return ()
    places = [
        _place(op.layout, instruction.opcode >> 9, operand.slot.lower())
        for operand in instruction.srcs
        if operand.kind == "reg" and operand.width
    ]
    return (*places, *((_DESTINATION,) if instruction.dst else ()))


def _place(layout: str, form: int, name: str) -> int:
    """Return the first bit of an operand slot."""
    if name == "a":
        return 24
    if name == "c":
        return _DESTINATION if layout == "copy" else 64
    return 64 if layout in ("alu", "add", "add_c") and form in _B_IN_PLACE_OF_C else 32


def with_target(raw: int, old: Instruction, arch: int, address: int, target: int) -> int:
    """Return a branch's bits with the distance from `address` to `target`."""
    distance = target - address - INSTRUCTION_BYTES
    if old.mnemonic == "BSSY":
        return _put(raw, "target", (32, 32), distance & 0xFFFFFFFF)
    if distance % _UNIT:
        raise ValueError(f"target={target:#x} is no instruction's; give a multiple of 16")
    count = 56 if arch >= _SPLIT_BRANCH_SINCE else 48
    units = distance // _UNIT & (1 << count) - 1
    if arch >= _SPLIT_BRANCH_SINCE:
        return _put(_put(raw, "target", (16, 8), units & 0xFF), "target", (34, 48), units >> 8)
    return _put(raw, "target", (34, 48), units)


def _check(
    made: Instruction, old: Instruction, registers: Mapping[str, int | None], target: int | None
) -> None:
    """Refuse what does not decode to what was asked for."""
    same = made.name == old.name and made.offset == old.offset and made.guard == old.guard
    found: dict[str, Any] = {o.slot.lower(): o.value for o in made.srcs if o.kind == "reg"}
    found["d"] = made.dst[0] if made.dst else RZ
    was: dict[str, Any] = {o.slot.lower(): o.value for o in old.srcs if o.kind == "reg"}
    was["d"] = old.dst[0] if old.dst else RZ
    for name, register in registers.items():
        if register is not None:
            was[name] = register
    if not same or found != was or made.target != target:
        raise ValueError(f"{old} cannot be edited so: it would become {made}; edit another field")


def patch(cubin: bytes, instructions: Iterable[Instruction], kernel: str | None = None) -> bytes:
    """Return a cubin with instructions written at their addresses.

    Parameters
    ----------
    cubin : bytes
        The ELF file.
    instructions : iterable of Instruction
        Each replaces what stands at its address.
    kernel : str, optional
        Whose; may be left out where the cubin has one kernel only.

    Returns
    -------
    bytes
        As long as `cubin`, and equal to it everywhere else.

    Raises
    ------
    ValueError
        If the cubin is unreadable, has no such kernel, or an address is none of the kernel's.
    """
    found = read_cubin(cubin).kernel(kernel)
    made = bytearray(cubin)
    for instruction in instructions:
        at = instruction.address
        if at % INSTRUCTION_BYTES or not 0 <= at < len(found.code):
            raise ValueError(
                f"address={at:#x} is not in kernel {found.name}; give a multiple of 16 below"
                f" {len(found.code):#x}"
            )
        start = found.code_offset + at
        made[start : start + INSTRUCTION_BYTES] = instruction.raw.to_bytes(16, "little")
    return bytes(made)
