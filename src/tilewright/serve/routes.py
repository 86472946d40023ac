"""Routes: which launches compute a product, laid out for one call.

::

    a triangle of the result       products of its blocks                rank_k/
    accuracy="fp32" and schemes    split operands, products of parts     split/
    accuracy="fp64", double-double residues of operands, their products  residues/
    operands worth copying         copies, then the kernel for those     realigned.py
    batches                        one launch for all, if it is faster   batched/
    accuracy="batch_invariant"     one kernel whatever m and n are       here
    all others                     the kernel for the operands           here

A route works on a `GemmCall` as kernels see it, and takes memory from a space by name: that of a
plan (`tilewright.serve.plan`), or one call's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.backend import GemmCall, Kernel, LiveDevice
from tilewright.dataclass import dataclass
from tilewright.portfolio.pieces import pieces_of_k
from tilewright.problem import Problem
from tilewright.serve.accuracy import BY_RESIDUES, INVARIANT
from tilewright.serve.batched.arrange import Repeat
from tilewright.serve.kernels import begin_aligned, begins_aligned, ready
from tilewright.serve.residues.options import PLAIN, Residues
from tilewright.stencil import Launch, Variant
from tilewright.timeline import span

if TYPE_CHECKING:
    from tilewright.serve.rank_k.triangle import Triangle

__all__ = ["Laid", "MemorySpace", "direct", "lay_out", "why_ieee"]

Step = tuple[Kernel, Launch, tuple[Any, ...]]
"""A kernel with its grid and its arguments."""


class MemorySpace(Protocol):
    """Where a route's memory besides the operands comes from."""

    def need(self, name: str, size: int, *, zeroed: bool = False) -> Any:
        """Return a piece of a name, of at least so many bytes."""

    @property
    def zero(self) -> Any:
        """Return memory with one int, 0, that nobody writes."""


@dataclass(frozen=True)
class Laid:
    """Launches of a call.

    Parameters
    ----------
    steps : sequence
        The first one first.
    name : str
        What a timeline calls them.
    arithmetic : str
        Which scheme was laid out; empty for IEEE arithmetic.
    why : str
        Why that, in one sentence.
    guarded : bool
        Whether the device decides while the call is under way.
    repeats : tuple of Repeat
        How all of them are repeated, in elements, the slowest first.
    """

    steps: Sequence[Step]
    name: str = "gemm"
    arithmetic: str = ""
    why: str = ""
    guarded: bool = False
    repeats: tuple[Repeat, ...] = ()


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
        from tilewright.serve.rank_k.lay_out import lay_out_triangle

        return lay_out_triangle(
            live, problem, call, arithmetic, space, triangle, report=report, copies=copies
        )
    if arithmetic == INVARIANT:
        return replace(_invariant(live, problem, call, space), repeats=repeats)
    why = why_ieee(live, problem, call, arithmetic, residues, repeats)
    if arithmetic and not why:
        if arithmetic in BY_RESIDUES:
            from tilewright.serve.residues.chain import residue_steps

            laid = residue_steps(live, space, problem, call, report, residues)
            return replace(laid, repeats=repeats)
        from tilewright.serve.split.serve import split_steps

        return split_steps(live, space, problem, call, arithmetic, report, repeats=repeats)
    if repeats:
        from tilewright.serve.batched.one_launch import along_k, one_launch

        first, together = list[Step](), one_launch(live, problem, call, repeats)
        if copies and problem.precision.reads_along_k and call.alpha != 0 and call.k != 0:
            as_read = along_k(live, problem, call, repeats, space)
            turned = None if as_read is None else one_launch(live, *as_read[1:])
            if as_read is not None and turned is not None:
                first, together = as_read[0], turned
        if together is not None:
            return Laid([*first, *together[0]], why=why, repeats=together[1])
    if copies and call.alpha != 0 and call.k != 0:  # else neither operand is read
        from tilewright.serve.realigned import way_of, way_steps

        way = way_of(live, problem, call)
        if way.copies:
            return Laid(way_steps(live, way, call, space), why=why, repeats=repeats)
    return Laid(in_pieces(live, problem, call), why=why, repeats=repeats)


def _invariant(live: LiveDevice, problem: Problem, call: GemmCall, space: MemorySpace) -> Laid:
    """Return the launches of a product whose bits depend on neither m nor n.

    Tensor cores read what is not aligned from copies, which changes no number; other kernels read
    everything as it lies.
    """
    from tilewright.serve.realigned import copied, ways

    made: list[Step] = []
    if problem.precision.is_short:
        begin = begins_aligned(call.a, call.precision), begins_aligned(call.b, call.precision)
        way = ways(problem, begin)[-1]  # with all copies
        made, call = copied(live, way, call, space)
        problem = way.problem
    why = "the kernel depends on k and the storage orders alone"
    return Laid([*made, direct(live, problem, call, invariant=True)], why=why)


def why_ieee(
    live: LiveDevice, problem: Problem, call: GemmCall, arithmetic: str,
    residues: Residues = PLAIN, repeats: Sequence[Repeat] = (),
) -> str:  # fmt: skip
    """Return why an arithmetic is out of the question; nothing if it is not, or none is named."""
    if not arithmetic:
        return ""
    if arithmetic in BY_RESIDUES:
        from tilewright.serve.residues.chain import why_native

        return why_native(live, problem, call, residues, together=bool(repeats))
    from tilewright.serve.split.serve import why_ieee

    return why_ieee(live, problem, call, arithmetic, repeats)


def in_pieces(live: LiveDevice, problem: Problem, call: GemmCall) -> list[Step]:
    """Return the launches of the kernels that serve a product, one behind the other along k."""
    p = problem
    if call.alpha == 0:
        return [direct(live, p, call)]
    along_a = 1 if p.trans_a.transposed else call.a.ld
    along_b = call.b.ld if p.trans_b.transposed else 1
    made = []
    for first, end in pieces_of_k(live, p, begin_aligned(call)):
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
