"""Whole kernels written down in a few lines, and what runs of them."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.sass.words import word
from tilewright.backend.cuda import arrange as module
from tilewright.sass import Instruction, decode, edit
from tilewright.sass.decode import decode_one
from tilewright.sass.flow import goes_on, successors
from tilewright.sass.machine import FETCHED_BYTES

# What is there first, and what may come along before a loop, for kernels made here: instructions.
ROOM, LEAD = 64, 8
PT = 7 << 87  # a branch's further predicate
OPCODES = {"FFMA": 0x223, "BRA": 0x947, "BSSY": 0x945, "BSYNC": 0x941, "EXIT": 0x94D, "NOP": 0x918}
LINE = re.compile(r"\s*(?:(\w+):)?\s*(?:(\d+) )?(?:@P(\d) )?([A-Z]+)(?: (\w+))?\s*")
Code = tuple[Instruction, ...]

# As a compiler lays out a kernel whose blocks take tile after tile.
KERNEL = """
           8 FFMA
           @P0 BRA end
           BRA zeros
    store: 60 FFMA
           @P1 BRA next
           BRA end
    next:  4 FFMA
    zeros: 6 FFMA
    loop:  30 FFMA
           @P2 BRA loop
           3 FFMA
           BRA store
    end:   BSSY back
           2 FFMA
    back:  BSYNC
           EXIT
    stop:  BRA stop
           7 NOP
"""


def kernel(text: str, arch: int = 90) -> Code:
    """Return the kernel of lines such as ``label: 3 FFMA`` and ``@P0 BRA label``.

    Every FFMA has registers of its own, so that no two of them are alike.
    """
    lines: list[tuple[str, int, str | None]] = []
    labels: dict[str, int] = {}
    for row in text.strip().splitlines():
        found = LINE.fullmatch(row)
        assert found is not None, row
        label, times, guard, name, target = found.groups()
        if label:
            labels[label] = len(lines)
        lines += [(name, int(guard or 7), target)] * int(times or 1)
    made = []
    for index, (name, guard, target) in enumerate(lines):
        d, a = (index % 200, index // 200) if name == "FFMA" else (0, 0)
        raw = word(OPCODES[name], d, a, 0, 0, stall=5, guard=guard, extra=PT * (name != "FFMA"))
        one = decode_one(raw, 16 * index, arch)
        made.append(edit(one, arch, target=16 * labels[target]) if target else one)
    return tuple(made)


def read(instructions: Sequence[Instruction]) -> Code:
    """Return what a machine reads: the bits, each decoded where it stands."""
    return decode(b"".join(one.raw.to_bytes(16, "little") for one in instructions), 90)


def with_(instructions: Code, *ones: Instruction) -> Code:
    """Return a kernel with other instructions at their addresses."""
    at = {one.address: one for one in ones}
    return read([at.get(one.address, one) for one in instructions])


def raw(one: Instruction, bits: int) -> Instruction:
    """Return an instruction with some bits flipped."""
    return decode_one(one.raw ^ bits, one.address, 90)


def reachable(instructions: Code) -> set[int]:
    """Return the addresses of all that can run, points of reconvergence with them."""
    after, seen, waiting = successors(instructions), set[int](), [0]
    while waiting:
        index = waiting.pop()
        if index not in seen:
            seen.add(index)
            target = instructions[index].target
            waiting += [*after[index], *([] if target is None else [target // 16])]
    return {16 * index for index in seen}


def words(instructions: Code) -> Counter[int]:
    """Return how often there is what names no place; NOPs count for nothing."""
    left_out = ("BRA", "BSSY", "NOP")
    return Counter(one.raw for one in instructions if one.mnemonic not in left_out)


def run(instructions: Code, seed: int, steps: int) -> list[int]:
    """Return what runs, one by one, while conditions hold as a seed has it.

    Branches that always lead away are left out, and the others' distances.
    """
    holds, index = random.Random(seed), 0
    ran: list[int] = []
    while len(ran) < steps:
        one = instructions[index]
        conditional = one.mnemonic in ("BRA", "EXIT") and goes_on(one)
        taken = not goes_on(one) or (conditional and holds.random() < 0.5)
        if one.mnemonic != "BRA" or conditional:
            ran.append(one.raw if one.target is None else one.raw & ~((1 << 82) - (1 << 16)))
        if taken and (one.target is None or one.target == one.address):
            break
        index = one.target // 16 if taken and one.target is not None else index + 1
    return ran


def small_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make what is fetched first as small as the kernels here."""
    monkeypatch.setitem(FETCHED_BYTES, 90, 16 * ROOM)
    monkeypatch.setattr(module, "_LEAD", LEAD)
