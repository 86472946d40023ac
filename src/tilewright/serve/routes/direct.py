"""The kernel for the operands as they lie: one launch, or several behind each other along k."""

from __future__ import annotations

from dataclasses import replace

from tilewright.backend import GemmCall, LiveDevice
from tilewright.portfolio.pieces import pieces_of_k
from tilewright.problem import Problem
from tilewright.serve.kernels import begin_aligned, ready
from tilewright.serve.steps import Step
from tilewright.stencil import Variant
from tilewright.timeline import span

__all__ = ["direct", "in_pieces"]


def in_pieces(live: LiveDevice, problem: Problem, call: GemmCall) -> list[Step]:
    """Return the launches of the kernels that serve a product, one behind the other along k."""
    p = problem
    if call.alpha == 0:
        return [direct(live, p, call)]
    along_a = 1 if p.trans_a.transposed else call.a.ld
    along_b = call.b.ld if p.trans_b.transposed else 1
    pieces = pieces_of_k(live, p, begin_aligned(call))
    if len(pieces) == 1:
        return [direct(live, p, call)]
    made = []
    for first, end in pieces:
        part = replace(
            call,
            k=end - first,
            a=replace(call.a, offset=call.a.offset + first * along_a),
            b=replace(call.b, offset=call.b.offset + first * along_b),
            beta=1 if first else call.beta,
        )
        made.append(direct(live, replace(p, k=end - first), part))
    return made


def direct(live: LiveDevice, problem: Problem, call: GemmCall, *, invariant: bool = False) -> Step:
    """Return the launch of the kernel that serves a problem; see `kernels.ready`."""
    with span("choose"):
        chosen, kernel = ready(live, problem, begin_aligned(call), invariant=invariant)
    arguments = chosen.stencil.arguments(chosen.config, Variant.of(problem), call)
    return kernel, chosen.launch(problem), arguments
