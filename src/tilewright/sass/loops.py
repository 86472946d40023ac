"""Loops of a kernel, the main one, and what share of it does arithmetic that counts.

The share is Lai & Seznec's Figure 1: "FFMA instruction percentage in SGEMM main-loop with
different Blocking Factors"; `ffma_share` is their formula, `Loop.useful_share` the same number
from machine code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.sass.decode import INSTRUCTION_BYTES
from tilewright.sass.flow import successors
from tilewright.sass.instruction import Instruction
from tilewright.sass.warpgroups import MULTIPLIES

__all__ = ["Loop", "ffma_share", "find_loops", "instruction_class", "is_useful", "main_loop"]

# Of a warp's tensor cores: one does hundreds of multiply-adds.
_OF_WARPS = frozenset(("HMMA", "DMMA", "IMMA"))
MULTIPLY_ADDS = _OF_WARPS | {"FFMA", "FFMA2", "DFMA", "HFMA2", "HGMMA", "IGMMA", "QGMMA"}
_CLASSES: dict[str, str] = {
    **dict.fromkeys(MULTIPLY_ADDS, "multiply-add"),
    **dict.fromkeys(("LDS", "LDSM"), "shared load"),
    "STS": "shared store",
    "LD": "global load",
    "LDG": "global load",
    "STG": "global store",
    **dict.fromkeys(("LDGSTS", "UTMALDG", "UBLKCP"), "asynchronous copy"),
    **dict.fromkeys(("LDL", "STL"), "local memory"),
    **dict.fromkeys(("LDC", "ULDC", "LDCU"), "constant load"),
    **dict.fromkeys(
        ("BAR", "DEPBAR", "LDGDEPBAR", "SYNCS", "WARPSYNC", "WARPGROUP", "FENCE", "MEMBAR"),
        "synchronisation",
    ),
    "ACQBULK": "synchronisation",
    **dict.fromkeys(("BRA", "BSSY", "BSYNC", "BREAK", "CALL", "RET", "EXIT"), "control flow"),
    **dict.fromkeys(
        ("FADD", "FMUL", "DADD", "DMUL", "HADD2", "HMUL2", "FADD2", "FMUL2"), "other float"
    ),
    **dict.fromkeys(
        ("MOV", "UMOV", "CS2R", "S2R", "S2UR", "R2UR", "SEL", "USEL", "PRMT", "SHFL"), "move"
    ),
    **dict.fromkeys(
        ("IADD3", "IADD", "VIADD", "IMAD", "LEA", "LOP3", "SHF", "ISETP", "PLOP3"),
        "integer",
    ),
    **dict.fromkeys(("IABS", "IMNMX", "VIMNMX", "VIADDMNMX"), "integer"),
    **dict.fromkeys(("UIADD3", "UIMAD", "ULEA", "ULOP3", "USHF", "UISETP"), "integer"),
    "NOP": "nothing",
}


@dataclass(frozen=True)
class Loop:
    """The instructions from a backward branch's target to the branch, in address order."""

    instructions: tuple[Instruction, ...]

    @property
    def start(self) -> int:
        """Address of the first instruction."""
        return self.instructions[0].address

    @property
    def end(self) -> int:
        """Address of the branch back."""
        return self.instructions[-1].address

    def encloses(self, other: Loop) -> bool:
        """Whether another loop lies within this one."""
        shorter = len(other.instructions) < len(self.instructions)
        return shorter and self.start <= other.start and other.end <= self.end

    @property
    def useful(self) -> int:
        """Multiply-add instructions."""
        return sum(is_useful(i) for i in self.instructions)

    @property
    def multiplies(self) -> int:
        """Warpgroup multiplies among them."""
        return sum(i.mnemonic in MULTIPLIES for i in self.instructions)

    @property
    def useful_share(self) -> float:
        """Multiply-adds as a share of all instructions, from 0 to 1."""
        return self.useful / len(self.instructions)

    def mix(self) -> dict[str, int]:
        """Return how many instructions there are of each class, the most frequent first."""
        return dict(Counter(instruction_class(i) for i in self.instructions).most_common())

    def names(self) -> dict[str, int]:
        """Return how often each instruction name occurs, the most frequent first."""
        return dict(Counter(i.name for i in self.instructions).most_common())


def is_useful(instruction: Instruction) -> bool:
    """Whether it is a multiply-add of the product.

    The compiler also writes HFMA2 and FFMA with RZ as factor, to move a
    constant through a pipe that is idle; those are not.
    """
    if instruction.mnemonic not in MULTIPLY_ADDS or instruction.guard.never:
        return False
    first = instruction.srcs[0]
    return first.kind != "reg" or bool(first.registers)


def instruction_class(instruction: Instruction) -> str:
    """Return what kind of work an instruction does, in a reader's words."""
    if instruction.guard.never:
        return "nothing"
    if instruction.mnemonic in MULTIPLY_ADDS and not is_useful(instruction):
        return "move"
    return _CLASSES.get(instruction.mnemonic, "other")


def find_loops(instructions: Sequence[Instruction]) -> tuple[Loop, ...]:
    """Return every loop: a branch whose target lies before it, in address order.

    A branch to itself, which ends every kernel as padding, is none.  Nor is one that can be reached
    without passing its target: compilers put what is rarely run, such as waiting once more at a
    barrier, behind the kernel's end, and come back from there.
    """
    found = []
    first, after = _blocks(instructions)
    for index, instruction in enumerate(instructions):
        target = instruction.target
        if instruction.mnemonic != "BRA" or target is None or instruction.guard.never:
            continue
        head = target // INSTRUCTION_BYTES
        if 0 <= target < instruction.address and not _reaches(after, first[index], but=head):
            found.append(Loop(tuple(instructions[head : index + 1])))
    return tuple(found)


def _blocks(instructions: Sequence[Instruction]) -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """Return which instruction each one's block begins with, and what may follow each block.

    A block is entered at its first instruction and left behind its last alone.
    """
    after = successors(instructions)
    begins = {0}
    for index, following in enumerate(after):
        if following != (index + 1,):
            begins.update(following, (index + 1,))
    first: list[int] = []
    ends: dict[int, int] = {}
    for index in range(len(instructions)):
        first.append(index if index in begins else first[-1])
        ends[first[-1]] = index
    return first, {begin: after[end] for begin, end in ends.items()}


def _reaches(after: Mapping[int, tuple[int, ...]], block: int, but: int) -> bool:
    """Whether the first block leads to another on a way that leaves one out."""
    seen, waiting = {0, but}, [0] if but else []
    while waiting:
        at = waiting.pop()
        if at == block:
            return True
        new = [following for following in after[at] if following not in seen]
        seen.update(new)
        waiting += new
    return False


def main_loop(instructions: Sequence[Instruction]) -> Loop | None:
    """Return the loop that does the work, None where no loop has a multiply-add.

    It is the shortest of the loops that hold at least half as many
    multiply-adds as the richest one: a loop over tiles encloses the loop over
    k together with an epilogue and a remainder, and would hide it.  Where that
    loop still encloses others that hold a quarter of its multiply-adds or more,
    such as two loops over k, one for the edges of C, it is one of those, by the
    same rule.  Beside a warpgroup's multiplies, or a warp's on tensor cores, no others
    count: those of an epilogue outnumber them, and do a hundredth of their work or less.
    """
    present = {i.mnemonic for i in instructions}
    if present & MULTIPLIES:
        every = [(loop.multiplies, loop) for loop in find_loops(instructions)]
    else:
        counted = present & _OF_WARPS or MULTIPLY_ADDS
        every = [
            (sum(is_useful(i) and i.mnemonic in counted for i in loop.instructions), loop)
            for loop in find_loops(instructions)
        ]
    loops = [(work, loop) for work, loop in every if work]
    found: tuple[int, Loop] | None = None
    while loops:
        most = max(work for work, _ in loops)
        if found is not None and 4 * most < found[0]:
            break
        found = min(
            (one for one in loops if 2 * one[0] >= most),
            key=lambda one: (len(one[1].instructions), -one[0]),
        )
        loops = [one for one in loops if found[1].encloses(one[1])]
    return None if found is None else found[1]


def ffma_share(blocking: int, load_bits: int) -> float:
    """Return the paper's Figure 1: the share of FFMA among FFMA and shared loads.

    One step in k of a `blocking` x `blocking` register tile takes `blocking`
    squared FFMA and the loads of 2 x `blocking` registers.
    """
    per_load = load_bits // 32
    loads = -(-2 * blocking // per_load)
    return blocking**2 / (blocking**2 + loads)
