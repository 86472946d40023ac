"""A sweep's file: written after each problem, and gone on with after an interruption.

    {"environment": {...}, "devices": [{"id", "fingerprint", ..., "results": [row, ...]}, ...]}

A row is a problem with all its times; ``options`` in it tells how they were taken.  JSON
holds everything; a CSV file has one line for each library's times of a problem.  The file of a
benchmark of the registry names it (``benchmark``).
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.bench.peers import Peer
from tilewright.bench.record import device_record
from tilewright.bench.sweep import Method
from tilewright.paths import check_writable, write_atomically, write_json

__all__ = ["COLUMNS", "Document", "csv_rows", "find_row", "is_complete", "options_record"]

COLUMNS = (
    *("device", "device_name", "fingerprint", "problem", "precision", "trans", "m", "n", "k"),
    *("library", "version", "includes", "cache", "rounds", "median_s", "least_s", "most_s"),
    *("flops_per_second", "config", "tuned_on", "missing", "date"),
)


def options_record(
    method: Method, peers: Sequence[Peer], tune: str | None, *, profile: bool = False
) -> dict[str, Any]:
    """Return what two measurements of a problem must have in common to stand for each other."""
    return {
        "rounds": method.rounds,
        "cache": method.cache,
        "transfers": method.transfers,
        "peers": {one.name: one.version for one in peers},
        "tune": tune,
        "profile": profile,
        # Absent where not asked for, as in files from before.
        **({"errors": True} if method.errors else {}),
    }


class Document:
    """What a sweep has measured, and the files that it is kept in.

    Parameters
    ----------
    environment : dict
        See `environment_record`.
    paths : sequence of path
        Files to write; ``.csv`` is CSV, everything else JSON.
    benchmark : str
        Which one of the registry this is, if any.
    """

    def __init__(
        self, environment: dict[str, Any], paths: Sequence[Path] = (), benchmark: str = ""
    ) -> None:
        self.paths = list(dict.fromkeys(paths))
        named = {"benchmark": benchmark} if benchmark else {}
        self.plain: dict[str, Any] = {**named, "environment": environment, "devices": []}

    @property
    def devices(self) -> list[dict[str, Any]]:
        """The devices' records with their results."""
        found: list[dict[str, Any]] = self.plain["devices"]
        return found

    def resume(self, path: Path, live: Sequence[LiveDevice]) -> int:
        """Take over what a file holds; return how many rows that is.

        Parameters
        ----------
        path : path
            A JSON file of an earlier run, or one that will be.
        live : sequence of LiveDevice
            The devices that this run is for.

        Raises
        ------
        ValueError
            If the file is no sweep's, or holds results of another device.
        OSError
            If it cannot be read.
        """
        if _is_csv(path):
            raise ValueError(f"resume={str(path)!r} is CSV; resume from JSON, write CSV with -o")
        check_writable(path)
        if not (path.exists() and path.stat().st_size):
            return 0
        earlier = _loaded(path)
        here = {one.fingerprint: one.id for one in live}
        for device in earlier["devices"]:
            if device["fingerprint"] not in here:
                raise ValueError(
                    f"resume={str(path)!r} holds results of {device.get('name')}"
                    f" ({device.get('platform')}, driver {device.get('driver')}), not only of"
                    f" {', '.join(here.values())}; name another file, or that --device"
                )
        self.plain["devices"] = earlier["devices"]
        before = [*earlier.get("earlier_environments", []), earlier["environment"]]
        self.plain["earlier_environments"] = before
        return sum(len(device["results"]) for device in earlier["devices"])

    def device(self, live: LiveDevice, peers: Sequence[Peer]) -> dict[str, Any]:
        """Return a device's record, made if it is not there."""
        fresh = device_record(live, peers)
        for known in self.devices:
            if known["fingerprint"] == live.fingerprint:
                known.update(fresh | {"peers": known.get("peers", {}) | fresh["peers"]})
                return known
        return self.add(fresh)

    def add(self, device: dict[str, Any]) -> dict[str, Any]:
        """Return a new device's record, with an empty list of results."""
        self.devices.append(device | {"results": []})
        return self.devices[-1]

    def save(self) -> None:
        """Write the files, each all or not at all."""
        for path in self.paths:
            if _is_csv(path):
                write_atomically(path, _as_csv(self.plain).encode())
            else:
                write_json(path, self.plain)


def find_row(
    device: dict[str, Any], asked: dict[str, Any], options: dict[str, Any]
) -> dict[str, Any] | None:
    """Return the row that has measured a problem in the same way; None if none has.

    Parameters
    ----------
    device : dict
        A device's record.
    asked : dict
        `row_record` of the problem alone.
    options : dict
        See `options_record`.
    """
    for row in device["results"]:
        same = all(row.get(name) == value for name, value in asked.items())
        if same and row.get("options") == options:
            found: dict[str, Any] = row
            return found
    return None


def is_complete(row: dict[str, Any]) -> bool:
    """Whether a row has everything that was asked for: nothing in it failed."""
    profile = row.get("profile", {})
    libraries = profile.get("libraries", {}).values()
    return not any("error" in part for part in (row, profile, *libraries))


def _loaded(path: Path) -> dict[str, Any]:
    """Return a file's content, if it has the shape of a sweep's."""
    try:
        plain = json.loads(path.read_bytes())
        devices = plain["devices"]
        for device in devices:
            texts = [device[name] for name in ("id", "name", "fingerprint")]
            if not all(isinstance(text, str) for text in texts):
                raise TypeError
            if not isinstance(device["peers"], dict) or not all(map(_is_row, device["results"])):
                raise TypeError
        if not isinstance(plain["environment"], dict):
            raise TypeError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError(f"resume={str(path)!r} is no result of tilewright bench") from None
    found: dict[str, Any] = plain
    return found


def _is_row(row: Any) -> bool:
    """Whether something read has what every row has."""
    if not isinstance(row, dict) or not isinstance(row.get("size"), list):
        return False
    named = all(isinstance(row.get(name), str) for name in ("problem", "precision", "trans"))
    shaped = len(row["size"]) == 3 and isinstance(row.get("missing", {}), dict)
    tuned = "error" in row or (
        isinstance(row["config"], dict) and isinstance(row["tuned_on"], str | None)
    )
    kinds = [row] if "error" in row else [row, row.get("with_transfers", row)]
    return named and shaped and tuned and all(map(_has_times, kinds))


def _has_times(times: Any) -> bool:
    """Whether everybody has times, and the rate that follows from them."""
    seconds, rates = times.get("seconds", {}), times.get("flops_per_second", {})
    lists = all(isinstance(one, list) and one for one in seconds.values())
    numbers = [*rates.values(), *(number for one in seconds.values() for number in one)]
    return (
        lists
        and seconds.keys() == rates.keys()
        and all(isinstance(one, int | float) and one > 0 for one in numbers)
        and ("error" in times or "tilewright" in rates)
    )


def _is_csv(path: str | os.PathLike[str]) -> bool:
    return Path(path).suffix.lower() == ".csv"


def _as_csv(plain: dict[str, Any]) -> str:
    rows = list(csv_rows(plain))
    counters = sorted({name for row in rows for name in row} - set(COLUMNS))
    text = io.StringIO()
    writer = csv.DictWriter(text, (*COLUMNS, *counters), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def csv_rows(plain: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a document's times, one row a library, problem and kind of time."""
    for device in plain["devices"]:
        for row in device["results"]:
            about = _about(device, row)
            kinds = {"kernel": row, "kernel and transfers": row.get("with_transfers", {})}
            for includes, times in kinds.items():
                for name, seconds in times.get("seconds", {}).items():
                    line = about | {"library": name, "includes": includes} | _spread(seconds)
                    line["version"] = device["peers"].get(name, plain["environment"]["tilewright"])
                    line["flops_per_second"] = times["flops_per_second"][name]
                    if name == "tilewright":
                        line["config"] = json.dumps(row["config"])
                        line["tuned_on"] = row["tuned_on"]
                    if includes == "kernel":
                        line |= _counters(row, name)
                    yield line
            reasons = {"tilewright": row["error"]} if "error" in row else row.get("missing", {})
            for name, reason in reasons.items():
                yield about | {"library": name, "missing": reason}


def _about(device: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Return what all lines of a row have in common."""
    options = row.get("options", {})
    m, n, k = row["size"]
    return {
        "device": device["id"],
        "device_name": device["name"],
        "fingerprint": device["fingerprint"],
        **{name: row[name] for name in ("problem", "precision", "trans")},
        "m": m,
        "n": n,
        "k": k,
        "cache": options.get("cache", "warm"),
        "date": row.get("date", ""),
    }


def _spread(seconds: list[float]) -> dict[str, Any]:
    return {
        "rounds": len(seconds),
        "median_s": float(np.median(seconds)),
        "least_s": min(seconds),
        "most_s": max(seconds),
    }


def _counters(row: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a profile's counters of the longest kernel."""
    kernels = row.get("profile", {}).get("libraries", {}).get(name, {}).get("kernels", [])
    if not kernels:
        return {}
    longest = max(kernels, key=lambda kernel: kernel["counters"].get("time_ns") or 0)
    stalls = {f"stall_{reason}": value for reason, value in longest["stalls"].items()}
    return {"kernel": longest["name"], **longest["counters"], **stalls}
