"""A cubin with what its compiler said of it; importing this imports no compiler."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field

from tilewright.dataclass import dataclass

__all__ = ["Cubin"]

_MAGIC = b"tilewright cubin 1\n"


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
