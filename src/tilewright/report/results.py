"""Results files: the JSON that benchmarks write, read as data that anybody may have written.

A file that is none of ours, or damaged, is left out with a reason; it never ends a report.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.problem import Problem, Trans
from tilewright.report.climbs import Climb, climb_of
from tilewright.report.mixes import Mix, counted_loops, figure1_loops, inspected_loops
from tilewright.space import Config
from tilewright.text import plain

__all__ = ["MeasuredOn", "Results", "Run", "read_results"]

# The largest results file kept so far has 1.2 MB.
_LIMIT_BYTES = 64 << 20


@dataclass(frozen=True)
class MeasuredOn:
    """A device as a result names it.

    Parameters
    ----------
    fingerprint : str
        Equal only where times may be compared.
    name, backend, platform, driver : str
        In words; empty where unknown.
    peers : Mapping
        Versions of the libraries measured beside ours.
    """

    fingerprint: str
    name: str
    backend: str = ""
    platform: str = ""
    driver: str = ""
    peers: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Run:
    """One problem timed on one device, everybody in one process.

    Parameters
    ----------
    device : str
        Fingerprint.
    problem : Problem
        What was computed.
    rates : Mapping
        FLOP/s at the median time: ``"tilewright"`` and the peers.
    config : Config or None
        Ours.
    tuned_on : str
        The problem our config won; empty for a default.
    eta : float or None
        Largest error relative to |A||B| that verification found.
    source, date : str
        File and ISO date.
    cold : bool
        Whether caches were filled with something else before each product.
    """

    device: str
    problem: Problem
    rates: Mapping[str, float] = field(hash=False)
    config: Config | None = None
    tuned_on: str = ""
    eta: float | None = None
    source: str = ""
    date: str = ""
    cold: bool = False

    @property
    def ours(self) -> float:
        """Our rate in FLOP/s, 0 without one."""
        return self.rates.get("tilewright", 0.0)

    @property
    def best_peer(self) -> tuple[str, float] | None:
        """The fastest other library and its rate."""
        others = [(rate, name) for name, rate in self.rates.items() if name != "tilewright"]
        return (max(others)[1], max(others)[0]) if others else None


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
    files: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def read_results(folder: Path | None) -> Results:
    """Read every JSON file below a folder, in the order of their names."""
    found = Results()
    paths = [] if folder is None else sorted(folder.rglob("*.json"))
    for path in paths:
        assert folder is not None
        name = plain(path.relative_to(folder).as_posix())
        try:
            used = _read(path, name, found)
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as problem:
            reason = f"{type(problem).__name__}: {problem}" if str(problem) else "unreadable"
            found.left_out[name] = plain(reason)[:200]
            continue
        (found.files if used else found.other).append(name)
    return found


def _read(path: Path, name: str, found: Results) -> bool:
    """Add what one file holds; return whether that is anything the report shows."""
    if path.stat().st_size > _LIMIT_BYTES:
        raise ValueError(f"larger than {_LIMIT_BYTES >> 20} MiB")
    document = json.loads(path.read_bytes())
    if not isinstance(document, dict):
        return False
    if isinstance(document.get("devices"), list):
        devices, runs, climbs = [], [], []
        for device in document["devices"]:
            measured = _device(device)
            devices.append(measured)
            # A sweep's rows have rates, those of a ladder have rungs.
            about = (measured.fingerprint, name, _date(document))
            climbs += [climb_of(row, *about) for row in device["results"] if "rungs" in row]
            runs += [_run(row, *about) for row in device["results"] if _timed(row)]
        found.devices |= {one.fingerprint: one for one in devices}
        found.runs += runs
        found.climbs += climbs
        return True
    for key, read in (
        ("loops", counted_loops),
        ("kernels", inspected_loops),
        ("points", figure1_loops),
    ):
        if isinstance(document.get(key), list):
            mixes = list(read(document, name))
            found.mixes += mixes
            return bool(mixes)
    return False


def _text(value: Any) -> str:
    """Return a value that should be text, made printable."""
    return plain(value)[:300] if isinstance(value, str) else ""


def _date(document: Mapping[str, Any]) -> str:
    environment = document.get("environment")
    return _text(environment.get("date")) if isinstance(environment, dict) else ""


def _device(record: Mapping[str, Any]) -> MeasuredOn:
    """Return the device of a sweep's record."""
    peers = record.get("peers")
    return MeasuredOn(
        fingerprint=_text(record["fingerprint"]),
        name=_text(record["name"]),
        backend=_text(record.get("backend")),
        platform=_text(record.get("platform")),
        driver=_text(record.get("driver")),
        peers={_text(name): _text(version) for name, version in peers.items()}
        if isinstance(peers, dict)
        else {},
    )


def _timed(row: Mapping[str, Any]) -> bool:
    """Whether a row is a sweep's with times: one that failed has a reason in their place."""
    return "rungs" not in row and ("flops_per_second" in row or "error" not in row)


def _run(row: Mapping[str, Any], device: str, source: str, date: str) -> Run:
    """Return one row of a sweep."""
    rates = {
        _text(name): float(rate)
        for name, rate in row["flops_per_second"].items()
        if isinstance(rate, int | float) and math.isfinite(rate) and rate > 0
    }
    m, n, k = (int(side) for side in row["size"])
    if min(m, n, k) < 1:
        raise ValueError(f"size={row['size']!r} is not three sizes of 1 or more")
    trans_a, trans_b = (Trans(letter) for letter in row["trans"])
    tuning, options = row.get("tuning"), row.get("options")
    eta = tuning.get("eta") if isinstance(tuning, dict) else row.get("eta")
    return Run(
        device,
        Problem(m, n, k, row["precision"], trans_a, trans_b),
        rates,
        _config(row.get("config")),
        _text(row.get("tuned_on")),
        float(eta) if isinstance(eta, int | float) and math.isfinite(eta) else None,
        source,
        date,
        isinstance(options, dict) and options.get("cache") == "cold",
    )


def _config(values: Any) -> Config | None:
    """Return a sweep's config: its stencil lies among the values."""
    if not isinstance(values, dict) or not isinstance(values.get("stencil"), str):
        return None
    kept: dict[str, int | str] = {}
    for name, value in values.items():
        if name == "stencil":
            continue
        if isinstance(value, str):
            value = plain(value)
        elif isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"config {plain(name)} is neither an integer nor text")
        kept[plain(name)] = value
    return Config(plain(values["stencil"]), kept)
