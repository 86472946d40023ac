"""Terms: one limit each, in FLOP/s, with the formula and the inputs that a person can check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isinf
from typing import Any

from tilewright.hardware.catalogue import CatalogueDevice
from tilewright.hardware.quantity import QUANTITIES, Quantity

__all__ = ["Term", "given", "term"]


@dataclass(frozen=True)
class Term:
    """One limit of GEMM.

    Parameters
    ----------
    name : str
        What limits.
    value : float or None
        FLOP/s; None where an input is unknown.
    formula : str
        In the names of `inputs`.
    inputs : tuple of Quantity
        Every number that the formula uses, with unit and source.
    resource : str
        The part of the machine that is full when this term is reached.
    reason : str
        Why there is no value; empty where there is one.
    """

    name: str
    value: float | None
    formula: str
    inputs: tuple[Quantity, ...] = ()
    resource: str = ""
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data; a term that sets no limit has no value either."""
        unlimited = self.value is not None and isinf(self.value)
        return {
            "name": self.name,
            "flops_per_second": None if unlimited else self.value,
            "formula": self.formula,
            "inputs": {
                q.name: {"value": q.value, "unit": q.unit, "source": q.source} for q in self.inputs
            },
            "resource": self.resource,
            "reason": "no limit" if unlimited else self.reason,
        }


def given(name: str, value: float, unit: str = "", source: str = "of the problem") -> Quantity:
    """Return an input that is no number of the device."""
    return Quantity(name, float(value), unit, source)


def term(
    name: str,
    formula: str,
    device: CatalogueDevice,
    needs: Sequence[str],
    compute: Callable[..., float],
    *others: Quantity,
    resource: str = "",
) -> Term:
    """Return the term `compute(*values)` of the device's quantities `needs`, if all are known.

    Parameters
    ----------
    name, formula, resource : str
        See `Term`.
    device : CatalogueDevice
        Whose quantities are needed.
    needs : sequence of str
        Names of quantities, in the order of `compute`'s arguments.
    compute : callable
        Returns FLOP/s.
    *others : Quantity
        Inputs of the formula beside the device's.
    """
    found = [device.get(key) for key in needs]
    known = [q for q in found if q is not None]
    missing = [key for key, q in zip(needs, found, strict=True) if q is None]
    if missing:
        meant = ", ".join(f"{key} ({QUANTITIES[key][1]})" for key in missing)
        return Term(
            name, None, formula, (*known, *others), resource, f"unknown for {device.id}: {meant}"
        )
    return Term(name, compute(*(q.value for q in known)), formula, (*known, *others), resource)
