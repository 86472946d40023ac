"""Kernels with a class of instructions taken out of their loop over k: machine code, no device.

A patched kernel runs as many trips as before and stores the same part of C, with other numbers in
it (`ablation_loop`): it is for timing only.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ablation_loop import OTHERS, classes_of, closed
from tilewright.sass import (
    Instruction,
    decode,
    edit,
    hazards,
    k_loop,
    loop_accesses,
    main_loop,
    patch,
    port_use,
    read_cubin,
    simulate,
    steady_trace,
)
from tilewright.sass.decode import INSTRUCTION_BYTES
from tilewright.sass.edit import nop
from tilewright.sass.loops import is_useful
from tilewright.sass.machine import machine_of
from tilewright.sass.rename import registers_of

PLAIN = "as compiled"
# Cycles after which no result of fixed latency is under way; each instruction takes one or more.
_SETTLED = 16


@dataclass(frozen=True)
class Change:
    """What becomes of the loop.

    Parameters
    ----------
    gone : tuple of str
        Of `ablation_loop.CLASSES`; each of their instructions becomes a NOP.
    deleted : bool
        They leave no NOP: what follows moves up.
    no_reuse, no_yields : bool
        The multiply-adds' reuse flags are cleared; nothing advises the scheduler to turn to
        another warp.
    free : bool
        The multiply-adds' factors become registers that never wait for a port.
    """

    gone: tuple[str, ...] = ()
    deleted: bool = False
    no_reuse: bool = False
    no_yields: bool = False
    free: bool = False


VARIANTS = {
    PLAIN: Change(),  # loaded a second time: the difference is the noise
    "no copies": Change(("copies",)),
    "no copies, no addresses": Change(("copies", "addresses")),
    "the same, deleted": Change(("copies", "addresses"), deleted=True),
    "no empty reads": Change(("empty reads",)),
    "no empty reads, deleted": Change(("empty reads",), deleted=True),
    "no copies, addresses, empty reads": Change(("copies", "addresses", "empty reads")),
    "no reads": Change(("reads",)),
    "no block barrier": Change(("block barrier",)),
    "no barriers": Change(("barriers",)),
    "FFMA and reads": Change(("copies", "addresses", "empty reads", "barriers")),
    "FFMA only": Change((OTHERS,)),
    "FFMA only, deleted": Change((OTHERS,), deleted=True),
    "no reuse flags": Change(no_reuse=True),
    "no advice to yield": Change(no_yields=True),
    "no port conflicts": Change(free=True),
    "FFMA only, no port conflicts": Change((OTHERS,), free=True),
    "FFMA only, deleted, no conflicts": Change((OTHERS,), deleted=True, free=True),
}


@dataclass(frozen=True)
class Body:
    """A kernel whose trip of the loop over k is one run, and the classes of what is in it.

    Parameters
    ----------
    cubin : bytes
        The file that it is of.
    name : str
        The kernel's.
    arch, registers : int
        Architecture number; one more than the highest register that the kernel names: those
        above, which ptxas counts for itself, are illegal on the device.
    kernel, loop : tuple of Instruction
        All of it, and the loop's part.
    classes : dict
        Positions in the loop of each of `ablation_loop.CLASSES`.
    """

    cubin: bytes
    name: str
    arch: int
    registers: int
    kernel: tuple[Instruction, ...]
    loop: tuple[Instruction, ...]
    classes: dict[str, frozenset[int]]

    @classmethod
    def of(cls, cubin: bytes, name: str | None = None) -> Body:
        """Return a kernel's loop.

        Raises
        ------
        ValueError
            If there is none, or a trip is not all of it, or something leads into its middle.
        """
        found = read_cubin(cubin).kernel(name)
        kernel = decode(found.code, found.arch)
        loop = main_loop(kernel)
        if loop is None:
            raise ValueError(f"kernel={found.name} has no loop with multiply-adds; give a GEMM")
        body = loop.instructions
        if steady_trace(kernel, k_loop(kernel, loop)) != body or not closed(kernel, body):
            raise ValueError(f"kernel={found.name}: its loop has other ways; unroll all of it")
        classes = classes_of(kernel, body)
        return cls(cubin, found.name, found.arch, registers_of(kernel), kernel, body, classes)

    @functools.cached_property
    def multiply_adds(self) -> int:
        """Multiply-adds of a warp in one trip."""
        return sum(map(is_useful, self.loop))

    def gone(self, change: Change) -> frozenset[int]:
        """Return the positions in the loop of what a change takes out."""
        return frozenset[int]().union(*(self.classes[name] for name in change.gone))

    def changed(self, change: Change) -> tuple[Instruction, ...]:
        """Return the loop with a change, as long as before: behind its branch may stand NOPs.

        Raises
        ------
        ValueError
            If something else than data would come too early.
        """
        made = list(self.loop)
        if change.free:
            made = without_conflicts(made, self.arch, self.registers)
        made = [_without_flags(one, self.arch, change) for one in made]
        gone = self.gone(change)
        if change.deleted:
            return _closed_up(made, gone, self.arch)
        made = [nop(one, self.arch) if at in gone else one for at, one in enumerate(made)]
        if (at := _short(made, _near(made), self.arch)) is not None:
            raise ValueError(f"what follows {made[at]} at {made[at].address:#x} would be too early")
        return tuple(made)

    def patched(self, change: Change) -> bytes:
        """Return the cubin with a change; it computes nothing of use and must not be kept."""
        was = dict(zip((one.address for one in self.loop), self.loop, strict=True))
        new = [one for one in self.changed(change) if one.raw != was[one.address].raw]
        return patch(self.cubin, new, self.name)


# ---- Changes ---------------------------------------------------------------------------------


def _without_flags(one: Instruction, arch: int, change: Change) -> Instruction:
    """Return an instruction without the flags that a change clears."""
    control = one.control
    if change.no_reuse and is_useful(one) and any(control.reuse):
        one = edit(one, arch, reuse=(False,) * 3)
    if change.no_yields and control.yields:
        one = edit(one, arch, yields=False)
    return one


def without_conflicts(body: Sequence[Instruction], arch: int, registers: int) -> list[Instruction]:
    """Return a loop whose multiply-adds take one register as both factors, of the sum's other bank.

    A bank then serves one read for each of them (`tilewright.sass.ports`).
    """
    written = {register for one in body for register in one.dst}
    # The highest are taken last by the compiler, so they are the likeliest to stand still.
    still = [r for r in range(registers - 1, -1, -1) if r not in written] or [1, 0]
    factor = [next((r for r in still if r % 2 == bank), bank) for bank in (0, 1)]
    made = []
    for one in body:
        kinds = [operand.kind for operand in one.srcs]
        if one.mnemonic == "FFMA" and is_useful(one) and kinds == ["reg"] * 3:
            other = factor[1 - one.srcs[2].value % 2]
            made.append(edit(one, arch, a=other, b=other, reuse=(False,) * 3))
        else:
            made.append(one)
    return made


def _closed_up(
    body: Sequence[Instruction], gone: frozenset[int], arch: int
) -> tuple[Instruction, ...]:
    """Return a loop without some instructions, and NOPs behind its branch in their place.

    Waits of what is gone pass to what follows.

    Raises
    ------
    ValueError
        If no stall is long enough to keep what is left apart.
    """
    made, waits = [], 0
    kept = [at for at in range(len(body)) if at not in gone]
    for at, one in enumerate(body):
        waits |= one.control.wait_mask
        if at in gone:
            continue
        address = body[len(made)].address
        if one.target is not None:
            leads = body[bisect_left(kept, _position(one.target, body))].address
            made.append(edit(one, arch, address=address, target=leads, wait_mask=waits))
        elif waits != one.control.wait_mask:
            made.append(edit(one, arch, address=address, wait_mask=waits))
        else:
            made.append(replace(one, address=address))
        waits = 0
    _space(made, arch)
    for one in body[len(made) :]:
        made.append(edit(nop(one, arch), arch, stall=1, wait_mask=0))
    return tuple(made)


def _position(address: int, body: Sequence[Instruction]) -> int:
    return (address - body[0].address) // INSTRUCTION_BYTES


def _space(made: list[Instruction], arch: int) -> None:
    """Lengthen stalls until nothing but data comes too late: what is gone stood between."""
    near = _near(made)
    while (at := _short(made, near, arch)) is not None:
        made[at] = edit(made[at], arch, stall=made[at].control.stall + 1)


def _near(made: Sequence[Instruction]) -> list[int]:
    """Return the positions of all but multiply-adds with nothing else around them."""
    near: set[int] = set()
    for at, one in enumerate(made):
        if not is_useful(one):
            near.update(range(max(0, at - _SETTLED), min(len(made), at + _SETTLED + 1)))
        elif one.control.wait_mask:
            near.add(at)
    return sorted(near)


def _short(made: Sequence[Instruction], near: Sequence[int], arch: int) -> int | None:
    """Return the position of a stall in a loop that is too short; None where all are long enough.

    Multiply-adds stand aside as NOPs: what one reads too early is wrong data, as in every patched
    kernel.
    """
    alone = []
    for place, at in enumerate(near):
        one = nop(made[at], arch) if is_useful(made[at]) else made[at]
        leads = None if one.target is None else bisect_left(near, _position(one.target, made))
        target = None if leads is None else leads * INSTRUCTION_BYTES
        alone.append(replace(one, address=place * INSTRUCTION_BYTES, target=target))
    for hazard in hazards(alone):
        place = hazard.address // INSTRUCTION_BYTES
        if "stalls" in hazard.reason:  # for less than must lie between it and the next one
            return near[place]
        if place:
            return near[place - 1]
    return None


# ---- What the model says ---------------------------------------------------------------------


def predictions(body: Body, blocks: int, threads: int) -> Iterator[dict[str, object]]:
    """Yield a row for each variant: its instructions and the model's cycles for a trip.

    Parameters
    ----------
    body : Body
        The loop.
    blocks : int
        Resident on a multiprocessor.
    threads : int
        Of a block.
    """
    chip = machine_of(body.arch)
    loop = k_loop(body.kernel, found) if (found := main_loop(body.kernel)) else None
    assert loop is not None
    known = loop_accesses(body.kernel, loop, threads).wavefronts
    for name, change in VARIANTS.items():
        row: dict[str, object] = {"variant": name, "reason": ""}
        try:
            gone = body.gone(change)
            now = body.changed(change)[: len(body.loop) - len(gone) * change.deleted]
        except ValueError as error:
            yield {**row, "reason": str(error)}
            continue
        left = [one.address for at, one in enumerate(body.loop) if at not in gone]
        if change.deleted:  # accesses have other addresses
            moved = zip(left, now, strict=True)
            passes = {new.address: known[old] for old, new in moved if old in known}
        else:
            passes = known
        yield {
            **row,
            "instructions": len(now),
            "gone": len(gone),
            "ports": sum(use.cycles for use in port_use(now, chip.memory_apart)),
            "predicted": simulate(now, body.arch, blocks, threads // 32, wavefronts=passes),
        }
