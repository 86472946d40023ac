"""Arithmetics of tensor cores by the names that commands and bounds have for them."""

from __future__ import annotations

from dataclasses import replace

from tilewright.problem import Problem
from tilewright.stencil.base import Variant
from tilewright.stencil.wgmma.arithmetic import (
    ARITHMETICS,
    Arithmetic,
    Element,
    Result,
    TensorVariant,
)

__all__ = ["IEEE", "NAMES", "family_of", "named_arithmetic", "variant_of"]

IEEE = "ieee"  # the precision's own arithmetic: what other stencils compute

# Element, and a result as narrow as `gemm` gives for arrays of it.
_PLAIN: dict[str, tuple[Element, Result]] = {
    "fp16": ("float16", "float16"),
    "bf16": ("bfloat16", "bfloat16"),
    "tf32": ("tf32", "float32"),
    "int8": ("int8", "int32"),
}
NAMES = (*_PLAIN, *ARITHMETICS)
_FAMILY = "wgmma"


def named_arithmetic(name: str, result: str | None = None) -> Arithmetic:
    """Return an arithmetic as it is served.

    Parameters
    ----------
    name : str
        One of `NAMES`; products of parts come scaled, and behind a guard that may hold them back.
    result : str, optional
        Type of C, as `Arithmetic` has it.

    Raises
    ------
    ValueError
        If the name is unknown, or has no such result.
    """
    if name not in NAMES:
        raise ValueError(f"arithmetic={name!r} is unknown; use {IEEE} or one of {', '.join(NAMES)}")
    if name in ARITHMETICS:
        made = replace(ARITHMETICS[name], routed=True)
    else:
        made = Arithmetic(*_PLAIN[name])
    return made if result is None else replace(made, result=result)  # type: ignore[arg-type]


def family_of(arithmetic: str, stencil: str | None) -> str | None:
    """Return the stencil's name for an arithmetic; the one given for IEEE's.

    Raises
    ------
    ValueError
        If the stencil given computes in IEEE arithmetic only.
    """
    if arithmetic == IEEE:
        return stencil
    if stencil not in (None, _FAMILY):
        raise ValueError(
            f"stencil={stencil!r} has no arithmetic={arithmetic!r}; leave it out, or name {_FAMILY}"
        )
    return _FAMILY


def variant_of(problem: Problem, arithmetic: str = IEEE, result: str | None = None) -> Variant:
    """Return the variant that a problem needs in an arithmetic.

    Parameters
    ----------
    problem : Problem
        Its precision and transposes.
    arithmetic : str
        ``"ieee"``, or one of `NAMES` where the precision is ``"s"``.
    result : str, optional
        Type of C, where an arithmetic is named.

    Raises
    ------
    ValueError
        If a name is unknown or does not go with the others, or tensor cores cannot read
        elements in the order that the transposes ask for.
    """
    if arithmetic == IEEE:
        if result is not None:
            raise ValueError(
                f"result={result!r} needs an arithmetic of tensor cores; name one, such as bf16"
            )
        return Variant.of(problem)
    made = named_arithmetic(arithmetic, result)
    if problem.precision.letter != "s":
        raise ValueError(
            f"arithmetic={arithmetic!r} goes with precision s, not {problem.precision}; use {IEEE}"
        )
    variant = TensorVariant(problem.precision, problem.trans_a, problem.trans_b, arithmetic=made)
    if not made.either_order and not all(variant.k_fast):
        raise ValueError(
            f"trans={problem.trans!r}: tensor cores read {made.element} along k only, so a pass"
            " before them brings operands into that order; use trans TN"
        )
    return variant
