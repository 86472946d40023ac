"""What the guard of ``accuracy="fp32"`` decided, and on what grounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.dataclass import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ROUTES", "TERMS_A_CUT", "TERMS_BF16", "TERMS_FP16", "OfParts"]

# guard.h: numbers of what `decide` writes.
ROUTES = ("ieee", "fp16x3", "bf16x6")
TERMS_FP16, TERMS_BF16, TERMS_A_CUT = 128, 64, 128


@dataclass(frozen=True)
class OfParts:
    """The guard of ``accuracy="fp32"``.

    Parameters
    ----------
    k : int
        Real terms of a sum.
    exchanged : bool
        Whether the kernels' A was the caller's b.
    """

    k: int
    exchanged: bool

    def variant(self, words: NDArray[np.int32]) -> str:
        """Return ``"ieee"``, or the name of a scheme."""
        return ROUTES[words[0]]

    def _words(self, words: NDArray[np.int32]) -> tuple[int, ...]:
        route, finite, seen, wide, *of_sides = (int(word) for word in words)
        if self.exchanged:
            of_sides = [of_sides[at] for at in (1, 0, 3, 2)]
        return route, finite, seen, wide, *of_sides

    def reason(self, words: NDArray[np.int32]) -> str:
        """Return why, in one sentence."""
        route, finite, seen, wide, cut_a, cut_b, short_a, short_b = self._words(words)
        if not finite:
            return "there is infinity or NaN among the operands"
        if route == 0 and seen >= TERMS_BF16:
            return "both operands' elements fit one part: single precision may add them exactly"
        if route == 0:
            return (
                f"only {max(0, seen)} terms are sure to count in every sum, of {TERMS_BF16} that"
                " make single precision err more than parts do"
            )
        if route == 1:
            short = " and one operand's elements fit one part" if short_a or short_b else ""
            return f"{seen if short else wide} terms or more count in every sum{short}"
        if not (short_a or short_b) and wide < TERMS_FP16:
            return (
                f"in {max(0, wide)} terms, fewer than {TERMS_FP16}, both factors have digits"
                " enough that FP16 parts may leave out what single precision keeps"
            )
        if seen < TERMS_FP16:
            return f"{seen} terms are sure to count in every sum, fewer than {TERMS_FP16}"
        return (
            f"up to {max(cut_a, cut_b)} elements of a sum are too small for FP16 beside the"
            f" largest, more than one in {TERMS_A_CUT} of {seen} terms"
        )

    def numbers(self, words: NDArray[np.int32]) -> dict[str, Any]:
        """Return what was counted."""
        names = ("finite", "terms", "wide_terms", "cut_a", "cut_b", "short_a", "short_b")
        return dict(zip(names, self._words(words)[1:], strict=True)) | {"k": self.k}

    def lines(self, words: NDArray[np.int32]) -> list[str]:
        """Return what was counted beside what it was compared with."""
        _, finite, seen, wide, cut_a, cut_b, short_a, short_b = self._words(words)
        return [
            f"  operands are finite            {'yes' if finite else 'no'}",
            f"  terms of a sum, k              {self.k}",
            f"  sure to count in every sum     {max(0, seen)}"
            f"  (bf16x6 from {TERMS_BF16}, fp16x3 from {TERMS_FP16} on)",
            f"  ... with both factors wide     {max(0, wide)}  (fp16x3 from {TERMS_FP16} on)",
            f"  cut by FP16, of a row of a     {cut_a}  (fp16x3 up to {seen // TERMS_A_CUT})",
            f"  ... of a column of b           {cut_b}",
            f"  elements fit one part          a: {'yes' if short_a else 'no'},"
            f" b: {'yes' if short_b else 'no'}  (of one: width does not matter)",
        ]
