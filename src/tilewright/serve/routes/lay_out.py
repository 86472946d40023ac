"""Which route computes a product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilewright.backend import GemmCall, LiveDevice
from tilewright.problem import Problem
from tilewright.serve.accuracy import BY_RESIDUES, INVARIANT
from tilewright.serve.arrange import Repeat
from tilewright.serve.routes.plain import lay_out_invariant, lay_out_plain
from tilewright.serve.routes.residues.options import PLAIN, Residues
from tilewright.serve.steps import Laid, MemorySpace
from tilewright.serve.triangle import Triangle

__all__ = ["lay_out", "why_ieee"]

# Routes that few calls take are imported by those, so that the first call of others is quick.


def lay_out(
    live: LiveDevice,
    problem: Problem,
    call: GemmCall,
    arithmetic: str,
    space: MemorySpace,
    *,
    report: Any = None,
    copies: bool = True,
    repeats: tuple[Repeat, ...] = (),
    triangle: Triangle | None = None,
    residues: Residues = PLAIN,
) -> Laid:
    """Return the launches of a call.

    Parameters
    ----------
    live : LiveDevice
        Where they run.
    problem, call
        What is computed, column-major.
    arithmetic : str
        As of `tilewright.serve.calls.Wanted`.
    space : MemorySpace
        Whose memory they use.
    report : object, optional
        Device memory where a guard's decision is written once more.
    copies : bool
        Whether operands may be copied first.
    repeats : tuple of Repeat
        Of a batch: how the product is repeated, in elements.
    triangle : Triangle, optional
        Which part of the result is computed, where that is not all.
    residues : Residues
        How residues may serve.

    Raises
    ------
    BackendError
        If no kernel can be had, or there is too little memory.
    """
    if triangle is not None:
        from tilewright.serve.routes.rank_k import lay_out_triangle

        return lay_out_triangle(
            live, problem, call, arithmetic, space, triangle, report=report, copies=copies,
            residues=residues,
        )  # fmt: skip
    if arithmetic == INVARIANT:
        return lay_out_invariant(live, problem, call, space, repeats)
    why = why_ieee(live, problem, call, arithmetic, residues, repeats)
    if not arithmetic or why:
        return lay_out_plain(live, problem, call, space, why=why, copies=copies, repeats=repeats)
    if arithmetic in BY_RESIDUES:
        from tilewright.serve.routes.residues.chain import residue_steps

        laid = residue_steps(live, space, problem, call, report, residues)
        return replace(laid, repeats=repeats)
    from tilewright.serve.routes.split.serve import split_steps

    return split_steps(live, space, problem, call, arithmetic, report, repeats=repeats)


def why_ieee(
    live: LiveDevice, problem: Problem, call: GemmCall, arithmetic: str,
    residues: Residues = PLAIN, repeats: Sequence[Repeat] = (),
) -> str:  # fmt: skip
    """Return why an arithmetic is out of the question; nothing if it is not, or none is named."""
    if not arithmetic:
        return ""
    if arithmetic in BY_RESIDUES:
        from tilewright.serve.routes.residues.chain import why_native

        return why_native(live, problem, call, residues, together=bool(repeats))
    from tilewright.serve.routes.split.serve import why_ieee

    return why_ieee(live, problem, call, arithmetic, repeats)
