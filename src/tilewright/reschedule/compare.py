"""Two versions of a kernel: what changed, whether it is proved harmless, what it should gain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.reschedule.equivalence import differences
from tilewright.sass.cycles import LoopCycles
from tilewright.sass.decode import decode
from tilewright.sass.elf import Kernel
from tilewright.sass.instruction import Instruction
from tilewright.sass.report import Inspection, inspect_kernel

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True)
class Comparison:
    """What `compare` found.

    Parameters
    ----------
    before, after : Inspection
        Both versions.
    changes : dict
        Kind of change to the number of addresses that have it.
    lines : tuple of (int, str, str)
        Address, and what stood and stands there, where that differs.
    reasons : tuple of str
        Why `after` is not proved to compute what `before` does; empty if it is.
    """

    before: Inspection
    after: Inspection
    changes: dict[str, int]
    lines: tuple[tuple[int, str, str], ...] = field(repr=False)
    reasons: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the lines as plain data for JSON."""
        return {
            "kernel": self.before.resources.name,
            "changes": self.changes,
            "proved_same": not self.reasons,
            "reasons": list(self.reasons),
            "predicted": {
                "before": _predicted(self.before.cycles),
                "after": _predicted(self.after.cycles),
            },
        }


def compare(
    before: Kernel, after: Kernel, threads: int | None = None, dynamic_shared_bytes: int = 0
) -> Comparison:
    """Compare two versions of a kernel.

    Parameters
    ----------
    before, after : Kernel
        From `tilewright.sass.read_cubin`.
    threads, dynamic_shared_bytes : int
        As in `tilewright.sass.inspect_kernel`.

    Raises
    ------
    ValueError
        If they are for different architectures.
    """
    if before.arch != after.arch:
        raise ValueError(
            f"after=sm_{after.arch} is for another architecture than before=sm_{before.arch};"
            " compile both for one"
        )
    old, new = decode(before.code, before.arch), decode(after.code, after.arch)
    return Comparison(
        inspect_kernel(before, threads, dynamic_shared_bytes),
        inspect_kernel(after, threads, dynamic_shared_bytes),
        _changes(old, new),
        tuple(
            (x.address, str(x), str(y)) for x, y in zip(old, new, strict=False) if x.raw != y.raw
        ),
        tuple(differences(old, new, before.arch)),
    )


def _changes(old: Sequence[Instruction], new: Sequence[Instruction]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for x, y in zip(old, new, strict=False):
        counts["another instruction"] += x.name != y.name
        same = x.name == y.name
        mine = [(o.slot, o.value) for o in x.srcs]
        theirs = [(o.slot, o.value) for o in y.srcs]
        counts["other registers"] += same and (x.dst, mine) != (y.dst, theirs)
        counts["reuse flags"] += x.control.reuse != y.control.reuse
        counts["stall"] += x.control.stall != y.control.stall
        counts["yield"] += x.control.yields != y.control.yields
        counts["barriers and waits"] += _waits(x) != _waits(y)
    counts["instructions more or fewer"] = abs(len(old) - len(new))
    return {kind: count for kind, count in counts.items() if count}


def _waits(one: Instruction) -> tuple[int | None, int | None, int]:
    control = one.control
    return control.write_barrier, control.read_barrier, control.wait_mask


def _predicted(cycles: LoopCycles | None) -> dict[str, Any] | None:
    if cycles is None:
        return None
    return {"cycles": cycles.cycles, "pipe_share": cycles.pipe_share, "terms": cycles.terms}
