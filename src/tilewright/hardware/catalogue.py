"""The catalogue: devices that need not be here, one TOML file each, every number with its source.

A file has ``name``, ``vendor``, ``kind``, ``matches`` (parts of names that a driver may report),
``[sources]``, a ``[numbers]`` table of ``{ value, source }`` entries named as in
`tilewright.hardware.quantity.QUANTITIES`, and ``[[mixes]]``: the throughput-factor table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

from tilewright.hardware.quantity import QUANTITIES, Mix, Quantity
from tilewright.hardware.spec import DeviceSpec

__all__ = [
    "CatalogueDevice",
    "catalogue",
    "catalogue_device",
    "described",
    "read_device",
    "recognised",
]

_FOLDER = Path(__file__).with_name("catalogue")
_SPEC_NUMBERS = tuple(f.name for f in fields(DeviceSpec) if f.name in QUANTITIES)
_ANY_CPU = "avx2"  # what is known of a CPU that no other entry knows
# A catalogue file has some KiB.
_LARGEST_FILE = 2**20
# Whole numbers, none of which any device comes near: searches run over some of them.
_COUNTS = {name: 2**62 for name in _SPEC_NUMBERS if name != "clock_hz"} | {
    "multiprocessors": 2**20,
    "warp_size": 2**10,
    "compute_capability": 2**10,
    "max_threads_per_block": 2**16,
    "max_registers_per_thread": 2**10,
    "async_copy": 1,
    "memory_apart": 1,
    "cluster_blocks": 2**10,
    "wave_registers": 2**16,
    "wave_threads": 2**10,
}
_ANSWERS = ("async_copy", "memory_apart")  # 0 is no, not unknown
# DeviceSpec has no unknown for these.
_REQUIRED = ("multiprocessors", "warp_size", "max_threads_per_block", "shared_bytes_per_block")


@dataclass(frozen=True)
class CatalogueDevice:
    """A device known by its numbers: bounds can be computed for it, nothing runs on it.

    Parameters
    ----------
    id : str
        Name of its file, such as ``"gtx580"``; a live device's own id.
    spec : DeviceSpec
        What constraints use.
    quantities : Mapping[str, Quantity]
        Everything known, by the names of `QUANTITIES`.
    mixes : tuple of Mix
        The throughput-factor table; empty where nobody measured it.
    matches : tuple of str
        Parts of the names under which a driver reports this device.
    """

    id: str
    spec: DeviceSpec
    quantities: Mapping[str, Quantity]
    mixes: tuple[Mix, ...] = ()
    matches: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The device's name, as people write it."""
        return self.spec.name

    def get(self, name: str) -> Quantity | None:
        """Return a quantity, or None where it is unknown."""
        return self.quantities.get(name)

    def value(self, name: str) -> float | None:
        """Return a quantity's value, or None where it is unknown."""
        found = self.quantities.get(name)
        return None if found is None else found.value

    def needs(self, name: str) -> float:
        """Return a quantity's value.

        Raises
        ------
        ValueError
            If it is unknown; the message names it.
        """
        found = self.value(name)
        if found is None:
            raise ValueError(
                f"{name} of device={self.id!r} is unknown ({QUANTITIES[name][1]});"
                " add it with its source to the device's TOML file"
            )
        return found


@lru_cache(maxsize=1)
def catalogue() -> tuple[str, ...]:
    """Return the ids of all devices in the catalogue, in alphabetical order."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


@cache
def catalogue_device(name: str) -> CatalogueDevice:
    """Return a device of the catalogue by its id.

    Raises
    ------
    ValueError
        If the catalogue has no such device.
    """
    if name not in catalogue():
        raise ValueError(
            f"device={name!r} is not in the catalogue; use one of {', '.join(catalogue())}"
        )
    return read_device(_FOLDER / f"{name}.toml")


def read_device(path: Path) -> CatalogueDevice:
    """Read a device's file.

    Raises
    ------
    ValueError
        If it is no TOML, an entry is unknown, ill-typed or without source; one line that
        names file, key and value.
    """
    text = _toml(path)
    allowed = {"name", "vendor", "kind", "matches", "sources", "numbers", "mixes"}
    for key in text:
        if key not in allowed:
            raise ValueError(
                f"{path.name}: {key}={text[key]!r} is not known; use {_listed(allowed)}"
            )
    for key in ("name", "vendor", "kind"):
        _check(isinstance(text.get(key), str), path, key, text.get(key), "give a string")
    _check(text["kind"] in ("gpu", "cpu"), path, "kind", text["kind"], 'give "gpu" or "cpu"')
    matches = text.get("matches", [])
    good = isinstance(matches, list) and all(isinstance(one, str) for one in matches)
    _check(good, path, "matches", matches, "give a list of strings")
    sources = text.get("sources", {})
    _check(isinstance(sources, dict), path, "sources", sources, "give a table of strings")
    for key, value in sources.items():
        _check(isinstance(value, str), path, f"sources.{key}", value, "give a string")
    quantities = {q.name: q for q in _quantities(path, text.get("numbers", {}), sources)}
    for key in _REQUIRED:
        _check(key in quantities, path, key, None, "every device needs it")
    return CatalogueDevice(
        path.stem,
        _spec(text["name"], text["vendor"], text["kind"], quantities),
        quantities,
        tuple(_mixes(path, text.get("mixes", []), sources)),
        tuple(matches),
    )


def _toml(path: Path) -> dict[str, Any]:
    """Read a file that anybody may have written."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except OSError as problem:
        raise ValueError(f"device={str(path)!r} cannot be read: {problem.strerror}") from None
    _check(len(data) <= _LARGEST_FILE, path, "size", f"over {_LARGEST_FILE} bytes", "shorten it")
    import tomllib  # of a device that is described, not of one that is here

    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise ValueError(f"{path.name} is not TOML: {problem}") from None


def _spec(
    name: str, vendor: str, kind: Literal["gpu", "cpu"], quantities: Mapping[str, Quantity]
) -> DeviceSpec:
    """Return the part of the numbers that constraints use."""
    numbers: dict[str, Any] = {
        key: quantities[key].value if key == "clock_hz" else int(quantities[key].value)
        for key in _SPEC_NUMBERS
        if key in quantities
    }
    has_fp64 = any(key in quantities for key in ("fma_lanes.d", "peak.d"))
    return DeviceSpec(name=name, vendor=vendor, kind=kind, has_fp64=has_fp64, **numbers)


def _quantities(path: Path, table: Any, sources: Mapping[str, str]) -> Iterator[Quantity]:
    """Check and yield every entry of ``[numbers]``; dots in names are TOML's nesting."""
    for key, entry in _flat(path, table, ""):
        _check(key in QUANTITIES, path, f"numbers.{key}", entry, "that quantity is not known")
        for part in entry:
            _check(part in ("value", "source"), path, f"{key}.{part}", entry[part], "remove it")
        value = entry["value"]
        good = isinstance(value, int | float) and not isinstance(value, bool)
        _check(good and 0 <= value < float("inf"), path, key, value, "give a number of 0 or more")
        _check(value > 0 or key in _ANSWERS, path, key, value, "leave out what is unknown")
        if key in _COUNTS:
            whole = value == int(value) and value <= _COUNTS[key]
            _check(whole, path, key, value, f"give a whole number up to {_COUNTS[key]}")
        yield Quantity(key, float(value), QUANTITIES[key][0], _source(path, key, entry, sources))


def _flat(path: Path, table: Any, prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield entries with their dotted names."""
    _check(isinstance(table, dict), path, prefix or "numbers", table, "give { value, source }")
    for key, entry in table.items():
        if isinstance(entry, dict) and "value" in entry:
            yield prefix + key, entry
        else:
            yield from _flat(path, entry, f"{prefix}{key}.")


def _mixes(path: Path, rows: Any, sources: Mapping[str, str]) -> Iterator[Mix]:
    """Check and yield the throughput-factor table."""
    _check(isinstance(rows, list), path, "mixes", rows, "write [[mixes]]")
    wanted = {"width_bits", "ratio", "throughput", "kind", "source"}
    for row in rows:
        complete = isinstance(row, dict) and set(row) - {"lanes"} == wanted
        _check(complete, path, "mixes", row, f"give {_listed(wanted)}, and lanes if you like")
        for key in ("width_bits", "ratio", "throughput"):
            good = isinstance(row[key], int | float) and not isinstance(row[key], bool)
            good = good and 0 <= row[key] < float("inf") and (row[key] > 0 or key == "ratio")
            _check(good, path, f"mixes.{key}", row[key], "give a number above 0")
        _check(row["width_bits"] in (32, 64, 128), path, "width_bits", row["width_bits"], "32-128")
        known = row["kind"] in ("published", "measured")
        _check(known, path, "mixes.kind", row["kind"], 'give "published" or "measured"')
        lanes = row.get("lanes", "conflict_free")
        known = lanes in ("conflict_free", "broadcast")
        _check(known, path, "mixes.lanes", lanes, 'give "conflict_free" or "broadcast"')
        source = _source(path, "mixes", row, sources)
        ratio, rate = float(row["ratio"]), float(row["throughput"])
        yield Mix(int(row["width_bits"]), ratio, rate, row["kind"], source, lanes)


def _source(path: Path, key: str, entry: Mapping[str, Any], sources: Mapping[str, str]) -> str:
    """Return the text of an entry's source: ``"key"`` or ``"key: what exactly"``."""
    text = entry.get("source")
    _check(
        isinstance(text, str) and bool(text), path, f"{key}.source", text, "say where it is from"
    )
    name, _, detail = str(text).partition(":")
    _check(name in sources, path, f"{key}.source", text, "name an entry of [sources]")
    return f"{sources[name]}:{detail}" if detail else sources[name]


def _check(good: bool, path: Path, key: str, value: object, advice: str) -> None:
    if not good:
        raise ValueError(f"{path.name}: {key}={value!r} is wrong; {advice}")


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def described(spec: DeviceSpec, id: str, measured: Iterable[Quantity] = ()) -> CatalogueDevice:
    """Return what the catalogue knows of a live device, with the driver's numbers on top.

    Parameters
    ----------
    spec : DeviceSpec
        What the driver reports.
    id : str
        The live device's id, which the result bears.
    measured : iterable of Quantity
        What is known better, which comes before the driver's numbers.

    Notes
    -----
    A device is recognised by the longest of the catalogue's ``matches`` in its name; any
    unrecognised CPU is the generic one.  Of an unrecognised GPU only `spec` is known.
    """
    numbers = {
        name: Quantity(name, float(value), QUANTITIES[name][0], f"reported by the driver of {id}")
        for name in _SPEC_NUMBERS
        if (value := getattr(spec, name)) is not None
    }
    found = recognised(spec.name)
    if found is None and spec.kind == "cpu":
        found = catalogue_device(_ANY_CPU)
    if found is None:
        return CatalogueDevice(id, spec, numbers)
    if found.id == _ANY_CPU and spec.vector_bytes > found.spec.vector_bytes:
        # The generic core has two FMA units; this one's are wider.
        for name, word in (("fma_lanes.s", 4), ("fma_lanes.d", 8)):
            source = f"two FMA units of the {spec.vector_bytes} bytes that the driver reports"
            numbers[name] = Quantity(name, 2 * spec.vector_bytes / word, "FMA/cycle", source)
    # The driver's shared memory may be the static limit, and a GPU's clock the momentary one:
    # a bound takes the larger of both.
    for name in ("clock_hz", "shared_bytes_per_block"):
        known = found.get(name)
        if known is not None and known.value > (getattr(spec, name) or 0):
            numbers.pop(name, None)
    numbers |= {one.name: one for one in measured}
    return replace(found, id=id, spec=spec, quantities={**found.quantities, **numbers})


def recognised(name: str) -> CatalogueDevice | None:
    """Return the catalogue's entry for a name that a driver reports, or None.

    The longest of the catalogue's ``matches`` in the name decides.
    """
    best: tuple[int, CatalogueDevice] | None = None
    for device in map(catalogue_device, catalogue()):
        for part in device.matches:
            # As whole words: "RTX 4070" is not "RTX 4070 Ti".
            hit = re.search(
                rf"\b{re.escape(part)}(?! *(Ti|SUPER|D|Laptop)\b)\b", name, re.IGNORECASE
            )
            if hit and (best is None or len(part) > best[0]):
                best = len(part), device
    return None if best is None else best[1]
