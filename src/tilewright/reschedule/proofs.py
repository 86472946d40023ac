"""Which levels a run on a device has shown right; `tune` tries no other.

A proof is a row of ``proofs.json``, written by a script that commit 6435600 has, after a run
without a wrong bit.  It holds for one architecture, build of the compiler, version of the
scheduler, level, stencil and precision.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from tilewright.backend.base import BackendError
from tilewright.backend.cuda.compiler import nvrtc_version
from tilewright.paths import write_atomically
from tilewright.reschedule.levels import LEVELS, permission
from tilewright.reschedule.version import SCHEDULER_VERSION

__all__ = [
    "PROOFS",
    "Proof",
    "Run",
    "add_proofs",
    "earned",
    "proofs",
    "proved",
    "read_proofs",
]

PROOFS = "proofs.json"  # beside this module


# The least that a run must have compared for a level to be proved.  A bug that spoils one element
# of a million in one launch of a hundred would spoil ten in so many elements.
_KERNELS, _ELEMENTS = 8, 10**9
_CASES = {"NN", "NT", "TN", "TT"}


@dataclass(frozen=True)
class Proof:
    """One level of rescheduling, shown right on a device.

    Parameters
    ----------
    architecture : str
        As the compiler takes it, such as ``"sm_90a"``.
    toolkit : str
        NVRTC's version with its build.
    scheduler : int
        `SCHEDULER_VERSION`.
    stencil, precision, level : str
        Whose kernels; the level by its name.
    kernels : int
        Different kernels that gave the same bits as their baselines.
    launches : int
        Of them, all compared.
    elements : int
        Elements of C compared.
    device, driver : str
        What ran them.
    date, commit, result : str
        Which run: when, of which commit, and the file it wrote.
    """

    architecture: str
    toolkit: str
    scheduler: int
    stencil: str
    precision: str
    level: str
    kernels: int
    launches: int
    elements: int
    device: str
    driver: str
    date: str
    commit: str
    result: str

    @property
    def target(self) -> tuple[str, str, int, str, str, str]:
        """What it is a proof of."""
        return (
            self.architecture, self.toolkit, self.scheduler,
            self.stencil, self.precision, self.level,
        )  # fmt: skip


def _proof(row: Mapping[str, Any]) -> Proof:
    """Return a row's proof.

    Raises
    ------
    ValueError
        If a field is missing, unknown or of another type.
    """
    fields = Proof.__annotations__
    if set(row) != set(fields):
        raise ValueError(f"a proof has the fields {sorted(row)}, not {sorted(fields)}")
    for name, kind in fields.items():
        wanted = int if kind == "int" else str
        if type(row[name]) is not wanted:
            raise ValueError(f"{name}={row[name]!r} of a proof is no {kind}")
    return Proof(**row)


def read_proofs(text: str) -> tuple[Proof, ...]:
    """Return the proofs of a file's text.

    Raises
    ------
    ValueError
        If it is no such file.
    """
    document = json.loads(text)
    if not isinstance(document, dict) or not isinstance(document.get("proofs"), list):
        raise ValueError('proofs are no object with a list "proofs"; make them anew')
    return tuple(_proof(row) for row in document["proofs"])


@lru_cache(maxsize=1)
def proofs() -> tuple[Proof, ...]:
    """Return the proofs that come with the package."""
    return read_proofs(files("tilewright.reschedule").joinpath(PROOFS).read_text("utf-8"))


@dataclass(frozen=True)
class Run:
    """Which run a proof is from; see `Proof`."""

    architecture: str
    toolkit: str
    device: str
    driver: str
    date: str
    commit: str
    result: str


def earned(rows: Iterable[Mapping[str, Any]], run: Run) -> tuple[Proof, ...]:
    """Return what a run proved.

    A level is proved for a stencil and a precision where no kernel differed from its baseline or
    failed, and enough kernels in all four transposes gave the same bits often enough.  Kernels
    that the scheduler refused, and those that there was no time for, count for nothing.

    Parameters
    ----------
    rows : iterable of Mapping
        ``stencil``, ``precision``, ``trans``, ``level``, ``id``, ``status`` ("same", "wrong",
        "failed", or another word for what did not run), ``launches`` and ``elements``.
    run : Run
        Where and when.
    """
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["stencil"], row["precision"], row["level"]].append(row)
    return tuple(
        Proof(
            **asdict(run),
            scheduler=SCHEDULER_VERSION,
            stencil=stencil,
            precision=precision,
            level=level,
            kernels=len(same),
            launches=sum(row["launches"] for row in same),
            elements=sum(row["elements"] for row in same),
        )
        for (stencil, precision, level), group in sorted(groups.items())
        if (same := _all_same(group))
    )


def _all_same(group: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return a level's kernels that had their baselines' bits; none if that proves nothing."""
    ran = [row for row in group if row["status"] in ("same", "wrong", "failed")]
    enough = (
        all(row["status"] == "same" for row in ran)
        and len({(row["trans"], row["id"]) for row in ran}) >= _KERNELS
        and {row["trans"] for row in ran} >= _CASES
        and sum(row["elements"] for row in ran) >= _ELEMENTS
    )
    return ran if enough else []


def add_proofs(new: Iterable[Proof], file: Path) -> tuple[Proof, ...]:
    """Write proofs to a file beside those it has; a new one replaces one of the same target.

    Returns
    -------
    tuple of Proof
        All that the file has then.
    """
    known = read_proofs(file.read_text("utf-8")) if file.exists() else ()
    by_target = {one.target: one for one in (*known, *new)}
    made = tuple(by_target[target] for target in sorted(by_target))
    text = json.dumps({"proofs": [asdict(one) for one in made]}, indent=1)
    write_atomically(file, f"{text}\n".encode())
    return made


@lru_cache(maxsize=16)
def proved(arch: str) -> tuple[str, ...]:
    """Return what may run rescheduled on an architecture with this toolkit and this scheduler.

    `permission` of each level; nothing without NVRTC.
    """
    mine = [
        one for one in proofs() if one.architecture == arch and one.scheduler == SCHEDULER_VERSION
    ]
    if not mine:
        return ()
    try:
        toolkit = nvrtc_version()
    except BackendError:
        return ()
    levels = {one.name: one for one in LEVELS.values()}
    return tuple(
        permission(one.stencil, one.precision, levels[one.level])
        for one in mine
        if one.toolkit == toolkit and one.level in levels
    )
