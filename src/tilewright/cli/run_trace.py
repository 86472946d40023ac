"""Calls of a program under ``tilewright run --trace``: spans of the timeline that records."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tilewright import timeline
from tilewright.export.plans import ACCURACIES

__all__ = ["take_traces"]

# tilewright_log.h: tilewright_row, with the numbers of a tilewright_kind in it.
_ROW = struct.Struct("<32s4q9q2d")
_LIBRARIES, _PRECISIONS, _OPERATIONS = ("cublas", "blas"), "sdcz", "NTC"

# The names in a timeline of libraries that calls were passed on to.
_OTHERS = {"cublas": "cuBLAS", "blas": "BLAS"}


class _Row(NamedTuple):
    name: bytes
    begun: int
    ended: int
    seen: int
    thread: int
    library: int
    letter: int
    op_a: int
    op_b: int
    m: int
    n: int
    k: int
    batch: int
    served: int
    ours_ms: float
    theirs_ms: float


def take_traces(folder: Path, name: str, kinds: Sequence[Mapping[str, Any]]) -> None:
    """Add what the processes of a program called to the timeline.

    A call is a span of its thread: it ends when the function returns, the device perhaps later.
    Where cuBLAS computed it, too, both are spans of the device.

    Parameters
    ----------
    folder : Path
        Where the preloaded library wrote.
    name : str
        Of the program.
    kinds : sequence of mapping
        What `tilewright.cli.run.read_log` returns: kernels of the kinds of calls.
    """
    kernels = {
        (row["library"], row["precision"], row["trans"], *row["size"]): row["kernel"]
        for row in kinds
        if row["served"] and row["kernel"] not in ACCURACIES
    }
    for file in sorted(folder.glob("*.trace")):
        pid, host, device, more = int(file.stem), [], [], 0
        for row in _rows(file.read_bytes()):
            if not row.begun:
                more = row.m
                continue
            function, about = row.name.rstrip(b"\0").decode(), _about(row, kernels)
            host.append((function, row.begun, row.ended, pid, row.thread, about))
            if row.seen:
                device += _computed(row, pid, about)
        timeline.merge(
            {"host": host, "device": device, "dropped": {"calls": more}, "processes": {pid: name}}
        )


def _rows(data: bytes) -> Iterator[_Row]:
    whole = len(data) // _ROW.size * _ROW.size  # a killed program's last row may be cut
    return map(_Row._make, _ROW.iter_unpack(data[:whole]))


def _about(row: _Row, kernels: Mapping[tuple[Any, ...], str]) -> dict[str, Any]:
    library, size = _LIBRARIES[row.library], (row.m, row.n, row.k)
    if row.letter < 0:  # of another type; its operations may be unknown, too
        return {"size": _size(row), "served by": _OTHERS[library]}
    precision = _PRECISIONS[row.letter]
    trans = "".join(_OPERATIONS[x] if x in (0, 1, 2) else "?" for x in (row.op_a, row.op_b))
    about = {"precision": precision, "trans": trans, "size": _size(row)}
    if not row.served:
        return {**about, "served by": _OTHERS[library]}
    if row.served > 1:
        return {**about, "served by": ACCURACIES[row.letter % 2]}
    kernel = kernels.get((library, precision, trans, *size)) if row.batch == 1 else None
    return {**about, "served by": "tilewright", **({"kernel": kernel} if kernel else {})}


def _size(row: _Row) -> str:
    return f"{row.m} x {row.n} x {row.k}" + (f", {row.batch} of them" if row.batch != 1 else "")


def _computed(row: _Row, pid: int, about: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return rows of device spans: cuBLAS's, and ours right behind it."""
    between = row.seen - round(1e6 * row.ours_ms)
    begun = between - round(1e6 * row.theirs_ms)
    ours = about.get("kernel", about["served by"])
    both = (("cuBLAS", begun, between), (ours, between, row.seen))
    track = f"cuda, thread {row.thread}"  # its calls wait: no two spans overlap
    return [(track, name, *times, row.seen, pid, about) for name, *times in both]
