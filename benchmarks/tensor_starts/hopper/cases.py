"""What is asked of a precision: transposes, sizes and multiples of cuBLAS's speed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.precision import precision
from tilewright.problem import Trans, transposes_of
from tilewright.stencil import Variant


@dataclass(frozen=True)
class Asked:
    """What a precision's kernels are to be.

    Parameters
    ----------
    sizes : tuple of int
        Sides of square problems.
    wanted : Mapping
        Multiples of cuBLAS's speed by size and, where cases differ, by case and size.
    """

    sizes: tuple[int, ...]
    wanted: Mapping[object, float]

    def bar(self, trans: str, size: int) -> float | None:
        """Return the multiple of cuBLAS's speed that is wanted; None where nothing is."""
        return self.wanted.get((trans, size), self.wanted.get(size))


SIZES = (512, 1024, 2048, 4096, 8192, 16384)
ASKED = {
    # 4800 is the size of Lai & Seznec (2013).
    "s": Asked(
        (512, 1024, 2048, 4096, 4800, 8192, 16384),
        {512: 1.3, 1024: 1.2, 2048: 1.1, 4096: 1.11, 4800: 1.12, 8192: 1.11, 16384: 1.08},
    ),
    "d": Asked(
        SIZES,
        {1024: 1.15, 2048: 1.05, 4096: 1.05, 8192: 1.05, ("NT", 4096): 1.18, ("NT", 8192): 1.18},
    ),
    "c": Asked(SIZES, {1024: 1.1, 2048: 1.05, 4096: 1.08, 8192: 1.08}),
    "z": Asked(SIZES, {1024: 1.05, 2048: 1.05, 4096: 1.1, 8192: 1.1}),
}


def cases_of(letter: str) -> tuple[str, ...]:
    """Return BLAS's transposes of a precision: 4 on real elements, 9 on complex ones."""
    return tuple(f"{a}{b}" for a, b in transposes_of(precision(letter)))


def asked_cases(letter: str, text: str | None) -> list[str]:
    """Return the cases that a command line names, commas between; all where it names none.

    Raises
    ------
    ValueError
        If one is no case of the precision.
    """
    every = cases_of(letter)
    wanted = text.split(",") if text else every
    if unknown := [one for one in wanted if one not in every]:
        raise ValueError(f"--trans={','.join(unknown)} is none of {', '.join(every)}")
    return [one for one in every if one in wanted]


def variant_of(letter: str, trans: str) -> Variant:
    """Return what kernels of a case are compiled for."""
    return Variant(precision(letter), Trans(trans[0]), Trans(trans[1]))
