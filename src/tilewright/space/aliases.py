"""How stored configs spell what has another name today: the one table that all of them pass.

Results stores, portfolios, files of times and exports keep the spelling that they were written
with, and a config's id is a digest of its oldest one, so that what is stored of it still counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

__all__ = ["LAUNCH_MODES", "RENAMED", "RETIRED", "current", "oldest", "oldest_macros"]

T = TypeVar("T")

# Parameters that stencils had, by their last name, each with the only value that is left of it.  A
# config that names one at that value is the point without it; at another value it is no point of a
# space any more.  16 bytes that pass through registers (k_vectors 1), and fragments that are loaded
# in the step that multiplies them (double_buffered 0), were never the fastest way.
RETIRED: Mapping[str, Mapping[str, int | str]] = {
    "simt_async": {"k_vectors": 0},
    "mma_f64": {"double_buffered": 1},
}

# Launch modes that were parameters, by their names today (`tilewright.stencil.geometry.Mode`):
# absent, or 0, where a kernel is compiled without them.
LAUNCH_MODES: Mapping[str, Mapping[str, str]] = {
    name: {"scalar": "narrow", "clamped": "guarded", "staged": "staged"}
    for name in ("simt_async", "mma_f64")
}


# Parameters that have another name today, by the one that they had first.
_BLOCKS = {"raster_rows": "swizzle_rows", "resident": "min_blocks"}
_ASYNCHRONOUS = {
    **_BLOCKS,
    "sliced": "parallel_split_k",
    "split_k": "cluster_k",
    "tree": "tree_reduction",
    "walk": "serpentine_rows",
    "ways_apart": "specialised_epilogue",
}
RENAMED: Mapping[str, Mapping[str, str]] = {
    "simt_async": _ASYNCHRONOUS,
    "mma_f64": {**_ASYNCHRONOUS, "ahead": "double_buffered", "turns": "interleave"},
    "wgmma": {**_BLOCKS, "turns": "pingpong"},
    "skinny": {"resident": "min_blocks"},
    "portable": {"raster_rows": "swizzle_rows"},
}

_OLDEST = {stencil: {new: old for old, new in names.items()} for stencil, names in RENAMED.items()}
_SILENT = {
    stencil: {
        **RETIRED.get(stencil, {}),
        **dict.fromkeys(LAUNCH_MODES.get(stencil, {}).values(), 0),
    }
    for stencil in (*RETIRED, *LAUNCH_MODES)
}


def current(stencil: str, values: Mapping[str, T]) -> dict[str, T]:
    """Return a stencil's values by today's names, without those that go without saying."""
    names, silent = RENAMED.get(stencil, {}), _SILENT.get(stencil, {})
    today = {names.get(name, name): x for name, x in values.items()}
    return {name: x for name, x in today.items() if name not in silent or x != silent[name]}


def oldest(stencil: str, values: Mapping[str, T]) -> dict[str, T]:
    """Return a stencil's values by the first names, which ids are digests of."""
    names = _OLDEST.get(stencil, {})
    return {names.get(name, name): x for name, x in values.items()}


def oldest_macros(stencil: str, macros: Mapping[str, T]) -> dict[str, T]:
    """Return a source's macros, parameters among them by their first names, as `oldest` does."""
    names = {new.upper(): old.upper() for new, old in _OLDEST.get(stencil, {}).items()}
    return {names.get(name, name): x for name, x in macros.items()}
