"""What many products beside a peer come to: a mean, the worst, and whose errors are larger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

__all__ = ["SLOW", "Flatness", "etas_beside", "flatness", "losses", "summary_of"]

# Below this share of a peer's rate a product counts as slow.
SLOW = 0.9


def summary_of(rows: Sequence[Mapping[str, Any]], peer: str) -> dict[str, Any] | None:
    """Return how rows of a sweep stand beside a peer; None where none of them has it.

    Returns
    -------
    dict
        ``products``, ``geometric_mean`` and ``least`` of our rate over the peer's, ``slow``: how
        many are below `SLOW`; and where errors were compared ``eta_geometric_mean`` of our eta over
        the peer's, ``eta_larger``: how often ours is the larger one, ``eta_twice``: how often by
        more than a factor of 2, and ``eta_most``: the largest ratio.
    """
    both = [row for row in rows if {"tilewright", peer} <= row.get("flops_per_second", {}).keys()]
    if not both:
        return None
    ratios = [row["flops_per_second"]["tilewright"] / row["flops_per_second"][peer] for row in both]
    found = {
        "peer": peer,
        "products": len(ratios),
        "geometric_mean": geometric_mean(ratios),
        "least": min(ratios),
        "slow": sum(ratio < SLOW for ratio in ratios),
    }
    errors = [row.get("errors", {}) for row in both]
    compared = [one for one in errors if {"tilewright", peer} <= one.keys()]
    pairs = [(one["tilewright"]["eta"], one[peer]["eta"]) for one in compared]
    return found | etas_beside(pairs)


def etas_beside(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return what our largest errors and a peer's come to; nothing where all are exact.

    Returns
    -------
    dict
        The numbers of `summary_of` whose names begin with ``eta``.
    """
    etas = [ours / theirs for ours, theirs in pairs if ours > 0 and theirs > 0]  # some are exact
    if not etas:
        return {}
    return {
        "eta_geometric_mean": geometric_mean(etas),
        "eta_larger": sum(ours > theirs for ours, theirs in pairs),
        "eta_twice": sum(ours > 2 * theirs for ours, theirs in pairs),
        "eta_most": max(etas),
    }


# -- squares of the public call ------------------------------------------------------------------


def losses(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """Return by how much the rate of a side one above another is below that one's.

    Parameters
    ----------
    rows : sequence of mapping
        Of ``bench calls --size cliffs``.

    Returns
    -------
    dict
        By precision and the smaller side, for each transpose: what we lose of our rate, and what
        cuBLAS loses of its own.
    """
    known = {
        (row["precision"], row["trans"], row["size"][0]): row for row in rows if "ratio" in row
    }
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for (name, trans, side), row in known.items():
        above = known.get((name, trans, side + 1))
        if above is None:
            continue
        more = above["flops"] / row["flops"]
        lost = [1 - more * row[whose] / above[whose] for whose in ("us", "cublas_us")]
        found.setdefault((name, side), []).append((lost[0], lost[1]))
    return found


@dataclass(frozen=True)
class Flatness:
    """Our rates in operations a second over many sides; `varies` is a share of the most."""

    sides: int
    least: float
    most: float
    least_at: int

    @property
    def varies(self) -> float:
        """How far the least is below the most."""
        return 1 - self.least / self.most


def flatness(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Flatness]:
    """Return how rates of ``bench calls --size flat`` vary, by precision and transposes."""
    rates: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        of = rates.setdefault((row["precision"], row["trans"]), {})
        of[row["size"][0]] = row["flops"] / row["us"] * 1e6
    return {
        at: Flatness(len(of), min(of.values()), max(of.values()), min(of, key=lambda n: of[n]))
        for at, of in rates.items()
    }
