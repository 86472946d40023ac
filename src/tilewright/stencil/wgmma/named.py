"""Products of parts by the names that commands and bounds have for them."""

from __future__ import annotations

from dataclasses import replace

from tilewright.problem import Problem
from tilewright.stencil.base import Variant
from tilewright.stencil.wgmma.arithmetic import ARITHMETICS, TensorVariant

__all__ = ["IEEE", "family_of", "variant_of"]

IEEE = "ieee"  # the precision's own arithmetic

_FAMILY = "wgmma"


def family_of(problem: Problem, arithmetic: str, stencil: str | None) -> str | None:
    """Return the stencil's name for an arithmetic; the one given for a precision's own.

    Raises
    ------
    ValueError
        If the stencil given has no such arithmetic.
    """
    if arithmetic == IEEE:
        return stencil or (_FAMILY if problem.precision.is_short else None)
    if stencil not in (None, _FAMILY):
        raise ValueError(
            f"stencil={stencil!r} has no arithmetic={arithmetic!r}; leave it out, or name {_FAMILY}"
        )
    return _FAMILY


def variant_of(problem: Problem, arithmetic: str = IEEE) -> Variant:
    """Return the variant that a problem needs in an arithmetic.

    Parameters
    ----------
    problem : Problem
        Its precision and transposes.
    arithmetic : str
        ``"ieee"``, or a name of `ARITHMETICS` where the precision is ``"s"``: products of parts as
        they are served, scaled, and behind a guard that may hold them back.

    Raises
    ------
    ValueError
        If a name is unknown or does not go with the precision, or tensor cores cannot read
        elements in the order that the transposes ask for.
    """
    variant = Variant.of(problem)
    if arithmetic != IEEE:
        if arithmetic not in ARITHMETICS:
            known = ", ".join(ARITHMETICS)
            raise ValueError(f"arithmetic={arithmetic!r} is unknown; use {IEEE} or one of {known}")
        if problem.precision.letter != "s":
            raise ValueError(
                f"arithmetic={arithmetic!r} goes with precision s, not {problem.precision};"
                f" use {IEEE}"
            )
        made = replace(ARITHMETICS[arithmetic], routed=True)
        variant = TensorVariant(*vars(variant).values(), arithmetic=made)
        reads = made.reads(variant.k_fast)
    else:
        reads = problem.precision.reads(variant.k_fast)
    if not reads:
        element = made.element if arithmetic != IEEE else problem.precision.letter
        raise ValueError(
            f"trans={problem.trans!r}: tensor cores do not read {element} in that order; use trans"
            " TN, which serves others behind copies of their operands"
        )
    return variant
