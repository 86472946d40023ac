"""Which config serves a problem: a verified winner, a shipped one, else the default."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from tilewright.backend import GemmCall, Operand
from tilewright.hardware import DeviceSpec
from tilewright.library.shipped import Table, shipped
from tilewright.library.waves import Timed, distance, doubted, expected_ns, timed_nearby
from tilewright.precision import Precision
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant, stencil, stencils, stencils_for, unscheduled
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES
from tilewright.tuning.database import default_path
from tilewright.tuning.measurement import Measurement
from tilewright.tuning.store import Store, StoreError
from tilewright.tuning.twins import beats_its_twin, is_current

__all__ = [
    "Choice",
    "Served",
    "begin_aligned",
    "begins_aligned",
    "candidates",
    "choose",
    "default_choice",
    "distance",
    "fitted",
    "of_table",
    "served",
    "store_state",
    "timed_choice",
]


class Served(Protocol):
    """What kernels are chosen for: a live device, or one whose results a store holds."""

    @property
    def fingerprint(self) -> str:
        """Whose measurements count; empty for none."""

    @property
    def spec(self) -> DeviceSpec:
        """Its numbers, which say what a config may be."""


@dataclass(frozen=True)
class Choice:
    """A config and where it comes from.

    Parameters
    ----------
    stencil : Stencil
        The family.
    config : Config
        The point.
    tuned_on : str
        The problem whose winner it is; empty for a shipped default.
    own : bool
        Whether it won on this very device, where it raced its rescheduled twin.
    """

    stencil: Stencil
    config: Config
    tuned_on: str = ""
    own: bool = False


# Winners by store, its state, device and precision.  A tuning run in this or another
# process changes the state, so what it found is used from the next call on.
_winners: dict[tuple[Path, tuple[int, ...], str, str], _Winners] = {}


class _Winners:
    """The sound winners for a device and a precision, and which of them serve a variant."""

    def __init__(self, device: Served, rows: list[Measurement]) -> None:
        self._spec = device.spec
        fastest: dict[Problem, Measurement] = {}
        for one in rows:  # the faster of a problem's two first: rescheduled, the compiler's own
            if _is_sound(device.spec, one.config, Variant.of(one.problem)) and _is_kept(one):
                fastest.setdefault(one.problem, one)
        self._rows = list(fastest.values())
        self._serving: dict[Variant, tuple[Measurement, ...]] = {}

    def serving(self, variant: Variant) -> tuple[Measurement, ...]:
        """Return those of these transposes; where there are none, all that fit them too."""
        found = self._serving.get(variant)
        if found is None:
            same = [m for m in self._rows if Variant.of(m.problem) == variant]
            found = self._serving[variant] = tuple(
                same or [m for m in self._rows if _is_sound(self._spec, m.config, variant)]
            )
        return found


def _state(path: Path) -> tuple[int, ...]:
    """Return what changes when a store is written to: times and sizes of its files."""
    state = []
    for name in (path, path.with_name(path.name + "-wal")):
        try:
            status = os.stat(name)
            state += [status.st_mtime_ns, status.st_size]
        except OSError:
            state += [0, 0]
    return tuple(state)


def store_state() -> tuple[object, ...]:
    """Return what changes when `choose` may choose otherwise than before."""
    try:
        path = default_path()
    except StoreError:
        return ()
    return (path, *_state(path))


def candidates(device: Served, variant: Variant) -> tuple[Measurement, ...]:
    """Return the verified winners that may serve a variant, read when the store changed.

    Those of its own transposes; where these were never tuned, those of any that the
    variant's own space has too: which shapes read a tile evenly depends on the transposes.
    Winners of an older version of a stencil do not count.
    """
    if not device.fingerprint:
        return ()
    letter = variant.precision.letter
    try:
        path = default_path()
    except StoreError as problem:
        _warn_once(str(problem))
        return ()
    if not path.exists():
        return ()
    key = (path, _state(path), device.fingerprint, letter)
    found = _winners.get(key)
    if found is None:
        rows = _read(path, device, letter)
        for old in [k for k in _winners if k[0] == path and k[2:] == key[2:]]:
            del _winners[old]
        # Opening a store may fold its log in: the state afterwards is the one to compare.
        found = _winners[(path, _state(path), device.fingerprint, letter)] = _Winners(device, rows)
    return found.serving(variant)


def _read(path: Path, device: Served, letter: str) -> list[Measurement]:
    """Return the winners in a store; a store that cannot be read has none to offer."""
    versions = {family.name: family.version for family in stencils()}
    try:
        with Store(path, create=False) as store:
            return store.winners(device.fingerprint, letter, versions=versions)
    except StoreError as problem:
        _warn_once(str(problem))
        return []


@lru_cache(maxsize=16)
def _warn_once(problem: str) -> None:
    """Say that defaults serve instead of what was tuned."""
    warnings.warn(f"tuned kernels are not used: {problem}", RuntimeWarning, stacklevel=2)


def _is_sound(spec: DeviceSpec, config: Config, variant: Variant) -> bool:
    """Whether a stored config is a point of its stencil's space for a variant here.

    A store may hold what somebody else exported: its configs are data, and only points
    that the stencil itself would offer on this device reach a compiler.
    """
    return config in stencil(config.stencil).space(variant, spec)


def _is_kept(measurement: Measurement) -> bool:
    """Whether a winner is the compiler's code, or today's scheduler's that beat it in one race."""
    return is_current(measurement) and beats_its_twin(measurement)


def choose(device: Served, problem: Problem, aligned: bool = True) -> Choice:
    """Return the config to serve a problem with; `aligned` as in `served`.

    Where no table is shipped for such a device: the one of `candidates` nearest in size, the
    first of equally near ones, else the stencil's default.  Where one is: the config of which
    the shortest time is expected (`tilewright.library.waves`) among the table's and, where
    times may be compared because the device is the table's very model, `candidates`; these
    come first where times are equal.  Elsewhere `candidates` alone count if there are any.
    """
    return timed_choice(device, problem, aligned)[0]


def timed_choice(
    device: Served, problem: Problem, aligned: bool = True
) -> tuple[Choice, float | None]:
    """Return `choose`'s config with the time that is expected of it, if a table says any."""
    variant = Variant.of(problem)
    own = tuple(m for m in candidates(device, variant) if _takes(m.config, problem, aligned))
    table = shipped(device.spec, variant)
    if table is not None and not any(_takes(row.config, problem, aligned) for row in table.rows):
        table = None
    if table is not None and (not own or table.names(device.spec)):
        return _soonest(device.spec, problem, own, table, aligned)
    if own:
        nearest = min(own, key=lambda m: distance(problem, m.problem))
        family = stencil(nearest.config.stencil)
        return Choice(family, nearest.config, str(nearest.problem), own=True), None
    return default_choice(variant, device.spec), None


def _soonest(
    spec: DeviceSpec,
    problem: Problem,
    own: tuple[Measurement, ...],
    table: Table,
    aligned: bool,
) -> tuple[Choice, float]:
    """Return what is expected to take the shortest time, the device's own winners first."""
    chosen, shortest = of_table(spec, problem, table, aligned)
    best: Timed | None = None
    for one in (Timed(m.config, {m.problem: m.median_ns}) for m in own if m.times_ns):
        (doubt,) = doubted([one, *table.rows], problem)[:1]
        ns = doubt * expected_ns(one, problem, spec, table.multiprocessors)
        if ns < shortest or (ns == shortest and best is None):
            best, shortest = one, ns
    if best is None:
        return chosen, shortest
    on = str(next(iter(best.ns)))
    return Choice(stencil(best.config.stencil), best.config, on, own=True), shortest


# A choice takes 2 to 20 milliseconds; some hundred sizes are alive in any program we know of.
@lru_cache(maxsize=4096)
def of_table(
    spec: DeviceSpec, problem: Problem, table: Table, aligned: bool = True
) -> tuple[Choice, float]:
    """Return a table's choice with its time: what won a race of this very size, if any did.

    A problem that was timed, but not raced, has copies that suit it.
    """
    sizes, many = (problem.m, problem.n, problem.k), table.multiprocessors
    every = [row for row in table.rows if _takes(row.config, problem, aligned)]
    fits = [row for row in every if row.anywhere or _is_fitted(row.config, problem)]
    won = [row for row in fits if sizes in row.won]
    if won and spec.multiprocessors == many:
        row = min(won, key=lambda one: one.won[sizes])  # two where one is rescheduled
        return Choice(stencil(row.config.stencil), row.config, str(problem)), row.won[sizes]
    rows = timed_nearby(fits or every, problem)
    doubts = doubted(rows, problem)
    times = [
        doubt * expected_ns(row, problem, spec, many)
        for row, doubt in zip(rows, doubts, strict=True)
    ]
    best = rows[times.index(min(times))]
    nearest = min(best.ns, key=lambda other: distance(problem, other))
    choice = Choice(stencil(best.config.stencil), best.config, str(nearest))
    # Its times are of fitted copies, and `served` leaves as it is what was tuned for this problem.
    return (suited(choice, problem, spec) if nearest == problem else choice), min(times)


def _takes(config: Config, problem: Problem, aligned: bool) -> bool:
    """Whether a config's kernel is for a problem's operands."""
    family = stencil(config.stencil)
    return (aligned or family.operand_alignment(config) == 1) and family.takes(config, problem)


def _is_fitted(config: Config, problem: Problem) -> bool:
    """Whether a problem is served with a config as it is."""
    return stencil(config.stencil).fitted(config, problem) == config


def served(device: Served, problem: Problem, aligned: bool = True) -> Choice:
    """Return what `gemm` launches: the choice by size, with copies that suit the columns.

    `aligned`: A and B begin at multiples of 16 bytes, as nearly all arrays do (`begin_aligned`).

    What was tuned for this very problem, its columns one behind the other, stays as it is.
    """
    chosen = choose(device, problem, aligned)
    tight = replace(problem, lda=0, ldb=0, ldc=0)
    if problem == tight and chosen.tuned_on == str(problem):
        return chosen
    return suited(chosen, problem, device.spec)


def suited(chosen: Choice, problem: Problem, spec: DeviceSpec) -> Choice:
    """Return a choice as `fitted`, rescheduled where a table has such code that was faster.

    What is staged cannot be rescheduled: long sums are rescheduled instead where that was faster.
    What won on this device raced its own twin.
    """
    found = fitted(chosen, problem, spec)
    variant = Variant.of(problem)
    table = shipped(spec, variant)
    if table is None or chosen.own:
        return found
    plain = found.config.without("staged")
    faster = table.faster.get((variant, plain))
    if faster is None or (plain != found.config and problem.k < faster.unstaged_from):
        return found
    return replace(found, config=faster.config)


def begin_aligned(call: GemmCall) -> bool:
    """Whether A's and B's first elements lie at multiples of 16 bytes, as far as one can see."""
    return all(begins_aligned(x, call.precision) for x in (call.a, call.b))


def begins_aligned(x: Operand, precision: Precision) -> bool:
    """Whether an operand's first element lies at a multiple of 16 bytes, as far as one can see.

    Handles that are no addresses are of memory that begins so.
    """
    first = x.memory if isinstance(x.memory, int) else 0
    return (first + x.offset * precision.element_bytes) % CHUNK_BYTES == 0


# What says how operands are copied.
_COPIES = ("narrow", "guarded")


def fitted(chosen: Choice, problem: Problem, spec: DeviceSpec) -> Choice:
    """Return a choice that suits a problem's leading dimensions, where its stencil has one.

    Where it changes a config, the compiler's own code is left: a search for rescheduled code of
    another text would let the first call wait for minutes (`suited` knows what was searched).
    """
    config = chosen.stencil.fitted(chosen.config, problem)
    if config == chosen.config:
        return chosen
    config = unscheduled(config)
    space = chosen.stencil.space(Variant.of(problem), spec)
    if config not in space:
        # A block that cannot copy so may still store so.
        copies = {name: value for name, value in chosen.config.items() if name in _COPIES}
        config = config.without(*_COPIES).replace(**copies)
    return replace(chosen, config=config) if config in space else chosen


@lru_cache(maxsize=256)
def default_choice(variant: Variant, spec: DeviceSpec) -> Choice:
    """Return what the most fitting stencil offers untuned; finding it takes 0.6 ms."""
    family = stencils_for(spec, variant.precision)[0]
    return Choice(family, family.default(variant, spec))
