"""All products of a batch in one launch, where a kernel takes batches and that is faster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tilewright.backend import GemmCall, Kernel, LiveDevice, Operand
from tilewright.portfolio import Choice
from tilewright.portfolio.batches import choose_batched
from tilewright.problem import Problem, Trans
from tilewright.serve.arrange import Repeat
from tilewright.serve.kernels import begin_aligned, begins_aligned, keeps_alignment, ready_for_batch
from tilewright.serve.routes.realigned import copy_of, copying_of
from tilewright.serve.steps import MemorySpace, Step
from tilewright.stencil import Variant
from tilewright.stencil.asynchronous.realign import Realigned
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES
from tilewright.stencil.table import Part
from tilewright.timeline import span

__all__ = ["copied_together", "group_step", "one_launch"]

# CUDA C++ Programming Guide, table of technical specifications: grid in z.
_MOST = 65535

# Bytes that copies of a batch's operands may take each.
_MOST_COPIED = 1 << 28


def one_launch(
    live: LiveDevice, problem: Problem, call: GemmCall, repeats: Sequence[Repeat],
    alone_ns: float | None = None,
) -> tuple[list[Step], tuple[Repeat, ...]] | None:  # fmt: skip
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
    alone_ns : float, optional
        What one product takes, of copies where that is faster; without it, as it lies.

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
        found = ready_for_batch(
            live, whole, aligned, None if alone_ns is None else alone_ns * count
        )
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


def copied_together(
    live: LiveDevice, problem: Problem, call: GemmCall, repeats: Sequence[Repeat],
    space: MemorySpace, alone_ns: float | None = None,
) -> tuple[list[Step], Problem, GemmCall, tuple[Repeat, ...]] | None:  # fmt: skip
    """Return a batch whose operands lie as tensor cores read them fastest, and what copies them so.

    In aligned columns, those of 8 bits and TF32 along k.  Matrices that follow each other are one,
    which is copied at once::

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
    alone_ns : float, optional
        As of `one_launch`.

    Returns
    -------
    tuple or None
        None where matrices are copied one by one, or read as they lie in less time.
    """
    if len(repeats) != 1:
        return None
    [(count, step_a, step_b, step_c)] = repeats
    p, given, along_k = problem, (call.a, call.b), problem.precision.reads_along_k
    a, b = (
        _stacked(p, x, (side, p.k), is_along, along_k and not is_along, count, step)
        for x, step, side, is_along in (
            (call.a, step_a, p.m, p.trans_a.transposed),
            (call.b, step_b, p.n, not p.trans_b.transposed),
        )
    )
    if a is None or b is None:
        return None
    copies = {name: one for name, (one, _) in (("a", a), ("b", b)) if one is not None}
    if not copies or any(one.size > _MOST_COPIED for one in copies.values()):
        return None
    lda, ldb = (
        x.ld if copy is None else copy.ld for x, (copy, _) in zip(given, (a, b), strict=True)
    )
    ops = (Trans.T, Trans.N) if along_k else (p.trans_a, p.trans_b)
    made = Problem(p.m, p.n, p.k, p.precision, *ops, lda, ldb, p.ldc, count, a[1], b[1], step_c)
    if not _is_worth(live, problem, repeats[0], made, copies.values(), alone_ns):
        return None
    steps, read = list[Step](), {"a": call.a, "b": call.b}
    for name, copy in copies.items():
        step, read[name] = copy_of(live, copy, read[name], name, space)
        steps.append(step)
    changed = replace(call, a=read["a"], b=read["b"])
    return steps, made.one, changed, ((count, a[1], b[1], step_c),)


def _is_worth(
    live: LiveDevice, problem: Problem, repeat: Repeat, made: Problem, copies: Iterable[Realigned],
    alone_ns: float | None,
) -> bool:  # fmt: skip
    """Whether a kernel takes a batch of copies, and none the batch as it lies in less time."""
    known, (count, step_a, step_b, step_c) = copying_of(live, problem), repeat
    copied_ns = 0.0 if known is None else sum(known.ns(one.size) for one in copies)
    apart_ns = None if alone_ns is None else count * alone_ns
    others_ns = None if apart_ns is None else apart_ns - copied_ns
    found = ready_for_batch(live, made, aligned=True, apart_ns=others_ns)
    if found is None:
        return False
    as_it_lies = replace(problem, batch=count, step_a=step_a, step_b=step_b, step_c=step_c)
    other = choose_batched(live, as_it_lies, aligned=False, apart_ns=apart_ns)
    if other is None or other.ns is None or found[0].ns is None or known is None:
        return other is None
    return found[0].ns + copied_ns < other.ns


def _stacked(
    p: Problem, x: Operand, sides: tuple[int, int], is_along: bool, turned: bool, count: int,
    step: int,
) -> tuple[Realigned | None, int] | None:  # fmt: skip
    """Return the copy of an operand of all products, and the step in it; None where there is none.

    `sides` are its side and k, `is_along` says whether memory runs along k, and `turned` whether
    the copy's runs the other way.  Without a copy the operand lies as it should.
    """
    size, (side, k), ld = p.precision.element_bytes, sides, x.ld
    unit = CHUNK_BYTES // size
    if not turned and begins_aligned(x, p.precision) and ld % unit == step % unit == 0 <= step:
        return None, step
    whole, across = (k, side) if is_along else (side, k)  # along memory, and across it
    if step == 0:
        return Realigned(size, *((across, whole) if turned else (whole, across)), turned), 0
    if step > 0 and (count - 1) * step + whole <= ld:  # beside each other within a column
        whole, inner_step, outer_step = (count - 1) * step + whole, step, 0
    elif step % ld == 0 and across <= step // ld <= 2 * across:  # behind each other
        across, inner_step, outer_step = (count - 1) * (step // ld) + across, 0, step // ld
    else:
        return None
    made = Realigned(size, *((across, whole) if turned else (whole, across)), turned)
    if turned:
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
