"""What a caller may ask of ``accuracy="fp64"`` besides."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.serve.decision import Decision
from tilewright.text import shown

__all__ = ["PLAIN", "Residues", "residues_asked", "with_verdict"]


@dataclass(frozen=True)
class Residues:
    """How residues may serve.

    Parameters
    ----------
    certify : bool
        Whether the product of residues is checked.
    max_workspace : int, optional
        Bytes of device memory that it may take besides the operands.
    """

    certify: bool = False
    max_workspace: int | None = None

    def named(self, accuracy: str) -> str:
        """Return what calls with an accuracy and these options are remembered by."""
        return accuracy if self.max_workspace is None else f"{accuracy}:{self.max_workspace}"


PLAIN = Residues()


def residues_asked(a: Any, accuracy: str, certify: Any, max_workspace: Any) -> Residues:
    """Return the options of a call whose first operand is `a`.

    Raises
    ------
    ValueError
        If they are none, or the accuracy has none.
    """
    if certify is False and max_workspace is None:
        return PLAIN
    if not isinstance(certify, bool | np.bool_):
        raise ValueError(f"certify={shown(certify)} is neither True nor False; give one")
    whole = isinstance(max_workspace, int | np.integer) and not isinstance(max_workspace, bool)
    if max_workspace is not None and (not whole or max_workspace <= 0):
        raise ValueError(
            f"max_workspace={shown(max_workspace)} is not a number of bytes; give one above 0"
        )
    if accuracy == "ieee" and type(a).__module__.startswith("tilewright."):
        accuracy = "accurate"  # so DoubleDouble arrays are multiplied
    if accuracy != "fp64" and (certify or accuracy != "accurate"):
        given, others = "certify=True", " of float64 and complex128 arrays"
        if not certify:
            given = f"max_workspace={max_workspace}"
            others = " and 'accurate' DoubleDouble arrays"
        raise ValueError(f"{given} is for accuracy='fp64'{others}, not {accuracy!r}; leave it out")
    return Residues(bool(certify), None if max_workspace is None else int(max_workspace))


def with_verdict(report: Decision | None, limits: Any, device: Any) -> Decision:
    """Return a report for a certified call's verdict: the caller's, or a new one.

    Raises
    ------
    ValueError
        If the call is of tiles, which have a verdict each.
    """
    if limits is not None or isinstance(device, list | tuple):
        raise ValueError(
            "certify=True is of one product, and tiles are many; leave it out, or limits of memory"
            " and lists of devices"
        )
    return Decision() if report is None else report
