"""What the guard of ``accuracy="fp64"`` decided, and on what grounds."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.backend import BackendError
from tilewright.dataclass import dataclass
from tilewright.problem import Problem
from tilewright.serve.routes.residues.cuts import passes_of
from tilewright.stencil.residues.sources import REPORT_WORDS, SEED, UNCERTIFIED, Passes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilewright.serve.decision import Decision

__all__ = ["CertificateError", "OfResidues", "first_words", "refuse_uncertified"]


class CertificateError(BackendError):
    """A product of residues is wrong: the device or its memory erred."""


def first_words(products: int) -> NDArray[np.int32]:
    """Return a report's words before a call, of which so many products are to be certified."""
    words = np.frombuffer(os.urandom(4 * REPORT_WORDS), np.int32).copy()
    words[:SEED] = 0
    words[UNCERTIFIED] = products
    return words


def refuse_uncertified(told: Decision) -> None:
    """Wait for a call, and raise if its certificate failed.

    Raises
    ------
    CertificateError
        Then.
    """
    words = told.words()
    if words is not None and words[UNCERTIFIED]:
        raise CertificateError(
            "certify=True: what came out is not A B modulo 2^31 - 1, as the device or its memory"
            " erred; do not use c, compute it anew"
        )


@dataclass(frozen=True)
class OfResidues:
    """Grounds (`tilewright.serve.decision.Grounds`) of a product in residues.

    Parameters
    ----------
    problem : Problem
        Whose sums have so many terms, of doubles or of pairs of them.
    certify : bool
        Whether what came out was to be certified.
    """

    problem: Problem
    certify: bool = False

    @cached_property
    def _passes(self) -> Passes:
        return passes_of(self.problem)

    def variant(self, words: NDArray[np.int32]) -> str:
        """Return ``"residues"`` or ``"ieee"``."""
        return "residues" if words[1] else "ieee"

    def _bounds(self, words: NDArray[np.int32]) -> list[float]:
        """Return bounds of |C' - AB| / (|A| |B|) with the fewest moduli, and more, to the most."""
        of, each = self._passes.moduli, self._passes.error_of_ratio
        ratio, top = (float(x) for x in words[3:5].view(np.float32))
        found = [each * ratio * 2.0**-gain for gain in of.gains]
        return [*found[:-1], min(found[-1], each * top)]

    def bound(self, words: NDArray[np.int32]) -> float:
        """Return the bound of |C' - AB| / (|A| |B|), the result's own rounding included."""
        number = int(words[1]) - self._passes.moduli.first
        return self._bounds(words)[number] + self._passes.rounding

    def reason(self, words: NDArray[np.int32]) -> str:
        """Return why, in one sentence."""
        moduli, least = int(words[1]), self._bounds(words)[-1]
        if words[2]:
            return "operands are not finite, or a row or column of them is too large or too small"
        if not moduli:
            return (
                f"rounding to integers might change results by {least:.1e} |A||B|: rows or columns"
                " have elements too far apart"
            )
        return f"{moduli} moduli bound errors by {self.bound(words):.1e} |A||B|"

    def numbers(self, words: NDArray[np.int32]) -> dict[str, Any]:
        """Return what was measured."""
        told: dict[str, Any] = {"k": self.problem.k, "moduli": int(words[1])}
        told |= {"error_bound": self.bound(words)} if words[1] else {}
        certified = self._certified(words)
        return told if certified is None else told | {"certified": certified}

    def _certified(self, words: NDArray[np.int32]) -> bool | None:
        """Whether all products are right; None where nothing could be certified."""
        if words[UNCERTIFIED] and self.certify:
            return False
        return True if self.certify and words[1] else None

    def lines(self, words: NDArray[np.int32]) -> list[str]:
        """Return what was measured beside what it was compared with."""
        if words[2]:
            return []
        of, allowed = self._passes.moduli, self._passes.allowed
        certified = self._certified(words)
        last = [] if certified is None else [f"  certified modulo 2^31 - 1      {certified}"]
        return [
            f"  error bound with {count} moduli    {bound:.1e} |A||B|  (allowed: {allowed:.1e})"
            for count, bound in zip(of.counts, self._bounds(words), strict=True)
        ] + last
