"""How stored configs spell what has another name today: the one table that all of them pass.

Results stores, portfolios, files of times and exports keep the spelling that they were written
with, and a config's id is a digest of its oldest one, so that what is stored of it still counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

__all__ = ["LAUNCH_MODES", "RETIRED", "current"]

T = TypeVar("T")

# Parameters that stencils had, each with the only value that is left of it.  A config that names
# one at that value is the point without it; at another value it is no point of a space any more.
# 16 bytes that pass through registers (k_vectors 1) were never the fastest way.
RETIRED: Mapping[str, Mapping[str, int | str]] = {"simt_async": {"k_vectors": 0}}

# Launch modes that were parameters, by their names today (`tilewright.stencil.geometry.Mode`):
# absent, or 0, where a kernel is compiled without them.
LAUNCH_MODES: Mapping[str, Mapping[str, str]] = {
    name: {"scalar": "narrow", "clamped": "guarded", "staged": "staged"}
    for name in ("simt_async", "mma_f64")
}


def current(stencil: str, values: Mapping[str, T]) -> dict[str, T]:
    """Return a stencil's values without those that go without saying today."""
    silent = {**RETIRED.get(stencil, {}), **dict.fromkeys(_modes(stencil).values(), 0)}
    return {name: x for name, x in values.items() if name not in silent or x != silent[name]}


def _modes(stencil: str) -> Mapping[str, str]:
    return LAUNCH_MODES.get(stencil, {})
