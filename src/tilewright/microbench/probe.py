"""A live device as a file of the catalogue: what its driver says, and what was measured.

Numbers come from three places, later ones before earlier ones: the catalogue, where it knows
the device by its name; the driver; and microbenchmarks, for what neither can promise: the
bandwidths of memory, L2 and link, the clock under load, the table of mixes, and lanes that
multiply where nobody has published them.  What none of them knows is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.backend import LiveDevice
from tilewright.hardware.catalogue import CatalogueDevice
from tilewright.hardware.quantity import QUANTITIES, Quantity
from tilewright.microbench.experiment import Row
from tilewright.microbench.mixes import mixes_of
from tilewright.microbench.numbers import live_numbers

__all__ = ["measured_mixes", "measured_numbers", "mix_lines", "number_line", "probe_toml"]

# By the experiment's name what `session.Result.as_dict` returns, or a file of results holds.
Results = Mapping[str, Mapping[str, Any]]
# Measured lanes within a twentieth below a power of two are that many: a loop's first and last
# cycles never count fully, and a bound must not be below what the hardware has.
_WHOLE = 0.95
_SOURCE = "measured"  # key in [sources]
_GUIDE = "CUDA C++ Programming Guide 13, section on compute capabilities"


# Kinds of the experiment `rates`: one type each, by one warp and by a warpgroup.
_MATRIX_KINDS = (
    ("f16_16x8x16", "wgmma_f16"),
    ("bf16_16x8x16", "wgmma_bf16"),
    ("tf32_16x8x8", "wgmma_tf32"),
    ("s8_16x8x32", "wgmma_s8"),
)


def measured_numbers(results: Results, device: CatalogueDevice) -> list[Quantity]:
    """Return the quantities that results of experiments tell.

    Parameters
    ----------
    results : Mapping
        By the experiment's name its rows under ``"rows"`` and the clock meanwhile under
        ``"clock_hz"``; experiments that did not run may be absent.
    device : CatalogueDevice
        What is known without them.
    """
    found = []
    for name, read in (
        ("bandwidth", lambda rows: _bandwidths(rows, device)),
        ("link", _link),
        ("power", _sustained),
        ("peak", lambda rows: _lanes(rows, device)),
        ("rates", _matrix_share),
    ):
        result = results.get(name, {})
        clock = result.get("clock_hz")
        when = f", at {clock / 1e6:.0f} MHz" if clock else ""
        for one in read(result.get("rows", ())):
            source = f"{_SOURCE}: experiment {name}, {one.source}{when}"
            found.append(replace(one, source=source))
    return found


def _measured(name: str, value: float, point: str) -> Quantity:
    return Quantity(name, value, QUANTITIES[name][0], point)


def _good(rows: Iterable[Row], key: str) -> list[tuple[float, Row]]:
    """Return value and row of every point that has a positive number under `key`."""
    return [
        (float(value), row)
        for row in rows
        if "error" not in row
        and isinstance(value := row.get(key), int | float)
        and 0 < value < float("inf")
    ]


def _best(rows: Iterable[Row], key: str) -> tuple[float, Row] | None:
    return max(_good(rows, key), key=lambda found: found[0], default=None)


def _bandwidths(rows: Sequence[Row], device: CatalogueDevice) -> list[Quantity]:
    """Return the fastest runs: whatever disturbs one makes it slower, and bounds need the limit."""
    found = []
    memory = _best((r for r in rows if r.get("level") == "memory"), "best_bytes_per_second")
    if memory is not None:
        found.append(_measured("memory_bytes_per_s", memory[0], _point(memory[1])))
    copied = _best((r for r in rows if r.get("access") == "copy"), "best_bytes_per_second")
    if copied is not None:
        found.append(_measured("copy_bytes_per_s", copied[0], _point(copied[1])))
    # A CPU's smaller working sets lie in the cores' own caches.
    least = (device.value("l2_bytes") or 0) / 2 if device.spec.kind == "cpu" else 0
    cached = [r for r in rows if r.get("level") == "l2" and float(r.get("bytes") or 0) >= least]
    cache = _best(cached, "best_bytes_per_second")
    if cache is not None:
        found.append(_measured("l2_bytes_per_s", cache[0], _point(cache[1])))
    return found


def _point(row: Row) -> str:
    return f"{row.get('access')}, {row.get('bytes')} bytes"


def _link(rows: Sequence[Row]) -> list[Quantity]:
    best = _best((r for r in rows if "bytes" in r), "best_bytes_per_second")
    if best is None:
        return []
    row = best[1]
    where = f"{row.get('direction')}, {row.get('host_memory')}, {row.get('bytes')} bytes"
    return [_measured("link_bytes_per_s", best[0], where)]


def _sustained(rows: Sequence[Row]) -> list[Quantity]:
    found = []
    loads = {"s": "outer products, single precision", "d": "outer products, double precision"}
    for letter, load in loads.items():
        whole = [r for r in rows if r.get("load") == load]
        # A kernel's count leaves out its launch, a sensor's clock has steps of some MHz: the
        # higher one, as a bound must not be below what is there.
        clocks = [_best(whole, name) for name in ("counted_clock_hz", "clock_hz")]
        clock = max((c for c in clocks if c is not None), key=lambda c: c[0], default=None)
        if clock is None:
            continue
        detail = f"{load}, {float(clock[1].get('seconds') or 0):.3g} s"
        found.append(_measured(f"sustained_clock_hz.{letter}", clock[0], detail))
        if letter == "s":
            for name in ("power_w", "power_limit_w"):
                power = _best(whole, name)
                if power is not None:
                    found.append(_measured(name, power[0], detail))
    return found


def _lanes(rows: Sequence[Row], device: CatalogueDevice) -> list[Quantity]:
    """Return lanes that multiply where they are unknown, or more than is known."""
    found = []
    for value, row in _good(rows, "multiply_adds_per_cycle_per_multiprocessor"):
        name = f"fma_lanes.{row.get('precision')}"
        known = device.value(name)
        lanes = _whole(value) if device.spec.kind == "gpu" else value
        if name in QUANTITIES and (known is None or lanes > known):
            detail = f"{value:.2f} a cycle of clock_hz"
            found.append(_measured(name, lanes, detail))
    return found


def _matrix_share(rows: Sequence[Row]) -> list[Quantity]:
    """Return what instructions of one warp reach of a warpgroup's rate, where both were measured.

    The type that loses least: a bound must not be below what is there.
    """
    key = "multiply_adds_per_cycle"
    shares = []
    for warp, group in _MATRIX_KINDS:
        one, whole = (_best((r for r in rows if r.get("kind") == k), key) for k in (warp, group))
        if one is not None and whole is not None:
            shares.append((min(1.0, one[0] / whole[0]), f"{warp} of {group}"))
    return [_measured("warp_matrix_share", *max(shares))] if shares else []


def _whole(value: float) -> float:
    """Return the power of two just above a measured number of lanes, or the number."""
    power = 1.0
    while power < value:
        power *= 2
    return power if value >= _WHOLE * power else value


def measured_mixes(results: Results) -> list[dict[str, str | int | float]]:
    """Return the ``[[mixes]]`` that the experiment ``mixes`` tells, if it ran."""
    rows = results.get("mixes", {}).get("rows", ())
    return [
        mix | {"lanes": lanes}
        for lanes in ("conflict_free", "broadcast")
        for mix in mixes_of(rows, f"{_SOURCE}: experiment mixes", lanes)
    ]


def probe_toml(device: LiveDevice, results: Results, about: str) -> str:
    """Return a device's file in the catalogue's form.

    Parameters
    ----------
    device : LiveDevice
        The device that was measured.
    results : Mapping
        As in `measured_numbers`.
    about : str
        With what and when it was measured, for the source.

    Returns
    -------
    str
        TOML that `tilewright.hardware.catalogue.read_device` accepts.
    """
    known = live_numbers(device)
    numbers = {q.name: q for q in (*_of_architecture(device), *known.quantities.values())}
    # The clock that the driver reports, or the catalogue's where that is higher, is what rates
    # per cycle count in; measured rates are per second.
    numbers.pop("l2_bytes_per_cycle", None)
    measured = measured_numbers(results, known)
    sources: dict[str, str] = {_SOURCE: f"microbenchmarks on {device.spec.name}, {about}"}
    for one in measured:
        numbers.pop(one.name, None)
    entries = [(q.name, q.value, _source_key(sources, q.source)) for q in numbers.values()]
    entries += [(one.name, one.value, one.source) for one in measured]
    return _toml(device, sources, entries, measured_mixes(results))


def _of_architecture(device: LiveDevice) -> list[Quantity]:
    """Return what every NVIDIA architecture since Volta has in common."""
    capability = device.spec.compute_capability or 0
    if device.backend != "cuda" or capability < 70:
        return []
    values = {"schedulers": 4, "issue_lanes": 128, "shared_load_lanes": 32,
              "async_copy": int(capability >= 80)}  # fmt: skip
    return [Quantity(name, value, QUANTITIES[name][0], _GUIDE) for name, value in values.items()]


def _source_key(sources: dict[str, str], text: str) -> str:
    """Return the key of a source, which is added if it is new."""
    for key, known in sources.items():
        if known == text:
            return key
    key = f"source{len(sources)}"
    sources[key] = text
    return key


def _toml(
    device: LiveDevice,
    sources: Mapping[str, str],
    entries: Iterable[tuple[str, float, str]],
    mixes: Iterable[Mapping[str, str | int | float]],
) -> str:
    spec = device.spec
    lines = [f"name = {_text(spec.name)}", f"vendor = {_text(spec.vendor)}",
             f"kind = {_text(spec.kind)}", "matches = []", "", "[sources]"]  # fmt: skip
    lines += [f"{key} = {_text(value)}" for key, value in sources.items()]
    lines += ["", "[numbers]"]
    lines += [number_line(*entry) for entry in entries]
    for mix in mixes:
        lines += ["", *mix_lines(mix)]
    return "\n".join(lines) + "\n"


def number_line(name: str, value: float, source: str) -> str:
    """Return an entry of ``[numbers]``."""
    return f"{name} = {{ value = {_number(value)}, source = {_text(source)} }}"


def mix_lines(mix: Mapping[str, str | int | float]) -> list[str]:
    """Return an entry of ``[[mixes]]``."""
    return ["[[mixes]]"] + [
        f"{key} = {_text(value) if isinstance(value, str) else _number(value)}"
        for key, value in mix.items()
    ]


def _number(value: float) -> str:
    """Return a number with six digits, or all of a whole one."""
    if value == int(value) and abs(value) < 2**53:
        return str(int(value))
    return repr(float(f"{value:.6g}"))


def _text(text: str) -> str:
    """Return a TOML basic string: JSON's, but for a character that only TOML forbids."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
