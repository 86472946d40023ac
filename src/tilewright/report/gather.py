"""Everything a report is made from: the store, the results folder, the devices that are here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.bench.bounded import bound_of
from tilewright.bounds import Bound
from tilewright.hardware.catalogue import CatalogueDevice, recognised
from tilewright.problem import Problem
from tilewright.report.mixes import Mix
from tilewright.report.results import MeasuredOn, Results, Run, read_results
from tilewright.serve.find import numbers_of
from tilewright.space import Config
from tilewright.text import plain
from tilewright.tuning.measurement import Measurement, Stage

if TYPE_CHECKING:
    from tilewright.backend import LiveDevice
    from tilewright.tuning.store import Store

__all__ = ["Device", "Gathered", "Tried", "gather"]


@dataclass(frozen=True)
class Device:
    """A device with measurements.

    Parameters
    ----------
    measured : MeasuredOn
        As the results name it.
    label : str
        Its name, with what tells it from others of that name.
    numbers : CatalogueDevice or None
        What bounds are computed from; None where nothing is known.
    """

    measured: MeasuredOn
    label: str
    numbers: CatalogueDevice | None

    @property
    def fingerprint(self) -> str:
        """What measurements of it bear."""
        return self.measured.fingerprint


@dataclass(frozen=True)
class Tried:
    """One stored measurement, without its long texts."""

    problem: Problem
    config: Config
    stage: Stage
    ok: bool
    status: str
    rate: float
    error: float | None
    created: str
    strategy: str = ""


@dataclass
class Gathered:
    """What was read.

    Parameters
    ----------
    devices : list of Device
        Those with stored measurements first.
    runs : list of Run
        Of results files, and the store's winners.
    tried : dict
        Stored measurements by fingerprint, in the order they were taken.
    results : Results
        What the results folders held.
    yours : frozenset of str
        Fingerprints of the devices that are here, or in the store; others are of results files.
    """

    devices: list[Device]
    runs: list[Run]
    tried: dict[str, list[Tried]]
    results: Results
    yours: frozenset[str] = frozenset()
    _bounds: dict[tuple[str, str, str, int, int, int], Bound | None] = field(default_factory=dict)

    def only(self, *, yours: bool) -> Gathered:
        """Return the part of your own devices, or that of the others."""
        kept = [one for one in self.devices if (one.fingerprint in self.yours) == yours]
        return replace(self, devices=kept)

    @property
    def mixes(self) -> list[Mix]:
        """Instruction mixes of main loops."""
        return self.results.mixes

    @property
    def newest(self) -> str:
        """ISO date of the newest measurement, empty without any."""
        stored = (one.created for found in self.tried.values() for one in found)
        read = self.results
        runs = (run.date for run in (*self.runs, *read.tensor, *read.samples))
        climbs = (climb.date for climb in self.results.climbs)
        return max([*runs, *climbs, *stored], default="")[:10]

    def runs_of(self, device: Device) -> list[Run]:
        """Return one run for each problem of a device, ordered by precision, size and transposes.

        Of several runs of one problem the one with our best rate counts, but one beside other
        libraries goes before one alone (a ratio needs both in one process), and one with warm
        caches before one with cold ones.
        """
        best: dict[Problem, Run] = {}
        for run in self.runs:
            if run.device != device.fingerprint or not run.rates:
                continue  # an error alone is for the section on accuracy
            known = best.get(run.problem)
            if known is None or _worth(run) > _worth(known):
                best[run.problem] = run
        return sorted(best.values(), key=lambda run: _order(run.problem))

    def largest(self, device: Device) -> dict[str, Problem]:
        """Return the largest problem measured on a device in each precision, by its letter."""
        mark = device.fingerprint
        found: dict[str, Problem] = {}
        for problem in (
            *(run.problem for run in self.runs_of(device)),
            *(one.problem for one in self.tried.get(mark, ()) if one.problem.flops),
            *(one.problem for one in self.results.climbs if one.device == mark),
        ):
            known = found.get(problem.precision.letter)
            if known is None or problem.flops > known.flops:
                found[problem.precision.letter] = problem
        return found

    def bound(self, device: Device, problem: Problem, arithmetic: str = "ieee") -> Bound | None:
        """Return a problem's bound on a device, None where its numbers give none.

        Transposes do not enter the bounds, so one computation serves all of them.
        """
        size = (problem.m, problem.n, problem.k)
        key = (device.fingerprint, problem.precision.letter, arithmetic, *size)
        if key not in self._bounds:
            found: Bound | str = "unknown"
            if device.numbers is not None and problem.flops:
                accuracy = arithmetic if arithmetic in ("fp32", "fp64") else None
                kind = "ieee" if accuracy else arithmetic
                found = bound_of(device.numbers, problem, arithmetic=kind, accuracy=accuracy)
            self._bounds[key] = None if isinstance(found, str) else found
        return self._bounds[key]


def _worth(run: Run) -> tuple[bool, bool, float]:
    return not run.cold, run.best_peer is not None, run.ours


def _order(problem: Problem) -> tuple[bool, int, str, int, str]:
    # N, T, C: the order in which BLAS names them.
    case = "".join(str("NTCR".index(letter)) for letter in problem.trans)
    kind = problem.precision
    return kind.is_complex, kind.element_bytes, kind.letter, problem.flops, case


def gather(
    store: Store | None,
    results: Path | Sequence[Path] | None,
    live: Sequence[LiveDevice] = (),
    device: str | None = None,
) -> Gathered:
    """Read everything that a report shows.

    Parameters
    ----------
    store : Store or None
        Measurements.
    results : Path, sequence of Path or None
        Folders whose JSON files, at any depth, are read.
    live : sequence of LiveDevice
        Devices that are here: their drivers know numbers that no catalogue has.
    device : str, optional
        Show only devices with this fingerprint or with this part in their names.

    Raises
    ------
    ValueError
        If nothing was measured on such a device.
    """
    folders = () if results is None else (results,) if isinstance(results, Path) else results
    found = read_results(*folders)
    tried: dict[str, list[Tried]] = {}
    stored: dict[str, MeasuredOn] = {}
    winners: list[Run] = []
    for one in () if store is None else store.query():
        stored[one.device] = _stored_device(one)
        tried.setdefault(one.device, []).append(_tried(one))
        if one.stage is Stage.WINNER and one.ok and one.problem.flops:
            winners.append(_winner(one))
    # What a results file says of a device is more: the versions of its peers.
    measured = {mark: found.devices.get(mark, known) for mark, known in stored.items()}
    measured |= {mark: one for mark, one in found.devices.items() if mark not in measured}
    if device is not None:
        measured = _chosen(measured, device)
    known = {one.fingerprint: one for one in live}
    devices = [
        Device(one, _label(one, list(measured.values())), _numbers(one, known))
        for one in measured.values()
    ]
    yours = frozenset(known) | frozenset(stored)
    devices.sort(key=lambda one: (one.fingerprint not in yours, one.fingerprint not in known))
    return Gathered(devices, [*found.runs, *winners], tried, found, yours)


def _chosen(measured: dict[str, MeasuredOn], wanted: str) -> dict[str, MeasuredOn]:
    """Return the devices that a text means."""
    chosen = {
        mark: one
        for mark, one in measured.items()
        if wanted == mark or wanted.lower() in one.name.lower()
    }
    if not chosen:
        names = ", ".join(f"{one.name} ({mark})" for mark, one in measured.items())
        able = f"use one of {names}" if names else "tilewright tune takes some"
        raise ValueError(f"device={wanted!r} has no measurements; {able}")
    return chosen


def _numbers(one: MeasuredOn, live: dict[str, LiveDevice]) -> CatalogueDevice | None:
    here = live.get(one.fingerprint)
    return recognised(one.name) if here is None else numbers_of(here)


def _label(one: MeasuredOn, everyone: list[MeasuredOn]) -> str:
    """Return a name that only this device has."""
    alike = [other for other in everyone if other.name == one.name]
    if len(alike) == 1:
        return one.name
    if len({other.driver for other in alike}) == len(alike):
        return f"{one.name}, {one.backend} {one.driver}".rstrip()
    return f"{one.name}, {one.backend} {one.driver}, {one.fingerprint}"


def _stored_device(one: Measurement) -> MeasuredOn:
    platform, driver = (
        plain(str(one.environment.get(name, "")))[:300] for name in ("platform", "driver")
    )
    return MeasuredOn(one.device, plain(one.device_name), one.backend, platform, driver)


def _tried(one: Measurement) -> Tried:
    return Tried(
        one.problem,
        one.config,
        one.stage,
        one.ok,
        str(one.status),
        one.flops_per_second if one.times_ns else 0.0,
        one.error,
        one.created,
        plain(str(one.environment.get("strategy", "")))[:40],
    )


def _winner(one: Measurement) -> Run:
    return Run(
        one.device,
        one.problem,
        {"tilewright": one.flops_per_second},
        one.config,
        str(one.problem),
        one.error,
        "store",
        one.created,
    )
