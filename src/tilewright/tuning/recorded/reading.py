"""Reading recorded spaces: T4 results files of any tuner, and Kernel Tuner's cache files.

Both may be compressed with gzip.  The files are data from anywhere: nothing in them is run, and
every value is checked for its type.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.space import Parameter, Value
from tilewright.space.aliases import current
from tilewright.tuning.recorded.recording import Recording
from tilewright.tuning.recorded.space import RecordedSpace

__all__ = ["STATIC", "UNNAMED", "RecordingError", "read_recordings"]

# Largest that is read, uncompressed: the largest of the public spaces has 20 MB.
_LIMIT = 1 << 30

# What trying a point took, in milliseconds, by Kernel Tuner's names and by T4's.
_CACHE_COSTS = ("compile_time", "verification_time", "benchmark_time")
_T4_COSTS = ("compilation", "compilation_time", "validation", "benchmark", "runtimes")

UNNAMED = -1
"""What a recorded point has for a parameter that its config does not name."""

# The unit by which a T4 file says that a measurement is of the machine code, known before it ran.
STATIC = "static"

# What our records say of a measurement: the same for all points of one recording.
_TOLD_APART = ("stencil", "device", "device_name", "backend", "problem")


class RecordingError(ValueError):
    """A file is no recorded space; the message is one line that says what to give."""


def read_recordings(path: str | os.PathLike[str]) -> list[Recording]:
    """Return the recorded spaces of a file.

    A file of ours may hold several problems and devices: each is a recording of its own.  Where
    it has a point more than once, the last measurement counts that did not fail.

    Parameters
    ----------
    path : str or path
        A T4 results file, such as ``tilewright db export`` writes, or a cache file of Kernel
        Tuner; ``.gz`` for one compressed with gzip.

    Raises
    ------
    RecordingError
        If it is neither, or none of its points was timed.
    """
    path = Path(path)
    document = _document(path)
    if isinstance(document.get("cache"), dict):
        found = [_of_cache(path, document)]
    elif isinstance(document.get("results"), list):
        found = _of_t4(path, document)
    else:
        raise RecordingError(
            f"{path}: has neither results nor a cache; give a T4 results file or a cache file of"
            " Kernel Tuner"
        )
    timed = [one for one in found if np.isfinite(one.seconds).any()]
    if not timed:
        raise RecordingError(f"{path}: none of its points was timed; give another file")
    return timed


def _document(path: Path) -> dict[str, Any]:
    """Return the outermost object of a JSON file; Kernel Tuner leaves its last brackets open."""
    try:
        with path.open("rb") as raw:
            file = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
            text = file.read(_LIMIT + 1)
    except (OSError, EOFError) as problem:
        raise RecordingError(f"{path}: cannot be read: {problem}; name a file") from None
    if len(text) > _LIMIT:
        raise RecordingError(f"{path}: larger than {_LIMIT >> 20} MiB; give less at a time")
    for ending in (b"", b"}\n}"):
        try:
            found = json.loads(text.rstrip().removesuffix(b",") + ending)
        except (ValueError, RecursionError) as problem:
            reason = problem
            continue
        if not isinstance(found, dict):
            raise RecordingError(f"{path}: JSON, but no recorded space; name a T4 results file")
        return found
    raise RecordingError(f"{path}: not JSON ({reason}); name a T4 results file")


def _of_cache(path: Path, document: Mapping[str, Any]) -> Recording:
    """Return the recording of a cache file of Kernel Tuner."""
    entries = [one for one in document["cache"].values() if isinstance(one, dict)]
    listed = document.get("tune_params_keys")
    names = [str(name) for name in listed] if isinstance(listed, list) else []
    if not names or not entries:
        raise RecordingError(f"{path}: its cache has no points; give another file")
    times = [one.get("time") for one in entries]
    return _recording(
        path,
        name=_stem(path),
        stencil=str(document.get("kernel_name", "kernel")),
        points=[{name: one.get(name) for name in names} for one in entries],
        seconds=[_number(time) / 1e3 for time in times],
        cost=[sum(_numbers(one.get(name) for name in _CACHE_COSTS)) / 1e3 for one in entries],
        reasons=[time if isinstance(time, str) else "" for time in times],
        features=[{} for _ in entries],
        about={"device": str(document.get("device_name", ""))},
    )


def _of_t4(path: Path, document: Mapping[str, Any]) -> list[Recording]:
    """Return the recordings of a T4 file: several where the entries tell problems apart."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for number, entry in enumerate(document["results"]):
        if not isinstance(entry, dict) or not isinstance(entry.get("configuration"), dict):
            raise RecordingError(f"{path}: results[{number}] has no configuration; name a T4 file")
        record = entry.get("tilewright")
        told = {name: record.get(name) for name in _TOLD_APART} if isinstance(record, dict) else {}
        groups.setdefault(json.dumps(told, sort_keys=True, default=str), []).append(entry)
    head = document.get("metadata")
    metadata = head if isinstance(head, dict) else {}
    return [
        _of_entries(path, json.loads(told), entries, metadata, len(groups) > 1)
        for told, entries in groups.items()
    ]


def _of_entries(
    path: Path,
    told: Mapping[str, Any],
    entries: list[dict[str, Any]],
    metadata: Mapping[str, Any],
    several: bool,
) -> Recording:
    about: dict[str, Any] = {"device": str(told.get("device_name") or metadata.get("device", ""))}
    problem = told.get("problem") or metadata.get("problem")
    if isinstance(problem, dict):
        about["problem"] = problem
    invalid = [str(one.get("invalidity", "correct")) for one in entries]
    stencil = str(told.get("stencil") or metadata.get("kernel") or "kernel")
    return _recording(
        path,
        name=_stem(path) + (f" {_title(problem)}" if several else ""),
        stencil=stencil,
        points=[current(stencil, one["configuration"]) for one in entries],
        seconds=[
            _time(entry) / 1e3 if why == "correct" else math.nan
            for entry, why in zip(entries, invalid, strict=True)
        ],
        cost=[_t4_cost(one) for one in entries],
        reasons=["" if why == "correct" else why for why in invalid],
        features=[_static(one) for one in entries],
        about=about,
    )


def _title(problem: Any) -> str:
    """Return a problem in a few characters."""
    if not isinstance(problem, dict):
        return "?"
    sides = "x".join(str(problem.get(side)) for side in "mnk")
    return f"{problem.get('precision')}{problem.get('trans_a')}{problem.get('trans_b')} {sides}"


def _measurements(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what a T4 entry lists as measured."""
    listed = entry.get("measurements")
    return [x for x in (listed if isinstance(listed, list) else ()) if isinstance(x, dict)]


def _time(entry: Mapping[str, Any]) -> float:
    """Return a T4 entry's time in milliseconds."""
    times = [_number(x.get("value")) for x in _measurements(entry) if x.get("name") == "time"]
    return times[0] if times else math.nan


def _static(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return what a T4 entry says of its point's machine code, by name."""
    said = (x for x in _measurements(entry) if x.get("unit") == STATIC)
    return {str(x.get("name")): _number(x.get("value")) for x in said}


def _t4_cost(entry: Mapping[str, Any]) -> float:
    """Return the seconds that a T4 entry's point took to try."""
    times = entry.get("times")
    if not isinstance(times, dict):
        return math.nan
    parts = dict(times)
    if "compilation" in parts:
        parts.pop("compilation_time", None)  # the other name of the same
    spent = [part for name in _T4_COSTS for part in _listed(parts.get(name))]
    return sum(_numbers(spent)) / 1e3


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _number(value: Any) -> float:
    """Return a JSON number; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # an integer beyond all floats
        return math.nan


def _numbers(values: Iterable[Any]) -> list[float]:
    """Return those of some values that are numbers."""
    return [x for x in map(_number, values) if math.isfinite(x)]


def _stem(path: Path) -> str:
    """Return a file's name with its folder's: public files are named by their device alone."""
    return f"{path.parent.name}/{path.name.removesuffix('.gz').removesuffix('.json')}"


def _recording(
    path: Path,
    *,
    name: str,
    stencil: str,
    points: list[dict[str, Any]],
    seconds: list[float],
    cost: list[float],
    reasons: list[str],
    features: list[dict[str, float]],
    about: Mapping[str, Any],
) -> Recording:
    """Put the columns of a recording together, a row for each distinct point."""
    for point, time in zip(points, seconds, strict=True):
        if time <= 0:
            raise RecordingError(
                f"{path}: time {1e3 * time:g} ms of {json.dumps(point)} is none; give one above 0"
            )
    try:
        parameters, codes, fixed = _encoded(points)
    except ValueError as problem:
        raise RecordingError(f"{path}: {problem}") from None
    if not parameters:
        raise RecordingError(f"{path}: has a problem with one point only; give a file with more")
    last: dict[tuple[int, ...], int] = {}
    for row, code in enumerate(codes.tolist()):
        known = last.get(tuple(code))
        if known is None or math.isfinite(seconds[row]) or not math.isfinite(seconds[known]):
            last[tuple(code)] = row
    kept = np.array(list(last.values()))
    names = sorted({key for one in features for key in one})
    columns = {key: np.array([one.get(key, math.nan) for one in features])[kept] for key in names}
    return Recording(
        name=name,
        space=RecordedSpace(re.sub(r"\W+", "_", stencil)[:64] or "kernel", parameters, codes[kept]),
        seconds=np.array(seconds)[kept],
        cost=np.array(cost)[kept],
        reasons=tuple(reasons[row] for row in kept.tolist()),
        features={key: column for key, column in columns.items() if np.isfinite(column).any()},
        about={**about, "fixed": fixed},
    )


def _encoded(
    points: list[dict[str, Any]],
) -> tuple[list[Parameter], np.ndarray[Any, Any], dict[str, Value]]:
    """Return the parameters that vary, the code of each point's value of each, and the others.

    A number that a point does not name is `UNNAMED`, below all others: our stores leave out what
    goes without saying.

    Raises
    ------
    ValueError
        If two parameters, or two values of one, are spelled alike here.
    """
    parameters: list[Parameter] = []
    columns: list[list[int]] = []
    fixed: dict[str, Value] = {}
    for name in dict.fromkeys(key for point in points for key in point):
        values = [_plain(point.get(name, UNNAMED)) for point in points]
        distinct = sorted(set(values), key=lambda x: (isinstance(x, str), x))
        if len(distinct) < 2:
            only = distinct[0]
            fixed[name] = only if isinstance(only, int | str) else str(only)
            continue
        code = {value: at for at, value in enumerate(distinct)}
        columns.append([code[value] for value in values])
        parameter = _parameter(name, distinct)
        if any(parameter.name == other.name for other in parameters):
            raise ValueError(
                f"two parameters are {parameter.name!r} where signs are underscores; rename one"
            )
        parameters.append(parameter)
    return parameters, np.array(columns).T, fixed


def _plain(value: Any) -> int | float | str:
    """Return a parameter's value as something that can be compared."""
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, int | float | str) else json.dumps(value)


def _parameter(name: str, values: list[Any]) -> Parameter:
    """Return a parameter of some values in order; of text where one is no integer."""
    whole = all(isinstance(x, int) and abs(x) < 1 << 62 for x in values)
    plain: tuple[int, ...] | tuple[str, ...] = tuple(values if whole else map(str, values))
    safe = re.sub(r"\W", "_", name)
    return Parameter(safe if safe.isidentifier() else f"p_{safe}", plain, "recorded", "unknown")
