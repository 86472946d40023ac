"""Which config serves a problem: the nearest verified winner, else the default."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tilewright.backend import LiveDevice
from tilewright.hardware import DeviceSpec
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant, stencil, stencils, stencils_for
from tilewright.tuning.database import default_path
from tilewright.tuning.measurement import Measurement
from tilewright.tuning.store import Store, StoreError

__all__ = ["Choice", "choose", "distance", "store_state"]


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
    """

    stencil: Stencil
    config: Config
    tuned_on: str = ""


def distance(problem: Problem, other: Problem) -> float:
    """Return how far apart two problems' sizes are: doublings, summed over m, n and k."""
    pairs = ((problem.m, other.m), (problem.n, other.n), (problem.k, other.k))
    return sum(abs(math.log2(max(1, x) / max(1, y))) for x, y in pairs)


# Winners by store, its state, device and precision.  A tuning run in this or another
# process changes the state, so what it found is used from the next call on.
_winners: dict[tuple[Path, tuple[int, ...], str, str], list[Measurement]] = {}


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


def _stored(device: LiveDevice, letter: str) -> list[Measurement]:
    """Return the verified winners for a device and a precision, read when the store changed."""
    try:
        path = default_path()
    except StoreError as problem:
        _warn_once(str(problem))
        return []
    if not path.exists():
        return []
    key = (path, _state(path), device.fingerprint, letter)
    found = _winners.get(key)
    if found is None:
        rows = _read(path, device, letter)
        for old in [k for k in _winners if k[0] == path and k[2:] == key[2:]]:
            del _winners[old]
        # Opening a store may fold its log in: the state afterwards is the one to compare.
        found = [m for m in rows if _is_sound(device, m)]
        _winners[(path, _state(path), device.fingerprint, letter)] = found
    return found


def _read(path: Path, device: LiveDevice, letter: str) -> list[Measurement]:
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


def _is_sound(device: LiveDevice, winner: Measurement) -> bool:
    """Whether a stored winner's config is a point of its stencil's space here.

    A store may hold what somebody else exported: its configs are data, and only points
    that the stencil itself would offer on this device reach a compiler.
    """
    family = stencil(winner.config.stencil)
    return winner.config in family.space(Variant.of(winner.problem), device.spec)


def choose(device: LiveDevice, problem: Problem) -> Choice:
    """Return the config to serve a problem with.

    The winner nearest in size for this device, precision and transposes; where these
    transposes were never tuned, the winner nearest in size for any; where nothing was
    tuned, the stencil's default.  Winners of an older version of a stencil do not count.
    """
    current = _stored(device, problem.precision.letter)
    same = [m for m in current if m.problem.trans == problem.trans]
    candidates = same or current
    if candidates:
        nearest = min(candidates, key=lambda m: distance(problem, m.problem))
        return Choice(stencil(nearest.config.stencil), nearest.config, str(nearest.problem))
    return _default(Variant.of(problem), device.spec)


@lru_cache(maxsize=256)
def _default(variant: Variant, spec: DeviceSpec) -> Choice:
    """Return what the most fitting stencil offers untuned; finding it takes 0.6 ms."""
    family = stencils_for(spec, variant.precision)[0]
    return Choice(family, family.default(variant, spec))
