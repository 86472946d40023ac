"""What is in a kernel's loop over k, by what it is for.

    loop over k      FFMA FFMA LDS FFMA IADD3 FFMA LDS(empty) LDGSTS FFMA ... BAR ... ISETP BRA
    classes                    reads    addresses  empty reads copies        barriers
    kept always      FFMA FFMA     FFMA       FFMA                   FFMA            ISETP BRA

What steers the loop, and what the code outside of it reads, belongs to no class, and copies are
never left with addresses that nobody computes: whatever is taken out, nothing reads or writes
elsewhere than before.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.sass import Instruction
from tilewright.sass.access import PREDICATE, PT, UNIFORM, access
from tilewright.sass.decode import INSTRUCTION_BYTES
from tilewright.sass.flow import successors
from tilewright.sass.loops import is_useful

OTHERS = "all but FFMA"
CLASSES = ("copies", "addresses", "empty reads", "reads", "block barrier", "barriers", OTHERS)
READS, COPIES, BARRIERS = ("LDS", "LDSM"), ("LDGSTS",), ("BAR", "DEPBAR", "LDGDEPBAR")
LEAVING = ("CALL", "RET", "EXIT", "BSSY", "BSYNC")


def closed(kernel: Sequence[Instruction], body: Sequence[Instruction]) -> bool:
    """Whether the loop is entered at its start only, and left at its end only.

    Within it, branches may lead forward: around copies, where there is nothing left to copy.
    """
    first, last = (body[at].address // INSTRUCTION_BYTES for at in (0, -1))
    after = successors(kernel)
    inside = range(first, last + 1)
    leaves = any(to not in inside or to <= at for at in inside[:-1] for to in after[at])
    led_into = any(
        to in inside[1:]
        for at, following in enumerate(after)
        if at not in inside
        for to in following
    )
    return not leaves and not led_into and not any(one.mnemonic in LEAVING for one in body)


def classes_of(
    kernel: Sequence[Instruction], body: Sequence[Instruction]
) -> dict[str, frozenset[int]]:
    """Return the positions of each of `CLASSES`, without what steers the loop."""
    first = body[0].address // INSTRUCTION_BYTES
    uses = [_use(one) for one in kernel]
    inside = range(first, first + len(body))
    useful = frozenset(at for at in inside if is_useful(kernel[at]))
    # Multiply-adds take data only; every other reader may make an address of what it reads.
    data = frozenset(at for at, one in enumerate(kernel) if is_useful(one))
    branches = frozenset(at for at in inside if kernel[at].mnemonic == "BRA")
    steering = _needed(kernel, uses, inside, branches, frozenset(), data)
    free = frozenset(inside) - useful - steering
    copies = frozenset(at for at in free if kernel[at].mnemonic in COPIES)
    roots = useful | frozenset(at for at in inside if not uses[at].pure)
    serving = free - _needed(kernel, uses, inside, roots - copies, copies, frozenset())
    named = {
        "copies": copies,
        "addresses": frozenset(at for at in serving if uses[at].pure),
        # They read nothing; the compiler puts three before each group of copies.
        "empty reads": {at for at in free if _reads(kernel[at]) and kernel[at].guard.never},
        "reads": {at for at in free if _reads(kernel[at]) and not kernel[at].guard.never},
        "block barrier": {at for at in free if kernel[at].mnemonic == "BAR"},
        "barriers": {at for at in free if kernel[at].mnemonic in BARRIERS},
        OTHERS: free,
    }
    return {name: frozenset(at - first for at in found) for name, found in named.items()}


def _reads(one: Instruction) -> bool:
    return one.mnemonic in READS


def _needed(
    kernel: Sequence[Instruction],
    uses: Sequence[_Use],
    inside: range,
    roots: frozenset[int],
    without: frozenset[int],
    data: frozenset[int],
) -> frozenset[int]:
    """Return what of a loop is needed by its roots and by all that is outside of it.

    The usual backward fixed point of live registers, in which an instruction of the loop reads
    only if somebody needs what it writes.  Those in `without` are not there; those in `data` end
    the lives of what they write, and read nothing.
    """
    after = successors(kernel)
    live = [0] * len(kernel)
    kept: set[int] = set()
    changed = True
    while changed:
        changed = False
        for at in range(len(kernel) - 1, -1, -1):
            value = functools.reduce(lambda all_, to: all_ | live[to], after[at], 0)
            use = uses[at]
            if at in data:
                value &= ~use.kills
            elif at not in without and (at not in inside or at in roots or use.writes & value):
                if at in inside:
                    kept.add(at)
                value = use.reads | value & ~use.kills
            changed |= value != live[at]
            live[at] = value
    return frozenset(kept)


@dataclass(frozen=True)
class _Use:
    """Resources of `tilewright.sass.access` as sets of bits; what is overwritten for certain."""

    reads: int
    writes: int
    kills: int
    pure: bool


def _use(one: Instruction) -> _Use:
    found = access(one)
    reads = set(found.reads) | one.reads | {UNIFORM + r for r in one.ureads}
    writes = set(found.writes) | set(one.dst) | {UNIFORM + r for r in one.udst}
    if found.kind == "unknown" and one.guard.index != PT:
        reads.add(PREDICATE + one.guard.index)
    if one.guard.never:
        reads, writes = set(), set()
    mask = _bits(writes)
    return _Use(_bits(reads), mask, mask if one.guard.always else 0, found.pure)


def _bits(numbers: set[int]) -> int:
    return sum(1 << number for number in numbers)
