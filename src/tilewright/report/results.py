"""Results files: the JSON that benchmarks write, read as data that anybody may have written.

A file that is none of ours, or damaged, is left out with a reason; it never ends a report.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.report.climbs import Climb, climb_of
from tilewright.report.mixes import Mix, counted_loops, figure1_loops, inspected_loops
from tilewright.report.records import Feeding, accuracies, feedings, pair_runs, race_runs
from tilewright.report.runs import MeasuredOn, Run, date_of, device_of, is_timed, run_of
from tilewright.text import plain

__all__ = ["MeasuredOn", "Results", "Run", "read_results"]

# The largest results file kept so far has 1.2 MB.
_LIMIT_BYTES = 64 << 20


@dataclass
class Results:
    """Everything a results folder holds.

    ``other`` are readable documents that no section shows, ``left_out`` what could not be
    read, and why; both by file.
    """

    devices: dict[str, MeasuredOn] = field(default_factory=dict)
    runs: list[Run] = field(default_factory=list)
    climbs: list[Climb] = field(default_factory=list)
    mixes: list[Mix] = field(default_factory=list)
    feedings: list[Feeding] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def read_results(folder: Path | None) -> Results:
    """Read every JSON file below a folder, in the order of their names.

    A race that names no device is of the one that the files beside it name, if they name one.
    """
    found = Results()
    paths = [] if folder is None else sorted(folder.rglob("*.json"))
    beside: dict[Path, set[str]] = defaultdict(set)
    races: list[tuple[Path, str, dict[str, Any]]] = []
    for path in paths:
        assert folder is not None
        name = plain(path.relative_to(folder).as_posix())
        try:
            document = _document(path)
            if isinstance(document.get("log"), list):
                races.append((path.parent, name, document))
                continue
            beside[path.parent] |= (devices := _read(document, name, found)) or set()
            (found.other if devices is None else found.files).append(name)
        except _DAMAGED as problem:
            found.left_out[name] = _reason(problem)
    for parent, name, document in races:
        try:
            found.runs += race_runs(document, _raced_on(document, found, beside[parent]), name)
            found.files.append(name)
        except _DAMAGED as problem:
            found.left_out[name] = _reason(problem)
    found.files.sort()
    return found


_DAMAGED = (
    OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError
)  # fmt: skip


def _reason(problem: Exception) -> str:
    text = f"{type(problem).__name__}: {problem}" if str(problem) else "unreadable"
    return plain(text)[:200]


def _raced_on(document: Mapping[str, Any], found: Results, beside: set[str]) -> str:
    """Return the device of a race: its own, or else the only one of its folder."""
    if isinstance(document.get("device"), dict):
        measured = device_of(document["device"])
        found.devices.setdefault(measured.fingerprint, measured)
        return measured.fingerprint
    if len(beside) != 1:
        raise ValueError(f"it names no device, and the files beside it name {len(beside)}")
    return next(iter(beside))


def _document(path: Path) -> dict[str, Any]:
    """Return a file's document; one that is no object holds nothing."""
    if path.stat().st_size > _LIMIT_BYTES:
        raise ValueError(f"larger than {_LIMIT_BYTES >> 20} MiB")
    document = json.loads(path.read_bytes())
    return document if isinstance(document, dict) else {}


def _read(document: Mapping[str, Any], name: str, found: Results) -> set[str] | None:
    """Add what one file holds; return the devices it names, None if the report shows nothing."""
    if isinstance(document.get("devices"), list):
        return _read_sweep(document, name, found)
    if isinstance(document.get("device"), dict):
        return _read_one_device(document, name, found)
    for key, read in (
        ("loops", counted_loops),
        ("kernels", inspected_loops),
        ("points", figure1_loops),
    ):
        if isinstance(document.get(key), list):
            mixes = list(read(document, name))
            found.mixes += mixes
            return set() if mixes else None
    return None


def _read_sweep(document: Mapping[str, Any], name: str, found: Results) -> set[str]:
    """Add the runs of a sweep, or the climbs of a ladder."""
    devices, runs, climbs = [], [], []
    for device in document["devices"]:
        measured = device_of(device)
        devices.append(measured)
        # A sweep's rows have rates, those of a ladder have rungs.
        about = (measured.fingerprint, name, date_of(document))
        climbs += [climb_of(row, *about) for row in device["results"] if "rungs" in row]
        runs += [run_of(row, *about) for row in device["results"] if is_timed(row)]
    found.devices |= {one.fingerprint: one for one in devices}
    found.runs += runs
    found.climbs += climbs
    return {one.fingerprint for one in devices}


def _read_one_device(document: Mapping[str, Any], name: str, found: Results) -> set[str] | None:
    """Add what double-double's benchmark or the microbenchmarks measured on a device."""
    if not isinstance(document["device"].get("fingerprint"), str):
        return None
    measured = device_of(document["device"])
    about = (measured.fingerprint, name, date_of(document))
    runs: list[Run] = []
    if isinstance(document.get("accuracy"), list):
        runs = [*pair_runs(document, *about), *accuracies(document, *about)]
    fed = list(feedings(document, measured.fingerprint, name))
    if not runs and not fed:
        return None
    found.runs += runs
    found.feedings += fed
    # A sweep's record of the device says more: the versions of its peers.
    found.devices.setdefault(measured.fingerprint, measured)
    return {measured.fingerprint}
