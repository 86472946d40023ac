"""What the guard of ``accuracy="fp64"`` decided, and on what grounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.stencil.residues.sources import Passes, bound_in_roundings

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["OfResidues"]

# A rounding of double precision.
_ROUNDING = 2.0**-53


@dataclass(frozen=True)
class OfResidues:
    """Grounds (`tilewright.serve.split.decision.Grounds`) of a product in residues.

    Parameters
    ----------
    k : int
        Terms of a sum.
    is_complex : bool
        Whether they are complex.
    """

    k: int
    is_complex: bool

    def variant(self, words: NDArray[np.int32]) -> str:
        """Return ``"residues"`` or ``"ieee"``."""
        return "residues" if words[1] else "ieee"

    def _measured(self, words: NDArray[np.int32]) -> tuple[int, float]:
        """Return the moduli, and the bound of |C' - AB| / (|A| |B|) with the fewest of them."""
        ratio = float(words[3:4].view(np.float32)[0])
        passes = Passes(1, 1, self.k, is_complex=self.is_complex)
        return int(words[1]), bound_in_roundings(self.k) * _ROUNDING * ratio / passes.limit

    def bound(self, words: NDArray[np.int32]) -> float:
        """Return the bound of |C' - AB| / (|A| |B|), the result's own rounding included."""
        moduli, least = self._measured(words)
        of = Passes(1, 1, self.k, is_complex=self.is_complex).moduli
        return least * 2.0 ** -of.gains[moduli - of.first] + _ROUNDING

    def reason(self, words: NDArray[np.int32]) -> str:
        """Return why, in one sentence."""
        moduli, least = self._measured(words)
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
        told: dict[str, Any] = {"k": self.k, "moduli": int(words[1])}
        return told | ({"error_bound": self.bound(words)} if words[1] else {})

    def lines(self, words: NDArray[np.int32]) -> list[str]:
        """Return what was measured beside what it was compared with."""
        if words[2]:
            return []
        of = Passes(1, 1, self.k, is_complex=self.is_complex).moduli
        allowed = bound_in_roundings(self.k) * _ROUNDING
        least = self._measured(words)[1]
        return [
            f"  error bound with {count} moduli    {least * 2.0**-gain:.1e} |A||B|"
            f"  (allowed: {allowed:.1e})"
            for count, gain in zip(of.counts, of.gains, strict=True)
        ]
