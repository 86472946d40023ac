"""Which levels a run on a device has shown right; `tune` tries no other.

A proof is a row of ``proofs.json``, written by a script that commit 6435600 has, after a run
without a wrong bit.  It holds for one architecture, build of the compiler, version of the
scheduler, level, stencil and precision.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from tilewright.backend.base import BackendError
from tilewright.backend.cuda.compiler import nvrtc_version
from tilewright.reschedule.levels import LEVELS, permission
from tilewright.reschedule.version import SCHEDULER_VERSION

__all__ = ["Proof", "proofs", "proved"]


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


@lru_cache(maxsize=1)
def proofs() -> tuple[Proof, ...]:
    """Return the proofs that come with the package."""
    text = files("tilewright.reschedule").joinpath("proofs.json").read_text("utf-8")
    return tuple(Proof(**row) for row in json.loads(text)["proofs"])


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
