"""How fast a measured product could have been, beside how fast it was."""

from __future__ import annotations

from typing import Any

from tilewright.backend import LiveDevice
from tilewright.bounds import Bound
from tilewright.hardware.catalogue import CatalogueDevice
from tilewright.problem import Problem
from tilewright.serve.bound import bound

__all__ = ["bound_of", "bound_record"]


def bound_of(
    device: LiveDevice | CatalogueDevice,
    problem: Problem,
    *,
    warm_cache: bool = True,
    arithmetic: str = "ieee",
    accuracy: str | None = None,
) -> Bound | str:
    """Return how fast the problem can be on the device, or why nobody knows.

    As everybody is timed here: C is written only, and where caches are warm earlier rounds
    leave operands there.
    """
    try:
        found = bound(
            problem, device, arithmetic=arithmetic, accuracy=accuracy, reads_c=False,
            warm_cache=warm_cache,
        )  # fmt: skip
        _ = found.limiting  # raises where no term has a value
    except ValueError as reason:
        return str(reason)
    return found


def bound_record(limit: Bound | str) -> dict[str, Any]:
    """Return `bound_of`'s answer as plain data: ``flops_per_second``, or ``missing``."""
    if isinstance(limit, str):
        return {"missing": limit}
    return {
        "flops_per_second": limit.limit,
        "limiting": limit.limiting.name,
        "resource": limit.limiting.resource,
    }
