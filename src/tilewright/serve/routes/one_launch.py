"""All products of a batch in one launch, where a kernel takes batches and that is faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.backend import GemmCall, Kernel, LiveDevice, Operand
from tilewright.portfolio import Choice
from tilewright.problem import Problem, Trans
from tilewright.serve.arrange import Repeat
from tilewright.serve.kernels import begin_aligned, begins_aligned, keeps_alignment, ready_for_batch
from tilewright.serve.routes.realigned import copy_of
from tilewright.serve.steps import MemorySpace, Step
from tilewright.stencil import Variant
from tilewright.stencil.asynchronous.realign import Realigned
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES
from tilewright.stencil.table import Part
from tilewright.timeline import span

__all__ = ["along_k", "group_step", "one_launch"]

# CUDA C++ Programming Guide, table of technical specifications: grid in z.
_MOST = 65535

# Bytes that copies of a batch's operands may take each.
_MOST_COPIED = 1 << 28


def one_launch(
    live: LiveDevice, problem: Problem, call: GemmCall, repeats: Sequence[Repeat]
) -> tuple[list[Step], tuple[Repeat, ...]] | None:
    """Return the launch of a batch, and the repeats of it that are left.

    Of more products than a grid has blocks in z, several launches.

    Parameters
    ----------
    live : LiveDevice
        Where they run.
    problem, call
        One product, as kernels see it.
    repeats : sequence of Repeat
        In elements; not empty.

    Returns
    -------
    tuple or None
        None where a launch for each product is expected to be faster, or no kernel takes batches.
    """
    at = max(range(len(repeats)), key=lambda x: repeats[x][0])
    count, steps = repeats[at][0], repeats[at][1:]
    size = problem.precision.element_bytes
    along = [step for one in repeats for step in one[1:3]]
    # A tensor map counts forwards.
    aligned = begin_aligned(call) and keeps_alignment(along, size) and min(along) >= 0
    whole = replace(problem, batch=count, step_a=steps[0], step_b=steps[1], step_c=steps[2])
    with span("choose"):
        found = ready_for_batch(live, whole, aligned)
    if found is None:
        return None
    chosen, kernel = found
    made: list[Step] = []
    for first in range(0, count, _MOST):
        a, b, c = (
            replace(x, offset=x.offset + first * step)
            for x, step in zip((call.a, call.b, call.c), steps, strict=True)
        )
        many = min(_MOST, count - first)
        arguments = chosen.stencil.batched_arguments(
            chosen.config, Variant.of(problem), replace(call, a=a, b=b, c=c), many, steps
        )
        launch = chosen.geometry.batched(problem.m, problem.n, many)
        made.append((kernel, launch, arguments))
    return made, (*repeats[:at], *repeats[at + 1 :])


def along_k(
    live: LiveDevice, problem: Problem, call: GemmCall, repeats: Sequence[Repeat],
    space: MemorySpace,
) -> tuple[list[Step], Problem, GemmCall, tuple[Repeat, ...]] | None:  # fmt: skip
    """Return a batch whose operands run along k in aligned columns, and what copies them so.

    Matrices that follow each other are one, which is copied at once::

        memory along m:   | k of product 0 | k of product 1 | ...   a column of m each
        copy, along k:      m columns of all k's: product i begins k elements behind product i - 1

    Parameters
    ----------
    live : LiveDevice
        Where they run.
    problem, call, repeats
        As of `one_launch`.
    space : MemorySpace
        Whose memory copies are in.

    Returns
    -------
    tuple or None
        None where matrices are copied one by one.
    """
    if len(repeats) != 1:
        return None
    [(count, step_a, step_b, step_c)] = repeats
    p, given = problem, (call.a, call.b)
    a, b = (
        _stacked_along_k(p, x, (side, p.k), is_along, count, step)
        for x, step, side, is_along in (
            (call.a, step_a, p.m, p.trans_a.transposed),
            (call.b, step_b, p.n, not p.trans_b.transposed),
        )
    )
    if a is None or b is None:
        return None
    if any(copy is not None and copy.size > _MOST_COPIED for copy in (a[0], b[0])):
        return None
    lda, ldb = (
        x.ld if copy is None else copy.ld for x, (copy, _) in zip(given, (a, b), strict=True)
    )
    made = Problem(
        p.m, p.n, p.k, p.precision, Trans.T, Trans.N, lda, ldb, p.ldc, count, a[1], b[1], step_c
    )
    if ready_for_batch(live, made, aligned=True) is None:
        return None
    steps, operands = list[Step](), []
    for name, x, (copy, _) in zip("ab", given, (a, b), strict=True):
        if copy is not None:
            step, x = copy_of(live, copy, x, name, space)
            steps.append(step)
        operands.append(x)
    changed = replace(call, a=operands[0], b=operands[1])
    return steps, made.one, changed, ((count, a[1], b[1], step_c),)


def _stacked_along_k(
    p: Problem, x: Operand, sides: tuple[int, int], is_along: bool, count: int, step: int
) -> tuple[Realigned | None, int] | None:
    """Return the copy of an operand of all products, and the step in it; None where there is none.

    Without a copy the operand lies as it should.
    """
    size, (side, k), ld = p.precision.element_bytes, sides, x.ld
    unit = CHUNK_BYTES // size
    if is_along and begins_aligned(x, p.precision) and ld % unit == step % unit == 0 <= step:
        return None, step
    whole, across = (k, side) if is_along else (side, k)  # along memory, and across it
    if step == 0:
        return Realigned(size, k, side, not is_along), 0
    if step > 0 and (count - 1) * step + whole <= ld:  # beside each other within a column
        whole, inner_step, outer_step = (count - 1) * step + whole, step, 0
    elif step % ld == 0 and across <= step // ld <= 2 * across:  # behind each other
        across, inner_step, outer_step = (count - 1) * (step // ld) + across, 0, step // ld
    else:
        return None
    made = Realigned(size, *((whole, across) if is_along else (across, whole)), not is_along)
    if not is_along:
        inner_step, outer_step = outer_step, inner_step
    step = inner_step + outer_step * made.ld
    return (made, step) if step % unit == 0 else None


def group_step(chosen: Choice, kernel: Kernel, problem: Problem, parts: Sequence[Part]) -> Step:
    """Return the launch of some products, at most as many as a table has room for.

    Parameters
    ----------
    chosen, kernel
        As of `ready_for_group`.
    problem : Problem
        One of the products: of their variant.
    parts : sequence of Part
        What is computed; the longest first.
    """
    family, variant = chosen.stencil, Variant.of(problem)
    config = family.grouped_config(chosen.config, variant)
    assert config is not None
    launch = family.geometry(config).grouped([(one.m, one.n) for one in parts])
    return kernel, launch, family.grouped_arguments(config, variant, parts)
