"""A cubin with what its compiler said of it; importing this imports no compiler."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import field

from tilewright.dataclass import dataclass

__all__ = ["Cubin", "Usage"]

_MAGIC = b"tilewright cubin 1\n"


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


@dataclass(frozen=True)
class Cubin:
    """A compiled source.

    Parameters
    ----------
    code : bytes
        The ELF file.
    log : str
        What the compiler said, ptxas included.
    lowered : Mapping
        Names in the binary by their names in the source.
    arch : str
        What it was compiled for, such as ``"sm_90a"``.
    seconds : float
        How long that took; zero for a cubin from the cache.
    """

    code: bytes
    log: str
    lowered: Mapping[str, str]
    arch: str
    seconds: float = field(default=0.0, compare=False)

    def usage(self, entry: str = "gemm") -> Usage:
        """Return what ptxas says that an entry uses."""
        return _usage(self.log, self.lowered.get(entry, entry))

    def to_bytes(self) -> bytes:
        """Return everything but the time as one piece, for the disk cache."""
        head = {"log": self.log, "lowered": dict(self.lowered), "arch": self.arch}
        return _MAGIC + json.dumps(head).encode() + b"\n" + self.code

    @classmethod
    def from_bytes(cls, data: bytes) -> Cubin:
        """Return what `to_bytes` made.

        Raises
        ------
        ValueError
            If the data are something else.
        """
        if not data.startswith(_MAGIC):
            raise ValueError("not a stored cubin")
        head, _, code = data[len(_MAGIC) :].partition(b"\n")
        return cls(code=code, **json.loads(head))


def _usage(log: str, name: str) -> Usage:
    """Read ptxas's report on one kernel."""
    parts = re.split(r"Compiling entry function '([^']+)'", log)
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
