"""What a kernel takes from the machine, in one record."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tilewright.sass.decode import INSTRUCTION_BYTES, opcodes
from tilewright.sass.elf import Kernel
from tilewright.sass.opcodes import find_op

__all__ = ["Resources", "resources"]


@dataclass(frozen=True)
class Resources:
    """Registers, memory and spills of one kernel.

    ``local_loads`` and ``local_stores`` count LDL and STL instructions in the
    whole kernel: register spills, and arrays that the compiler could not keep
    in registers.  The two cannot be told apart from the instructions.
    """

    name: str
    arch: int
    registers: int
    shared_bytes: int
    stack_bytes: int
    local_loads: int
    local_stores: int
    barriers: int
    param_bytes: int
    constant_bytes: int
    max_threads: int | None
    instructions: int


def resources(kernel: Kernel) -> Resources:
    """Return what a kernel takes.

    Raises
    ------
    ValueError
        If its machine code is of another format; see `tilewright.sass.decode`.
    """
    counts: Counter[str] = Counter()
    for opcode, count in Counter(opcodes(kernel.code, kernel.arch).tolist()).items():
        op = find_op(opcode, kernel.arch)
        counts[op.mnemonic if op else ""] += count
    threads = kernel.max_threads
    return Resources(
        name=kernel.name,
        arch=kernel.arch,
        registers=kernel.registers,
        shared_bytes=kernel.shared_bytes,
        stack_bytes=max(kernel.frame_bytes, kernel.stack_bytes),
        local_loads=counts["LDL"],
        local_stores=counts["STL"],
        barriers=kernel.barriers,
        param_bytes=kernel.param_bytes,
        constant_bytes=kernel.constant_bytes,
        max_threads=threads[0] * threads[1] * threads[2] if threads else None,
        instructions=len(kernel.code) // INSTRUCTION_BYTES,
    )
