"""What double-double arithmetic costs in double-precision instructions.

Nakasato's appendix A counts his sequences on Cypress; the others are the field's later ones.
A double-double multiply-add counts as 2 FLOP, one product and one sum.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SEQUENCES", "SEQUENCE_OF", "Sequence"]


@dataclass(frozen=True)
class Sequence:
    """Instructions of one double-double multiply-add.

    Parameters
    ----------
    name : str
        What people call it.
    additions : float
        Double-precision additions and subtractions.
    multiplications : float
        Multiplications and fused multiply-adds.
    source : str
        Where the count is from.
    """

    name: str
    additions: float
    multiplications: float
    source: str

    @property
    def instructions(self) -> float:
        """All instructions."""
        return self.additions + self.multiplications

    def rate(self, fma_rate: float, add_rate: float | None = None) -> float:
        """Return double-double FLOP/s.

        Parameters
        ----------
        fma_rate : float
            Double-precision multiplications or multiply-adds a second.
        add_rate : float, optional
            Additions a second, where they are faster; they share the units.
        """
        seconds = self.multiplications / fma_rate + self.additions / (add_rate or fma_rate)
        return 2 / seconds


_JOLDES = "Joldes, Muller & Popescu 2017"
# Dot2 renormalises the pair by one FastTwoSum (3 additions) every so many steps: often enough
# that the low word's own rounding stays below the pair's.
_RENORMALISE = 32

SEQUENCES: dict[str, Sequence] = {
    s.name: s
    for s in (
        # All at the rate of additions, as the appendix counts them.
        Sequence("nakasato", 21 + 25, 0, "Nakasato 2010, appendix A: 21 and 25, without FMA"),
        Sequence("nakasato-fma", 21 + 8, 0, "Nakasato 2010, appendix A: 21 and 8, with FMA"),
        Sequence("accurate", 20 + 4, 5, f"{_JOLDES}: AccurateDWPlusDW 20, DWTimesDW3 9"),
        Sequence("sloppy", 11 + 4, 4, f"{_JOLDES}: SloppyDWPlusDW 11, DWTimesDW2 8"),
        # TwoProd 2 and two cross products; two TwoSums, an addition, FastTwoSum, an addition.
        Sequence(
            "chained",
            6 + 6 + 1 + 3 + 1,
            2 + 2,
            f"{_JOLDES}: the same, normalised by the next step alone (docs/double_double.md)",
        ),
        # TwoProd 2, TwoSum 6, two cross products, two additions into the low word.
        Sequence(
            "dot2",
            6 + 2 + 3 / _RENORMALISE,
            2 + 2,
            "after Ogita, Rump & Oishi 2005, Dot2 on pairs, one FastTwoSum every 32 steps",
        ),
    )
}

# What the kernels of each double-double precision compute with.
SEQUENCE_OF = {"e": "chained", "f": "dot2", "w": "chained", "v": "dot2"}
