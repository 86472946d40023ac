"""Bound: every limit of one problem on one device; the smallest is the limit."""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf
from typing import Any

from tilewright.bounds.levels import Level
from tilewright.bounds.terms import Term
from tilewright.problem import Problem

__all__ = ["Bound"]


@dataclass(frozen=True)
class Bound:
    """How fast a problem can be on a device, and which resource says so.

    Parameters
    ----------
    problem : Problem
        What is computed.
    device : str
        The device's id.
    device_name : str
        Its name.
    arithmetic : str
        What multiplies: ``"fma"``, ``"tensor cores"``, ``"tf32"`` and so on.
    terms : tuple of Term
        All limits, those that cannot be computed included.
    levels : tuple of Level
        What the kernel's limit asks of each memory level.
    notes : tuple of str
        Choices and assumptions behind the terms.
    without_tensor_cores : bool
        Whether it is of tensor cores that the device is not known to have.  Memory has a limit
        then, too, which would be told of nothing: there is no bound.
    """

    problem: Problem
    device: str
    device_name: str
    arithmetic: str
    terms: tuple[Term, ...]
    levels: tuple[Level, ...] = ()
    notes: tuple[str, ...] = ()
    without_tensor_cores: bool = False

    @property
    def known(self) -> bool:
        """Whether there is a limit: a term with a value, and tensor cores if it is of these."""
        return any(t.value is not None for t in self.terms) and not self.without_tensor_cores

    @property
    def limiting(self) -> Term:
        """The smallest term.

        Raises
        ------
        ValueError
            If no term has a value, or tensor cores are not known; the message says what is.
        """
        known = [t for t in self.terms if t.value is not None]
        if not self.known:
            reasons = "; ".join(dict.fromkeys(t.reason for t in self.terms if t.value is None))
            raise ValueError(
                f"device={self.device!r} has no bound for {self.problem}: {reasons};"
                " tilewright devices --probe -o mine.toml measures a device that is here"
            )
        return min(known, key=lambda t: t.value if t.value is not None else 0.0)

    @property
    def limit(self) -> float:
        """The bound in FLOP/s, as BLAS counts operations."""
        value = self.limiting.value
        assert value is not None
        return value

    @property
    def seconds(self) -> float:
        """The least time the problem can take."""
        return self.problem.flops / self.limit if self.problem.flops else 0.0

    @property
    def missing(self) -> dict[str, str]:
        """Terms without a value, and why."""
        return {t.name: t.reason for t in self.terms if t.value is None}

    def term(self, name: str) -> Term:
        """Return a term by its name.

        Raises
        ------
        ValueError
            If there is none of that name.
        """
        for one in self.terms:
            if one.name == name:
                return one
        raise ValueError(f"name={name!r} is no term; use one of {[t.name for t in self.terms]}")

    def explain(self) -> str:
        """Return a table of every term, its formula and inputs, to be followed by hand."""
        limiting = self.limiting
        lines = [f"{self.problem} on {self.device_name} ({self.device}), {self.arithmetic}", ""]
        for one in sorted(self.terms, key=lambda t: (t.value is None, t.value or 0.0)):
            mark = ">" if one is limiting else " "
            value = _rate(one.value)
            full = f"  [{one.resource}]" if one.resource else ""
            lines.append(f"{mark} {one.name:<34} {value:>24}{full}")
            lines.append(f"      = {one.formula}")
            lines += [
                f"      {q.name} = {q.value:,.10g}{' ' if q.unit else ''}{q.unit}   ({q.source})"
                for q in one.inputs
            ]
            if one.reason:
                lines.append(f"      {one.reason}")
        lines += ["", f"limit: {self.limit / 1e9:,.1f} GFLOP/s, set by {limiting.name}"]
        if self.levels:
            lines += ["", "What the kernel's limit asks of each memory level (Nakasato eq. 1):"]
        for level in self.levels:
            has = "unknown" if level.available is None else f"{level.available / 1e9:,.1f} GB/s"
            need = f"{level.required / 1e9:,.1f} GB/s"
            lines.append(f"  {level.name:<44} b = {level.b:<8.1f} {need:>16} of {has}")
        lines += [f"note: {text}" for text in self.notes]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data; ``limit`` is None where nothing is known."""
        known = self.known
        return {
            "problem": str(self.problem),
            "precision": self.problem.precision.letter,
            "trans": self.problem.trans,
            "size": [self.problem.m, self.problem.n, self.problem.k],
            "batch": self.problem.batch,
            "device": self.device,
            "device_name": self.device_name,
            "arithmetic": self.arithmetic,
            "flops_per_second": self.limit if known else None,
            "limiting": self.limiting.name if known else None,
            "resource": self.limiting.resource if known else None,
            "terms": [t.as_dict() for t in self.terms],
            "levels": [level.as_dict() for level in self.levels],
            "notes": list(self.notes),
        }


def _rate(value: float | None) -> str:
    """Return a term's value for people."""
    if value is None:
        return "unknown"
    return "no limit" if isinf(value) else f"{value / 1e9:,.1f} GFLOP/s"
