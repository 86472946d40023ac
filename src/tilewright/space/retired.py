"""Parameters that stencils had, each with the only value that is left of it.

A config that names one at that value is the point without it, and keeps its id, so that what is
stored of it still counts.  One that names another value is no point of a space any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

__all__ = ["RETIRED", "current"]

# By stencil.  16 bytes that pass through registers (k_vectors 1) were never the fastest way.
RETIRED: Mapping[str, Mapping[str, int | str]] = {"simt_async": {"k_vectors": 0}}

T = TypeVar("T")


def current(stencil: str, values: Mapping[str, T]) -> dict[str, T]:
    """Return a stencil's values without those that are all that is left of their parameter."""
    retired = RETIRED.get(stencil, {})
    return {name: x for name, x in values.items() if name not in retired or x != retired[name]}
