"""Tables of times that come with the package: tuned kernels for devices nobody tuned yet.

A table is a JSON file in ``shipped_tables``, made by ``python benchmarks/shipped/ship.py``.  What
it says is data: a config counts only where its stencil still has the version that was timed, suits
the device, and has the config in its space.  Rescheduled code always carries the times of its twin,
the compiler's own code in the same race: that of squares counts only at sizes where it beat that,
that of random shapes takes its twin's place where it did in the mean.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

from tilewright.hardware import DeviceSpec
from tilewright.library.waves import Timed
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.sass.scheduler_version import SCHEDULER_VERSION
from tilewright.space import Config, Space
from tilewright.stencil import Variant, stencil, stencils, unscheduled

__all__ = ["Copying", "Faster", "Table", "shipped", "tables"]

# Times are carried over to other devices of an architecture by their multiprocessors: between
# the members of a generation (114 to 132 for Hopper), not to a slice of a GPU, whose share of
# caches and memory is another.
_ALIKE = 0.8


@dataclass(frozen=True)
class Copying:
    """How long a pass over memory takes that copies an operand (realign.cl).

    Parameters
    ----------
    begin_ns : float
        Whatever its size.
    bytes_per_ns : float
        Of those that it reads and writes.
    precisions : str
        Letters of those in which products of copies were timed.
    """

    begin_ns: float
    bytes_per_ns: float
    precisions: str

    def ns(self, traffic: int) -> float:
        """Return the nanoseconds for so many bytes."""
        return self.begin_ns + traffic / self.bytes_per_ns


@dataclass(frozen=True)
class Faster:
    """Rescheduled code that took less time than its twin in races of both on random shapes.

    Parameters
    ----------
    config : Config
        With its schedule.
    unstaged_from : float
        From so many steps along k on, less than its twin with staged results, too.
    """

    config: Config
    unstaged_from: float = math.inf


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
    copying : Copying, optional
        Of operands; None where it was not timed.
    faster : Mapping
        By a variant and a config that is the compiler's own code.
    """

    device: str
    compute_capability: int
    multiprocessors: int
    versions: Mapping[str, int]
    rows: tuple[Timed, ...]
    copying: Copying | None = None
    faster: Mapping[tuple[Variant, Config], Faster] = field(default_factory=dict)

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
    rows = _joined(
        [*(_timed(row) for row in document["rows"]), *_portfolio(document.get("portfolio", {}))]
    )
    # Rescheduled code was timed beside its twin only, and by a scheduler that may have changed.
    faster = {}
    if document.get("scheduler") == SCHEDULER_VERSION:
        twins = {(_variant(row), row.config): row for row in rows}
        more = [_rescheduled(row, twins) for row in document.get("rescheduled", ())]
        rows += [row for row in more if row is not None]
        faster = dict(_twin(row) for row in document.get("faster", ()))
    return Table(
        str(document["device"]),
        int(document["compute_capability"]),
        int(document["multiprocessors"]),
        {name: int(version) for name, version in document["stencils"].items()},
        tuple(rows),
        _copying(document.get("copying")),
        faster,
    )


def _copying(row: Mapping[str, Any] | None) -> Copying | None:
    if row is None:
        return None
    begin, rate = float(row["begin_ns"]), float(row["bytes_per_ns"])
    return Copying(begin, rate, str(row["precisions"]))


def _portfolio(precisions: Mapping[str, Any]) -> Iterator[Timed]:
    """Yield configs with times of many shapes: null where one is not for it.

    Conjugates take what their transposes took, which alone were timed: a loop is as long with
    other signs.
    """
    for letter, of in precisions.items():
        number = precision(letter)
        alike = {"N": (Trans.N,), "T": (Trans.T, Trans.C) if number.is_complex else (Trans.T,)}
        for trans, found in of["cases"].items():
            for a, b in itertools.product(*(alike[one] for one in trans)):
                shapes = [Problem(m, n, k, number, a, b) for m, n, k in found["shapes"]]
                for one in found["configs"]:
                    times = zip(shapes, one["ns"], strict=True)
                    ns = {shape: float(time) for shape, time in times if time is not None}
                    if ns:
                        yield Timed(Config(of["stencil"], one["config"]), ns)


def _joined(rows: Sequence[Timed]) -> list[Timed]:
    """Return rows with the times of equal configs together; of two times the first one's."""
    found: dict[tuple[Variant, Config], Timed] = {}
    for row in rows:
        key = (_variant(row), row.config)
        before = found.get(key)
        found[key] = row if before is None else replace(before, ns={**row.ns, **before.ns})
    return list(found.values())


def _timed(row: Mapping[str, Any]) -> Timed:
    number, trans = precision(row["precision"]), row["trans"]
    ns = {Problem(m, n, k, number, *trans): float(time) for m, n, k, time in row["times"]}
    won = {(m, n, k): float(time) for m, n, k, time in row["won"]}
    return Timed(Config(row["stencil"], row["config"]), ns, won, bool(row.get("anywhere", True)))


def _rescheduled(
    row: Mapping[str, Any], twins: Mapping[tuple[Variant, Config], Timed]
) -> Timed | None:
    """Return rescheduled code's times at the sizes where it beat its twin; None if nowhere.

    ``raced`` has its own and its twin's nanoseconds, in turns.  Times of a search and of a race
    are not compared, so what it saved there is taken off the twin's times here.  ``won`` has its
    times in races with a library, as other rows have.
    """
    config = Config(row["stencil"], row["config"])
    number, trans = precision(row["precision"]), row["trans"]
    saved = {
        Problem(m, n, k, number, *trans): mine / twin
        for m, n, k, mine, twin in row["raced"]
        if mine < twin
    }
    twin = twins.get((Variant.of(Problem(1, 1, 1, number, *trans)), unscheduled(config)))
    if twin is None:
        return None
    ns = {size: twin.ns[size] * share for size, share in saved.items() if size in twin.ns}
    sizes = {(size.m, size.n, size.k): share for size, share in saved.items()}
    won = {size: twin.won[size] * share for size, share in sizes.items() if size in twin.won}
    won |= {(m, n, k): float(time) for m, n, k, time in row.get("won", ())}
    return Timed(config, ns, won, twin.anywhere) if ns else None


def _twin(row: Mapping[str, Any]) -> tuple[tuple[Variant, Config], Faster]:
    """Return the compiler's own code and the rescheduled twin that was faster."""
    made = Config(row["stencil"], row["config"])
    variant = Variant.of(Problem(1, 1, 1, precision(row["precision"]), *row["trans"]))
    return (variant, unscheduled(made)), Faster(made, float(row.get("unstaged_from", math.inf)))


@lru_cache(maxsize=1)
def tables() -> tuple[Table, ...]:
    """Return all tables, in the order of their files' names; reading them takes 0.15 s."""
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
            current = _current(table.versions, device)
            rows = [
                row
                for row in table.rows
                if row.config.stencil in current and _variant(row).precision == variant.precision
            ]
            same = [row for row in rows if _variant(row) == variant]
            # What won with other transposes has not won with these.
            rows = same or [replace(row, won={}) for row in rows]
            names = {row.config.stencil for row in rows}
            spaces = {name: stencil(name).space(variant, device) for name in names}
            served = tuple(row for row in rows if row.config in spaces[row.config.stencil])
            if served:
                return replace(table, rows=served, faster=_allowed(table, spaces, variant))
    return None


def _allowed(
    table: Table, spaces: Mapping[str, Space], variant: Variant
) -> dict[tuple[Variant, Config], Faster]:
    """Return a variant's rescheduled twins that may run on a device: those of proved levels."""
    return {
        (of, config): made
        for (of, config), made in table.faster.items()
        if of == variant and made.config in spaces.get(made.config.stencil, ())
    }


def _variant(row: Timed) -> Variant:
    return Variant.of(next(iter(row.ns)))


def _current(versions: Mapping[str, int], device: DeviceSpec) -> set[str]:
    """Return the stencils that are there as they were timed, and are for such devices."""
    known = {family.name: family for family in stencils() if family.suits(device)}
    return {name for name, family in known.items() if family.version == versions.get(name)}
