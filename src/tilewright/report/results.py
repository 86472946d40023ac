"""Results files: the JSON that benchmarks write, read as data that anybody may have written.

A file that is none of ours, or damaged, is left out with a reason; it never ends a report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.report.climbs import Climb, climb_of
from tilewright.report.feeding import Feeding, feedings
from tilewright.report.mixes import Mix, blocking_loops, inspected_loops
from tilewright.report.runs import (
    Errors,
    MeasuredOn,
    Run,
    date_of,
    device_of,
    errors_of,
    is_timed,
    run_of,
)
from tilewright.text import plain

__all__ = ["MeasuredOn", "Results", "Run", "read_results"]

# The largest results file kept so far has 0.4 MB.
_LIMIT_BYTES = 64 << 20


@dataclass
class Results:
    """Everything a results folder holds.

    ``runs`` are products of IEEE arithmetic at sizes of their own, ``tensor`` those on tensor
    cores, ``samples`` those of a set of shapes; ``errors`` compare arithmetics.  ``other`` are
    readable documents that no section shows, ``left_out`` what could not be read, and why; both
    by file.
    """

    devices: dict[str, MeasuredOn] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    tensor: list[Run] = field(default_factory=list)
    samples: list[Run] = field(default_factory=list)
    errors: list[Errors] = field(default_factory=list)
    climbs: list[Climb] = field(default_factory=list)
    mixes: list[Mix] = field(default_factory=list)
    feedings: list[Feeding] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def read_results(*folders: Path) -> Results:
    """Read every JSON file below some folders, in the order of their names."""
    found = Results()
    for folder, path in ((one, path) for one in folders for path in sorted(one.rglob("*.json"))):
        name = plain(path.relative_to(folder).as_posix())
        try:
            (found.files if _read(_document(path), name, found) else found.other).append(name)
        except _DAMAGED as problem:
            found.left_out[name] = _reason(problem)
    return found


_DAMAGED = (
    OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError
)  # fmt: skip


def _reason(problem: Exception) -> str:
    if isinstance(problem, KeyError):
        text = f"its {problem} is missing"
    else:
        text = f"{type(problem).__name__}: {problem}" if str(problem) else "unreadable"
    return plain(text)[:200]


def _document(path: Path) -> dict[str, Any]:
    """Return a file's document; one that is no object holds nothing."""
    if path.stat().st_size > _LIMIT_BYTES:
        raise ValueError(f"larger than {_LIMIT_BYTES >> 20} MiB")
    document = json.loads(path.read_bytes())
    return document if isinstance(document, dict) else {}


def _read(document: Mapping[str, Any], name: str, found: Results) -> bool:
    """Add what one file holds; return whether the report shows any of it."""
    if isinstance(document.get("devices"), list):
        return _read_rows(document, name, found)
    if isinstance(document.get("kernels"), list):
        mixes = list(inspected_loops(document, name))
        found.mixes += mixes
        return bool(mixes)
    if isinstance(document.get("device"), dict) and "experiments" in document:
        measured = device_of(document["device"])
        fed = list(feedings(document, measured.fingerprint, name))
        found.feedings += fed
        if fed:  # a sweep's record of the device says more: the versions of its peers
            found.devices.setdefault(measured.fingerprint, measured)
        return bool(fed)
    return False


def _read_rows(document: Mapping[str, Any], name: str, found: Results) -> bool:
    """Add the runs of a sweep, the climbs of a ladder, or the loops of register blockings."""
    devices: list[MeasuredOn] = []
    runs: list[Run] = []
    climbs: list[Climb] = []
    mixes: list[Mix] = []
    errors: list[Errors] = []
    for device in document["devices"]:
        rows = device["results"]
        mixes += blocking_loops(rows, name)
        timed = [row for row in rows if is_timed(row)]
        climbed = [row for row in rows if "rungs" in row]
        compared = [row for row in rows if "data" in row and "errors" in row]
        if not (timed or climbed or compared):
            continue
        measured = device_of(device)
        devices.append(measured)
        about = (measured.fingerprint, name, date_of(document))
        climbs += [climb_of(row, *about) for row in climbed]
        runs += [run_of(row, *about) for row in timed]
        told = (errors_of(row, measured.fingerprint, name) for row in compared)
        errors += [one for one in told if one is not None]
    for one in devices:
        known = found.devices.get(one.fingerprint)
        if known is None or len(one.peers) >= len(known.peers):
            found.devices[one.fingerprint] = one
    for run in runs:
        tensor = found.tensor if run.kind else found.runs
        (found.samples if run.shapes else tensor).append(run)
    found.errors += errors
    found.climbs += climbs
    found.mixes += mixes
    return bool(devices or mixes)
