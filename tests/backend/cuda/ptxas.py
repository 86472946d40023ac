"""What ptxas reports of a kernel: its registers, its local memory and its spills."""

from __future__ import annotations

import re

from tilewright.backend.cubin import Cubin
from tilewright.dataclass import dataclass


@dataclass(frozen=True)
class Usage:
    """What ptxas says that a kernel uses; None where it said nothing.

    Parameters
    ----------
    registers, barriers : int or None
        Of a thread, and of a block.
    shared_bytes : int or None
        Static shared memory.
    stack_bytes, spill_store_bytes, spill_load_bytes : int or None
        Local memory of a thread.
    """

    registers: int | None = None
    barriers: int | None = None
    shared_bytes: int | None = None
    stack_bytes: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None


def usage(made: Cubin, entry: str = "gemm") -> Usage:
    """Return what ptxas says in a cubin's log that an entry uses."""
    name = made.lowered.get(entry, entry)
    parts = re.split(r"Compiling entry function '([^']+)'", made.log)
    said = next((text for at, text in zip(parts[1::2], parts[2::2], strict=True) if at == name), "")

    def number(pattern: str, missing: int | None = None) -> int | None:
        hit = re.search(pattern, said)
        return int(hit[1]) if hit else missing

    registers = number(r"Used (\d+) registers")
    # ptxas leaves out what is zero.
    none = None if registers is None else 0
    return Usage(
        registers,
        number(r"used (\d+) barriers", none),
        number(r"(\d+) bytes smem", none),
        number(r"(\d+) bytes stack frame", none),
        number(r"(\d+) bytes spill stores", none),
        number(r"(\d+) bytes spill loads", none),
    )
