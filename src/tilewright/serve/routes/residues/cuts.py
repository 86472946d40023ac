"""How a product in residues is cut, so that its workspace fits: tiles of C, and pieces of k.

::

            n
        +------+---+      for each tile of C: for each piece of k: residues of A's rows and of B's
      m | tile |   |      columns (those that are there already stay), their products, added to
        +------+---+      those of the pieces before; then reconstruction

The choice of the number of moduli comes first and is one for all, so bits do not depend on the cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tilewright.dataclass import dataclass
from tilewright.problem import Problem
from tilewright.stencil import Variant
from tilewright.stencil.residues.sources import ALIGNED_K, DECISION_WORDS, PIECE_K, Passes

__all__ = ["ALIGNMENT", "TILE", "Cut", "cuts_of", "passes_of", "workspace", "workspace_bytes"]

# Planes of residues of a product begin and end with whole tiles of any config.
TILE = 256

# The copy engine's rule for columns.
ALIGNMENT = 16

# Shorter sides and sums leave most of the device idle, or pass over results for little.
_LEAST_SIDE, _LEAST_K = 1024, 2048

# What plans align pieces of a workspace to.
_PIECE = 256


@dataclass(frozen=True)
class Cut:
    """Sides of a tile of C, and the length of a piece of k."""

    m: int
    n: int
    k: int


def passes_of(problem: Problem) -> Passes:
    """Return the passes of a whole product."""
    p, of = problem, problem.precision
    return Passes(p.m, p.n, p.k, Variant.of(p).k_fast, of.is_complex, of.parts == 2)


def workspace(problem: Problem, cut: Cut, certify: bool) -> dict[str, int]:
    """Return the bytes of each piece of memory that a product takes, by name."""
    of, p = passes_of(problem), problem
    made = of.planes * _up(min(cut.m, p.m), TILE) * _up(min(cut.n, p.n), TILE)
    ld, whole_ld = aligned(cut.k), aligned(p.k)
    found = {
        # First they hold the bytes of both whole operands for the bound, and the bound in 16 bits.
        "residues a": max(of.planes * cut.m * ld, p.m * whole_ld),
        "residues b": max(of.planes * cut.n * ld, p.n * whole_ld),
        "residues c": made,
        "decision": 4 * DECISION_WORDS,
        "partial norms": 16 * of.chunks * of.sides,
        "norms": 8 * of.sides,
        "steps": 8 * of.sides,
        **dict.fromkeys(("exponents", "magnitudes", "units", "places"), 4 * of.sides),
    }
    if cut.k < p.k:
        found["residues of a piece"] = made
    if certify:
        found |= {"randoms": 4 * of.sides, "certificate": 8 * of.sums_words}
    return found


def aligned(k: int) -> int:
    """Return the bytes from a row of residues along k to the next."""
    return _up(k, ALIGNMENT)


def workspace_bytes(problem: Problem, cut: Cut, certify: bool) -> int:
    """Return the bytes of all of it."""
    return sum(_up(size, _PIECE) for size in workspace(problem, cut, certify).values())


def cuts_of(problem: Problem) -> Iterator[Cut]:
    """Yield all cuts, the one of fewest parts first."""
    p = problem
    fewest = -(-p.k // PIECE_K)
    ks = [p.k if many == 1 else _up(-(-p.k // many), ALIGNED_K)
          for many in _counts(p.k, _LEAST_K, fewest)]  # fmt: skip
    sides = (
        [size if many == 1 else _up(-(-size // many), TILE) for many in _counts(size, _LEAST_SIDE)]
        for size in (p.m, p.n)
    )
    yield from (Cut(m, n, k) for k, m, n in product(ks, *sides))


def _counts(size: int, least: int, first: int = 1) -> list[int]:
    """Return numbers of parts, doubling, of `least` and more each; the first in any case."""
    found = [first]
    while size >= 2 * found[-1] * least:
        found.append(2 * found[-1])
    return found


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
