"""T4: results in the JSON format that the auto-tuning community exchanges.

The format is that of Kernel Tuner's ``schema/T4/1.0.0``: one entry for each result
with its configuration, times in milliseconds and an ``invalidity``.  The schema allows
more keys; ours is ``tilewright``, the exact record that the T4 keys are a view of.
Reading takes the record and checks it, so that a round trip loses nothing, and times
stay whole nanoseconds.

What other tuners wrote has no such record and is refused: it says neither which
problem was timed nor on which device.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tilewright.paths import write_atomically
from tilewright.tuning.measurement import Measurement, Status
from tilewright.tuning.record import from_record, to_record
from tilewright.version import VERSION

__all__ = ["INVALIDITY", "SCHEMA_VERSION", "T4Error", "read_t4", "t4_results", "write_t4"]

SCHEMA_VERSION = "1.0.0"

# T4's "constraints" never occurs: our spaces drop such points before they are tried.
INVALIDITY: dict[Status, str] = {
    Status.OK: "correct",
    Status.COMPILE_ERROR: "compile",
    Status.WRONG_RESULT: "correctness",
    Status.CRASH: "runtime",
    Status.TIMEOUT: "timeout",
    Status.OUT_OF_MEMORY: "runtime",
    Status.LAUNCH_ERROR: "runtime",
}

# What readers of Kernel Tuner's results expect in place of a time that there is not.
_NO_TIME = {"compile": "CompilationFailedConfig"}
_NO_TIME_ELSE = "RuntimeFailedConfig"

_FILE_LIMIT = 2**30


class T4Error(RuntimeError):
    """A file is not a T4 file of ours; the message is one line that names the entry."""


def t4_results(measurements: Iterable[Measurement]) -> dict[str, Any]:
    """Return measurements as a T4 results document.

    Returns
    -------
    dict
        JSON values that meet ``results-schema.json``.
    """
    measurements = list(measurements)
    metadata: dict[str, Any] = {
        "timeunit": "milliseconds",
        "autotuner": "tilewright",
        "autotuner_version": VERSION,
    }
    names = {m.device_name for m in measurements}
    if len(names) == 1:
        metadata["device"] = names.pop()
    return {
        "schema_version": SCHEMA_VERSION,
        "metadata": metadata,
        "results": [_entry(one) for one in measurements],
    }


def _entry(measurement: Measurement) -> dict[str, Any]:
    runtimes = [t / 1e6 for t in measurement.times_ns]
    times: dict[str, Any] = {"runtimes": runtimes}
    if measurement.compile_seconds is not None:
        milliseconds = measurement.compile_seconds * 1e3
        # The schema has one name, Kernel Tuner itself writes the other.
        times |= {"compilation_time": milliseconds, "compilation": milliseconds}
    invalidity = INVALIDITY[measurement.status]
    time = (
        measurement.median_ns / 1e6 if measurement.ok else _NO_TIME.get(invalidity, _NO_TIME_ELSE)
    )
    quantities = [{"name": "time", "value": time, "unit": "ms"}]
    if measurement.ok:
        speed = measurement.flops_per_second / 1e9
        quantities.append({"name": "GFLOP/s", "value": speed, "unit": "GFLOP/s"})
    record = to_record(measurement)
    if record["error"] is not None:
        quantities.append({"name": "error", "value": record["error"], "unit": ""})
    configuration = record.pop("parameters")
    return {
        "timestamp": measurement.created,
        "configuration": configuration,
        "objectives": ["time"],
        "times": times,
        "invalidity": invalidity,
        "correctness": 1 if measurement.ok else 0,
        "measurements": quantities,
        "tilewright": record,
    }


def write_t4(path: str | os.PathLike[str], measurements: Iterable[Measurement]) -> int:
    """Write a T4 results file, whole or not at all.

    Returns
    -------
    int
        How many results were written.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    measurements = list(measurements)
    text = json.dumps(t4_results(measurements), allow_nan=False, indent=1)
    write_atomically(path, text.encode() + b"\n")
    return len(measurements)


def read_t4(path: str | os.PathLike[str]) -> list[Measurement]:
    """Return the measurements of a T4 results file that Tilewright wrote.

    The file is data from anywhere: nothing in it is run or trusted, and every value
    is checked for type and range.  Fingerprints are kept, so what was measured on
    another machine is never taken for this one's.

    Raises
    ------
    T4Error
        If anything in it is not as it should be; then nothing is returned.
    """
    document = _document(Path(path))
    measurements = []
    for index, entry in enumerate(document["results"]):
        try:
            measurements.append(_measurement(entry))
        except (ValueError, OverflowError) as problem:
            raise T4Error(f"{path}: results[{index}]: {problem}") from None
    return measurements


def _document(path: Path) -> dict[str, Any]:
    """Return the outermost object of a T4 file, with a list of results in it."""
    try:
        if not path.is_file():
            why = "it is no plain file" if path.exists() else "there is none"
            raise T4Error(f"{path}: cannot be read: {why}; name what `db export` wrote")
        if path.stat().st_size > _FILE_LIMIT:
            raise T4Error(f"{path}: larger than {_FILE_LIMIT >> 20} MiB; export less at a time")
        document = json.loads(path.read_bytes(), parse_constant=_no_constant)
    except OSError as problem:
        raise T4Error(f"{path}: cannot be read: {problem.strerror}") from None
    except RecursionError:
        raise T4Error(f"{path}: nested too deeply to be a T4 file") from None
    except ValueError as problem:
        raise T4Error(f"{path}: not JSON: {problem}") from None
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        raise T4Error(f"{path}: not a T4 results file; it has no list of results")
    version = document.get("schema_version")
    if not isinstance(version, str) or version.split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        raise T4Error(f"{path}: schema_version is {str(version)[:40]!r}; {SCHEMA_VERSION} is read")
    return document


def _no_constant(name: str) -> float:
    """Refuse the numbers that Python reads and JSON does not have."""
    raise ValueError(f"{name} is not a JSON number")


def _measurement(entry: Any) -> Measurement:
    if not isinstance(entry, dict):
        raise ValueError("not an object")
    record = entry.get("tilewright")
    if not isinstance(record, dict):
        raise ValueError("no tilewright record; only Tilewright's own exports can be imported")
    measurement = from_record({**record, "parameters": entry.get("configuration")})
    if not measurement.times_ns and measurement.ok:
        raise ValueError("times_ns is empty; a result of status ok was timed")
    if entry.get("invalidity") != INVALIDITY[measurement.status]:
        raise ValueError(
            f"invalidity contradicts status {measurement.status}; one of them was changed"
        )
    return measurement
