"""Loops of exactly the instructions one asks for, written into a compiled kernel.

`template` finds in a compiled ``kernels/loop.cu`` what a loop can be made of: slots for
instructions, registers that may be named in them, and one instruction of each kind as the compiler
encodes it.  `Template.filled` writes a body into the slots::

    as compiled    LDS.. DFMA FFMA FFMA ...            count ... compare ... branch
    filled         NOP NOP ...  | count body ... compare body ...... branch |
                   once          a trip: the branch leads back to here

Slots that the body leaves over come first and are passed through once.  The counting instructions
of the compiler stay, apart from each other by enough of the body for their latency, so a trip has
a few more instructions than the body (`Template.overhead`).

Whatever was written is decoded again: `LoopRejectedError` says where it is not what was asked for.
Results of a filled loop mean nothing; fixed-latency instructions that follow each other too
closely read old registers, which costs no time and does no harm.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from tilewright.backend.cubin import Cubin
from tilewright.microbench.sources import kernel_file
from tilewright.sass import Instruction, Loop, decode, edit, find_loops, patch, read_cubin
from tilewright.sass.decode import INSTRUCTION_BYTES, RZ, decode_one
from tilewright.stencil import Source

__all__ = ["LoopRejectedError", "Slot", "Template", "check_names", "loop_source", "template"]

# Registers and predicates reach the next counting instruction after fewer cycles than this: the
# compiler leaves 13 between a comparison and its branch, and each instruction takes one at least.
_APART = 24
_COUNTING = frozenset(("UIADD3", "IADD3", "VIADD", "ISETP", "UISETP", "BRA"))
_LOADS = ("LDS", "LDS.64", "LDS.128")
_KINDS = ("FFMA", "DFMA", *_LOADS)
_ALL_BARRIERS = 0x3F
_DRAINED = 15  # the longest stall
_CLOCK = 0x50  # what nvdisasm calls SR_CLOCKLO; CS2R also writes zeros, from register 255
LOAD_BARRIER = 0  # counts all loads of a filled loop; waited for behind it


class LoopRejectedError(ValueError):
    """A loop does not consist of the instructions that it was made for."""


class Slot(NamedTuple):
    """One instruction of a body.

    Parameters
    ----------
    kind : str
        ``"FFMA"``, ``"DFMA"``, ``"LDS"``, ``"LDS.64"`` or ``"LDS.128"``.
    d, a, b, c : int
        Registers; 255 is RZ.  A load takes `d` only.
    reuse : int
        Reuse flags: 1 for slot A, 2 for B, 4 for C.
    """

    kind: str
    d: int
    a: int = RZ
    b: int = RZ
    c: int = RZ
    reuse: int = 0


def loop_source(threads: int, accumulators: int, factors: int, slots: int) -> Source:
    """Return the source of a template; see ``kernels/loop.cu`` for the parameters."""
    defines = {"THREADS": threads, "ACCUMULATORS": accumulators, "FACTORS": factors, "SLOTS": slots}
    return Source(kernel_file("loop.cu"), defines, "loop")


@dataclass(frozen=True)
class Template:
    """A compiled loop and what it can be filled with.

    Parameters
    ----------
    cubin : Cubin
        As compiled.
    arch : int
        Architecture number, such as 90.
    start, end : int
        Addresses of the loop's first instruction and of its branch.
    counting : tuple of Instruction
        What counts the trips, in order; the branch is the last.
    kinds : Mapping
        An instruction of each kind as compiled, by its name.
    nothing : Instruction
        A NOP.
    registers : tuple of int
        Those that a body may name, ascending: nothing but the loop's arithmetic uses them.
    """

    cubin: Cubin
    arch: int
    start: int
    end: int
    counting: tuple[Instruction, ...]
    kinds: Mapping[str, Instruction]
    nothing: Instruction
    registers: tuple[int, ...]

    @property
    def slots(self) -> int:
        """Instructions that a body may have; one slot stays empty, to wait for the prologue."""
        return (self.end - self.start) // INSTRUCTION_BYTES - len(self.counting)

    @property
    def overhead(self) -> int:
        """Instructions that a trip has besides its body."""
        return len(self.counting)

    def aligned(self, words: int) -> list[range]:
        """Return groups of so many registers side by side, as wide loads write them, ascending."""
        groups = (range(r, r + words) for r in self.registers if r % words == 0)
        return [group for group in groups if set(group) <= set(self.registers)]

    def filled(self, body: Sequence[Slot]) -> Cubin:
        """Return the cubin whose loop has this body.

        Raises
        ------
        ValueError
            If the body is too long or too short for the loop, or names what it may not.
        LoopRejectedError
            If what was written does not decode to the body.
        """
        least = _APART * len(self.counting)
        if not least <= len(body) <= self.slots:
            raise ValueError(f"body={len(body)} instructions; give {least} to {self.slots}")
        allowed = {*self.registers, RZ}
        named = {r for slot in body for r in _named(slot)}
        if not named <= allowed:
            raise ValueError(f"body names registers {sorted(named - allowed)}; use `registers`")
        words = [self._word(slot) for slot in body]
        before = (self.end - self.start) // INSTRUCTION_BYTES + 1 - len(body) - self.overhead
        first = self.start + before * INSTRUCTION_BYTES
        trip = self._trip(words, first)
        waiting = edit(self.nothing, self.arch, stall=_DRAINED, wait_mask=_ALL_BARRIERS).raw
        code = [waiting] + [edit(self.nothing, self.arch, stall=1).raw] * (before - 1) + trip
        text = b"".join(word.to_bytes(INSTRUCTION_BYTES, "little") for word in code)
        made = self._with_text(text)
        self._check(made, first, body)
        return Cubin(made, "", self.cubin.lowered, self.cubin.arch)

    def _word(self, slot: Slot) -> int:
        """Return a slot's 128 bits: its kind's, with registers and scheduling put in."""
        kind = self.kinds.get(slot.kind)
        if kind is None:
            raise ValueError(f"kind={slot.kind!r} is not known; use one of {', '.join(self.kinds)}")
        load = slot.kind in _LOADS
        fields = 0xFF << 16 | (0 if load else 0xFF << 24 | 0xFF << 32 | 0xFF << 64)
        scheduling = ((1 << 21) - 1) << 105
        raw = kind.raw & ~(fields | scheduling) | slot.d << 16
        if not load:
            raw |= slot.a << 24 | slot.b << 32 | slot.c << 64
        barriers = (LOAD_BARRIER if load else 7) << 110 | 7 << 113
        return raw | 1 << 105 | 1 << 109 | barriers | slot.reuse << 122

    def _trip(self, words: list[int], first: int) -> list[int]:
        """Return a trip's words: the body with the counting instructions between."""
        trip = list(words)
        *counts, branch = self.counting
        for order, count in enumerate(counts):
            plain = edit(count, self.arch, stall=1, yields=False, wait_mask=0)
            trip.insert(order * (_APART + 1), plain.raw)
        back = edit(branch, self.arch, address=self.end, target=first, wait_mask=0)
        return [*trip, back.raw]

    def _with_text(self, text: bytes) -> bytes:
        """Return the cubin with the loop's bytes replaced, and a wait behind it."""
        kernel = read_cubin(self.cubin.code).kernel()
        start = kernel.code_offset + self.start
        data = bytearray(self.cubin.code)
        data[start : start + len(text)] = text
        behind = self.end + INSTRUCTION_BYTES
        at = slice(behind, behind + INSTRUCTION_BYTES)
        after = decode(kernel.code[at], self.arch)[0]
        waits = edit(after, self.arch, wait_mask=_ALL_BARRIERS, address=behind)
        return patch(bytes(data), [waits])

    def _check(self, data: bytes, first: int, body: Sequence[Slot]) -> None:
        """Decode what was written and compare it with what was asked for."""
        code = read_cubin(data).kernel().code[first : self.end + INSTRUCTION_BYTES]
        words = [int.from_bytes(code[i : i + 16], "little") for i in range(0, len(code), 16)]
        branch = decode_one(words[-1], self.end, self.arch)
        if branch.mnemonic != "BRA" or branch.target != first:
            raise LoopRejectedError(f"the loop ends with {branch}, not with a branch to its start")
        trip = [_described(word, self.arch) for word in words]
        inner = [slot for slot in trip if slot.kind not in _COUNTING]
        if len(trip) - len(inner) != self.overhead or len(inner) != len(body):
            raise LoopRejectedError(
                f"the loop has {len(inner)} instructions and {len(trip) - len(inner)} that count,"
                f" not {len(body)} and {self.overhead}"
            )
        for found, slot in zip(inner, body, strict=True):
            if found != slot:
                raise LoopRejectedError(f"the loop has {found} where {slot} was meant")


@lru_cache(maxsize=1 << 17)
def _named(slot: Slot) -> tuple[int, ...]:
    """Return all registers that a slot touches, those of wide operands too."""
    if slot.kind in _LOADS:
        words = {"LDS": 1, "LDS.64": 2, "LDS.128": 4}[slot.kind]
        return tuple(range(slot.d, slot.d + words))
    wide = 2 if slot.kind == "DFMA" else 1
    named = (slot.d, slot.a, slot.b, slot.c)
    return tuple(r + i for r in named for i in range(wide if r != RZ else 1))


@lru_cache(maxsize=1 << 17)  # the same words stand in many patterns
def _described(word: int, arch: int) -> Slot:
    """Decode an instruction's 128 bits and return it as a slot."""
    found = decode_one(word, 0, arch)
    d = found.dst[0] if found.dst else RZ
    flags = sum(flag << i for i, flag in enumerate(found.control.reuse))
    if found.mnemonic not in ("FFMA", "DFMA"):
        return Slot(found.name, d, reuse=flags)
    a, b, c = (operand.value for operand in found.srcs)
    return Slot(found.name, d, a, b, c, flags)


def template(cubin: Cubin) -> Template:
    """Return what a compiled ``kernels/loop.cu`` can be filled with.

    Raises
    ------
    LoopRejectedError
        If the compiler made something else of it than one loop with all its instructions.
    """
    kernel = read_cubin(cubin.code).kernel()
    instructions = decode(kernel.code, kernel.arch)
    found = [one for one in find_loops(instructions) if one.names().get("FFMA", 0) > 1]
    if len(found) != 1:
        raise LoopRejectedError(f"the compiler made {len(found)} loops of one; use another NVRTC")
    loop = found[0]
    _check_clocks(instructions, loop)
    counting = tuple(i for i in loop.instructions if i.mnemonic in _COUNTING)
    kinds = {i.name: i for i in loop.instructions if i.name in _KINDS}
    others = set(loop.names()) - {*kinds, *(i.name for i in counting)}
    nothing = next((i for i in instructions if i.mnemonic == "NOP"), None)
    if others or set(kinds) != set(_KINDS) or counting[-1] != loop.instructions[-1]:
        raise LoopRejectedError(f"the compiler put {loop.names()} into the loop; use another NVRTC")
    if nothing is None:
        raise LoopRejectedError("the kernel has no NOP behind its end; use another NVRTC")
    return Template(
        cubin,
        kernel.arch,
        loop.start,
        loop.end,
        counting,
        kinds,
        nothing,
        _free_registers(instructions, loop.instructions),
    )


def _free_registers(
    instructions: Sequence[Instruction], loop: Sequence[Instruction]
) -> tuple[int, ...]:
    """Return the registers of the loop's FFMA that the next instructions behind it leave alone.

    What the last trip still writes must not fall on a register that has a new meaning already;
    the sums behind the first exit are never computed.
    """
    sums = [i for i in loop if i.mnemonic == "FFMA"]
    named = set(itertools.chain.from_iterable((*i.dst, *i.reads) for i in sums))
    for instruction in instructions[loop[-1].address // INSTRUCTION_BYTES + 1 :]:
        if instruction.mnemonic == "EXIT":
            break
        named -= {*instruction.dst, *instruction.reads}
    return tuple(sorted(named))


def check_names(code: bytes, wanted: Mapping[str, int], extra: int) -> int:
    """Check a loop of a compiled kernel by the names of its instructions.

    Parameters
    ----------
    code : bytes
        A cubin with one kernel.
    wanted : Mapping
        How often each instruction must occur.
    extra : int
        Most instructions of other names, such as the loop's counter and branch.  Fillers that
        compute nothing, which the compiler puts between matrix instructions, are not counted.

    Returns
    -------
    int
        Fillers in the loop.

    Raises
    ------
    LoopRejectedError
        If no loop is like that.
    """
    kernel = read_cubin(code).kernel()
    instructions = decode(kernel.code, kernel.arch)
    loops = find_loops(instructions)
    for loop in loops:
        names = Counter(i.name for i in loop.instructions if not _is_filler(i))
        others = names.total() - sum(names[name] for name in wanted)
        if all(names[name] == count for name, count in wanted.items()) and others <= extra:
            _check_clocks(instructions, loop)
            return len(loop.instructions) - names.total()
    seen = "; ".join(str(loop.names()) for loop in loops) or "none"
    raise LoopRejectedError(f"no loop has exactly {dict(wanted)} and at most {extra} more: {seen}")


def _check_clocks(instructions: Sequence[Instruction], loop: Loop) -> None:
    """Refuse a loop that the clock is not read before and after: nothing would be timed."""
    reads = [i for i in instructions if i.mnemonic == "CS2R"]
    clocks = [i.address for i in reads if i.raw >> 72 & 0xFF == _CLOCK]  # the special register
    if not any(at < loop.start for at in clocks) or not any(at > loop.end for at in clocks):
        raise LoopRejectedError("the clock is not read around the loop; use another NVRTC")


def _is_filler(instruction: Instruction) -> bool:
    """Whether it computes nothing: NOP, and UIADD3 URZ of NVRTC 13.5."""
    adds = instruction.mnemonic == "UIADD3" and not instruction.udst
    return instruction.mnemonic == "NOP" or (adds and not instruction.dst_predicates)
