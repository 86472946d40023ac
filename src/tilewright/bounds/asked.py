"""What is asked of a bound, as every term takes it."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.bounds.terms import Term
from tilewright.bounds.units import Units
from tilewright.hardware.catalogue import CatalogueDevice
from tilewright.problem import Problem

__all__ = ["Asked"]


@dataclass(frozen=True)
class Asked:
    """A problem on a device: what every term is computed from.

    `problem` is what units multiply, `given` what was asked for: another one where a complex
    product is computed as a real one.  `peak` is that of the arithmetic, at the clock that is
    asked for; `promote_k` the steps of k between two promotions out of tensor cores, None for
    never.
    """

    given: Problem
    problem: Problem
    device: CatalogueDevice
    units: Units
    peak: Term
    promote_k: int | None = None

    @property
    def expands(self) -> bool:
        """Whether every element of A becomes four real numbers before the product."""
        return self.given.precision != self.problem.precision

    @property
    def peak_source(self) -> str:
        """Where the terms that begin with the peak have it from."""
        return f"term {self.peak.name!r}"
