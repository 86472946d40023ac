"""What many products beside a peer come to: a mean, the worst, and whose errors are larger."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["SLOW", "quartiles", "summary_of"]

# Below this share of a peer's rate a product counts as slow.
SLOW = 0.9


def quartiles(times: Sequence[float]) -> list[float]:
    """Return the lower quartile, the median and the upper quartile."""
    return [float(x) for x in np.percentile(times, (25, 50, 75))]


def summary_of(rows: Sequence[Mapping[str, Any]], peer: str) -> dict[str, Any] | None:
    """Return how rows of a sweep stand beside a peer; None where none of them has it.

    Returns
    -------
    dict
        ``products``, ``geometric_mean`` and ``least`` of our rate over the peer's, ``slow``: how
        many are below `SLOW`; and where errors were compared ``eta_geometric_mean`` of our eta over
        the peer's.
    """
    both = [row for row in rows if {"tilewright", peer} <= row.get("flops_per_second", {}).keys()]
    if not both:
        return None
    ratios = [row["flops_per_second"]["tilewright"] / row["flops_per_second"][peer] for row in both]
    found = {
        "peer": peer,
        "products": len(ratios),
        "geometric_mean": _geometric_mean(ratios),
        "least": min(ratios),
        "slow": sum(ratio < SLOW for ratio in ratios),
    }
    errors = [row.get("errors", {}) for row in both]
    compared = [one for one in errors if {"tilewright", peer} <= one.keys()]
    pairs = [(one["tilewright"]["eta"], one[peer]["eta"]) for one in compared]
    etas = [ours / theirs for ours, theirs in pairs if ours > 0 and theirs > 0]  # some are exact
    return found | ({"eta_geometric_mean": _geometric_mean(etas)} if etas else {})


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
