"""Runs: one problem timed on one device, as the results files of benchmarks hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilewright.precision import SHORT
from tilewright.problem import Problem, Trans
from tilewright.space import Config
from tilewright.text import plain

__all__ = [
    "Errors", "MeasuredOn", "Run", "config_of", "date_of", "device_of", "errors_of", "is_timed",
    "number_of", "run_of", "text_of",
]  # fmt: skip


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
    arithmetic : str
        Products of parts, as a bound's, or ``"fp32"`` for that accuracy; empty for the arithmetic
        of the problem's precision.
    shapes : str
        The set that its size is one of, such as ``"random"``; empty for one by itself.
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
    arithmetic: str = ""
    shapes: str = ""

    @property
    def kind(self) -> str:
        """What tensor cores compute: an arithmetic, or a precision of theirs; else empty."""
        of = self.problem.precision
        return self.arithmetic or (of.letter if of.is_short else "")

    @property
    def ours(self) -> float:
        """Our rate in FLOP/s, 0 without one."""
        return self.rates.get("tilewright", 0.0)

    @property
    def best_peer(self) -> tuple[str, float] | None:
        """The fastest other library and its rate."""
        others = [(rate, name) for name, rate in self.rates.items() if name != "tilewright"]
        return (max(others)[1], max(others)[0]) if others else None


@dataclass(frozen=True)
class Errors:
    """Errors of several arithmetics on the same data.

    Parameters
    ----------
    device : str
        Fingerprint.
    data : str
        What A and B hold, and the depth of the product.
    etas : Mapping
        Largest error relative to |A||B|, by the arithmetic's name.
    source : str
        File.
    """

    device: str
    data: str
    etas: Mapping[str, float] = field(hash=False)
    source: str = ""


def text_of(value: Any) -> str:
    """Return a value that should be text, made printable."""
    return plain(value)[:300] if isinstance(value, str) else ""


def number_of(value: Any) -> float | None:
    """Return a positive finite number, None for anything else."""
    good = isinstance(value, int | float) and math.isfinite(value) and value > 0
    return float(value) if good else None


def date_of(document: Mapping[str, Any]) -> str:
    """Return when a document was made, empty where it does not say."""
    environment = document.get("environment")
    return text_of(environment.get("date")) if isinstance(environment, dict) else ""


def device_of(record: Mapping[str, Any]) -> MeasuredOn:
    """Return the device of a sweep's record."""
    peers = record.get("peers")
    return MeasuredOn(
        # Records of scripts name a device without more.
        fingerprint=text_of(record.get("fingerprint")) or text_of(record["name"]),
        name=text_of(record["name"]),
        backend=text_of(record.get("backend")),
        platform=text_of(record.get("platform")),
        driver=text_of(record.get("driver")),
        peers={text_of(name): text_of(version) for name, version in peers.items()}
        if isinstance(peers, dict)
        else {},
    )


def is_timed(row: Mapping[str, Any]) -> bool:
    """Whether a row is a product of ours, with its rate or with its error."""
    rates, errors = row.get("flops_per_second", {}), row.get("errors", {})
    ours = any(isinstance(one, dict) and "tilewright" in one for one in (rates, errors))
    product = "size" in row and "trans" in row and "update" not in row  # half a product, of syrk
    return (ours or "us" in row) and product


def run_of(row: Mapping[str, Any], device: str, source: str, date: str) -> Run:
    """Return one row of a sweep, or of calls, whose times are in microseconds."""
    m, n, k = (int(side) for side in row["size"])
    if min(m, n, k) < 1:
        raise ValueError(f"size={row['size']!r} is not three sizes of 1 or more")
    trans_a, trans_b = (Trans(letter) for letter in row["trans"])
    letter, shapes = text_of(row.get("precision")), text_of(row.get("shapes"))
    arithmetic = text_of(row.get("arithmetic", row.get("kind")))
    arithmetic = _OLD.get(arithmetic, arithmetic)
    if arithmetic in SHORT:  # as older files have them
        letter, arithmetic = arithmetic, ""
    if letter in _ACCURACIES:  # of calls
        letter, arithmetic = _ACCURACIES[letter]
    if arithmetic and not letter:
        letter = "s"
    problem = Problem(m, n, k, letter, trans_a, trans_b)  # type: ignore[arg-type]
    rates = {
        text_of(name): known
        for name, rate in _rates(row, problem).items()
        if (known := number_of(rate)) is not None
    }
    tuning, options = row.get("tuning"), row.get("options")
    errors = row.get("errors", {}).get("tilewright", {})
    eta = tuning.get("eta") if isinstance(tuning, dict) else errors.get("eta")
    return Run(
        device,
        problem,
        rates,
        config_of(row.get("config")),
        text_of(row.get("tuned_on")),
        float(eta) if isinstance(eta, int | float) and math.isfinite(eta) else None,
        source,
        date,
        isinstance(options, dict) and options.get("cache") == "cold",
        arithmetic,
        "" if shapes == "squares" else shapes,
    )


# Precisions of calls with an accuracy, and that accuracy, by what files call them.
_ACCURACIES = {
    "fp32": ("s", "fp32"), "fp32-c": ("c", "fp32"), "fp64": ("d", "fp64"), "fp64-z": ("z", "fp64"),
}  # fmt: skip

# What older files call precisions of tensor cores.
_OLD = {"f16": "fp16", "float16": "fp16", "bfloat16": "bf16"}


def _rates(row: Mapping[str, Any], problem: Problem) -> Mapping[str, Any]:
    """Return FLOP/s by name; of calls, whose rows bear microseconds, from these."""
    if "us" not in row:
        found = row.get("flops_per_second", {})
        return found if isinstance(found, dict) else {}
    times = {"tilewright": row["us"], "cublas": row.get("cublas_us")}
    return {
        name: problem.flops / (1e-6 * known)
        for name, time in times.items()
        if (known := number_of(time)) is not None
    }


def errors_of(row: Mapping[str, Any], device: str, source: str) -> Errors | None:
    """Return the errors of a row without times, None where it has none."""
    if "data" not in row or not isinstance(row.get("errors"), dict):
        return None
    etas = {
        text_of(name): eta
        for name, one in row["errors"].items()
        if (eta := number_of(one.get("eta"))) is not None
    }
    k = row["k"] if "k" in row else row["side"]  # of squares
    return Errors(device, f"{text_of(row['data'])}, k = {int(k)}", etas, source)


def config_of(values: Any) -> Config | None:
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
