"""Tables of times that come with the package: tuned kernels for devices nobody tuned yet.

A table is a JSON file in ``shipped_tables``, made by ``python benchmarks/ship.py`` from
committed results.  What it says is data: a config counts only where its stencil still has the
version that was timed, suits the device, and has the config in its space.  A rescheduled config
carries its twin's times, the compiler's own code's of the same race, and counts only for the sizes
where it beat them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from tilewright.hardware import DeviceSpec
from tilewright.library.waves import Timed
from tilewright.precision import precision
from tilewright.problem import Problem
from tilewright.sass.scheduler_version import SCHEDULER_VERSION
from tilewright.space import Config
from tilewright.stencil import Variant, stencil, stencils, unscheduled

__all__ = ["Table", "shipped", "tables"]

# Times are carried over to other devices of an architecture by their multiprocessors: between
# the members of a generation (114 to 132 for Hopper), not to a slice of a GPU, whose share of
# caches and memory is another.
_ALIKE = 0.8


@dataclass(frozen=True, eq=False)
class Table:
    """What was timed on one device.

    Parameters
    ----------
    device : str
        Its name, as the driver reports it.
    compute_capability : int
        Ten times CUDA's.
    multiprocessors : int
        How many the times are of.
    versions : Mapping
        Of the stencils that were timed, by name.
    rows : tuple of Timed
        Each a config with times of one variant.
    """

    device: str
    compute_capability: int
    multiprocessors: int
    versions: Mapping[str, int]
    rows: tuple[Timed, ...]

    def names(self, device: DeviceSpec) -> bool:
        """Whether it is this very model, so that times may be compared."""
        return device.name == self.device and device.multiprocessors == self.multiprocessors

    def serves(self, device: DeviceSpec) -> bool:
        """Whether configs that were fast there will be fast here."""
        few, many = sorted((device.multiprocessors, self.multiprocessors))
        alike = device.compute_capability == self.compute_capability and few >= _ALIKE * many
        return self.names(device) or alike


def _read(document: Any) -> Table:
    """Return a table from its JSON."""
    rows = []
    for row in document["rows"]:
        number, trans = precision(row["precision"]), row["trans"]
        config = Config(row["stencil"], row["config"])
        ns = {Problem(m, n, k, number, *trans): time for (m, n, k), time in _kept(row, "times")}
        won = dict(_kept(row, "won"))
        if ns and _is_made_today(config, document):
            rows.append(Timed(config, ns, won))
    return Table(
        str(document["device"]),
        int(document["compute_capability"]),
        int(document["multiprocessors"]),
        {name: int(version) for name, version in document["stencils"].items()},
        tuple(rows),
    )


def _kept(row: Mapping[str, Any], name: str) -> list[tuple[tuple[int, int, int], float]]:
    """Return sizes and times of a row; of rescheduled code those that beat its twin's."""
    config = Config(row["stencil"], row["config"])
    times = [((m, n, k), float(time)) for m, n, k, time in row[name]]
    if unscheduled(config) == config:
        return times
    twin = {(m, n, k): float(time) for m, n, k, time in row.get("unscheduled", {}).get(name, ())}
    return [(sizes, time) for sizes, time in times if time < twin.get(sizes, 0.0)]


def _is_made_today(config: Config, document: Mapping[str, Any]) -> bool:
    """Whether the kernel that was timed is the one that would be made now."""
    return unscheduled(config) == config or document.get("scheduler") == SCHEDULER_VERSION


@lru_cache(maxsize=1)
def tables() -> tuple[Table, ...]:
    """Return all tables, in the order of their files' names; reading them takes 10 ms."""
    found = files("tilewright.library").joinpath("shipped_tables").iterdir()
    texts = sorted((one.name, one) for one in found if one.name.endswith(".json"))
    return tuple(_read(json.loads(one.read_text(encoding="utf-8"))) for _, one in texts)


@lru_cache(maxsize=256)
def shipped(device: DeviceSpec, variant: Variant) -> Table | None:
    """Return what the tables say of a variant on a device; None if that is nothing.

    The table of the very model comes first, else the first of its architecture.  Rows of the
    variant's own transposes; where there are none, those of any that fit them too.
    """
    for table in sorted(tables(), key=lambda one: not one.names(device)):
        if table.serves(device):
            rows = [row for row in table.rows if _is_current(row, table.versions, device)]
            rows = [row for row in rows if _variant(row).precision == variant.precision]
            same = [row for row in rows if _variant(row) == variant]
            # What won with other transposes has not won with these.
            rows = same or [replace(row, won={}) for row in rows]
            served = tuple(row for row in rows if _is_sound(row, variant, device))
            if served:
                return replace(table, rows=served)
    return None


def _variant(row: Timed) -> Variant:
    return Variant.of(next(iter(row.ns)))


def _is_current(row: Timed, versions: Mapping[str, int], device: DeviceSpec) -> bool:
    """Whether the stencil is there as it was timed, and is for such devices."""
    name = row.config.stencil
    known = {family.name: family for family in stencils() if family.suits(device)}
    return name in known and known[name].version == versions.get(name)


def _is_sound(row: Timed, variant: Variant, device: DeviceSpec) -> bool:
    return row.config in stencil(row.config.stencil).space(variant, device)
