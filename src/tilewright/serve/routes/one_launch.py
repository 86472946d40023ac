"""All products of a batch in one launch, where a kernel takes batches and that is faster."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tilewright.backend import GemmCall, Kernel, LiveDevice, Operand
from tilewright.dataclass import dataclass
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

# Bytes that copies of a batch's operands may take each, and dimensions that a copy goes along.
_MOST_COPIED, _MOST_LEVELS = 1 << 28, 2

# Nanoseconds that a device takes for a block of a copy at least, however little of its tile is
# copied (H200: 3.4 to 4.0, elements of 2, 4 and 8 bytes in matrices of 17 x 17).
_BLOCK_NS = 3.7


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
    whole = _longest(problem, repeats)
    count, steps = whole.batch, (whole.step_a, whole.step_b, whole.step_c)
    with span("choose"):
        found = ready_for_batch(
            live, whole, _lie_aligned(call, repeats), None if alone_ns is None else alone_ns * count
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
    at = repeats.index((count, *steps))
    return made, (*repeats[:at], *repeats[at + 1 :])


def copied_together(
    live: LiveDevice, problem: Problem, call: GemmCall, repeats: Sequence[Repeat],
    space: MemorySpace, alone_ns: float | None = None,
) -> tuple[list[Step], Problem, GemmCall, tuple[Repeat, ...]] | None:  # fmt: skip
    """Return a batch of copied operands, all products of which one launch takes, and the copies.

    In aligned columns, those of 8 bits and TF32 along k, and each matrix behind the one before:
    operands of two dimensions that do not step alike, as heads of attention have, are in one then.

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
        None where there is nothing to copy, or copies and all are expected to take longer.
    """
    levels = [_levels([(one[0], one[at]) for one in repeats]) for at in (1, 2, 3)]
    if len(levels[2]) > 1:
        return None
    p, [(count, step_c)] = problem, levels[2]
    a, b = (
        _copied(p, x, (side, p.k), is_along, some)
        for x, side, is_along, some in (
            (call.a, p.m, p.trans_a.transposed, levels[0]),
            (call.b, p.n, not p.trans_b.transposed, levels[1]),
        )
    )
    copies = [one for one in (a, b) if isinstance(one, _Copied)]
    if a is None or b is None or not copies:
        return None
    if any(one.copy.size > _MOST_COPIED for one in copies):
        return None
    (lda, step_a), (ldb, step_b) = (
        (one.copy.ld, one.step) if isinstance(one, _Copied) else (x.ld, one)
        for one, x in ((a, call.a), (b, call.b))
    )
    ops = (Trans.T, Trans.N) if p.precision.reads_along_k else (p.trans_a, p.trans_b)
    made = Problem(p.m, p.n, p.k, p.precision, *ops, lda, ldb, p.ldc, count, step_a, step_b, step_c)
    every = [one.copy for one in copies]
    if not _is_worth(live, problem, call, repeats, made, every, alone_ns):
        return None
    steps, read = list[Step](), {"a": call.a, "b": call.b}
    for name, one in (("a", a), ("b", b)):
        if isinstance(one, _Copied):
            step, read[name] = copy_of(live, one.copy, read[name], name, space, one.batch)
            steps.append(step)
    changed = replace(call, a=read["a"], b=read["b"])
    return steps, made.one, changed, ((count, step_a, step_b, step_c),)


@dataclass(frozen=True)
class _Copied:
    """How an operand of a batch is copied.

    Parameters
    ----------
    copy : Realigned
        Of all its matrices, or of one that all products have.
    step : int
        From a matrix of the copy to the next one.
    batch : tuple of int
        Where the operand's lie, as `copy_of` takes it.
    """

    copy: Realigned
    step: int
    batch: tuple[int, int, int]


def _levels(repeats: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return how many matrices there are and their steps; dimensions that step alike are one."""
    found: list[tuple[int, int]] = []
    for count, step in repeats:
        if found and found[-1][1] == count * step:
            count *= found.pop()[0]
        found.append((count, step))
    return found


def _copied(
    p: Problem, x: Operand, sides: tuple[int, int], is_along: bool, levels: list[tuple[int, int]]
) -> _Copied | int | None:
    """Return an operand's copy; where it lies right the step in it; None where there is neither.

    `sides` are its side and k; `is_along` says whether its memory runs along k.
    """
    if len(levels) > _MOST_LEVELS:
        return None
    size, turned = p.precision.element_bytes, p.precision.reads_along_k and not is_along
    aligned = begins_aligned(x, p.precision) and keeps_alignment(
        (x.ld, *(step for _, step in levels)), size
    )
    *beyond, (within, step) = levels
    if aligned and not turned and not beyond and step >= 0:
        return step
    along, across = sides[::-1] if is_along else sides  # memory
    count = math.prod(many for many, _ in levels) if any(one for _, one in levels) else 1
    inner, outer = (across, along) if turned else (along, across)
    copy = Realigned(size, inner, outer, turned, batch=count)
    step_beyond = beyond[0][1] if beyond else 0
    made = _Copied(copy, copy.ld * outer * (count > 1), (within, step, step_beyond))
    if levels != [(count, x.ld * across)]:
        return made
    # They are one matrix, of which a block copies whole tiles, whatever their own sides are.
    if not turned:
        return replace(made, copy=replace(copy, outer=outer * count, batch=1))
    if inner * size % CHUNK_BYTES == 0:  # a matrix begins `inner` elements behind the one before
        return replace(made, copy=replace(copy, inner=inner * count, batch=1), step=inner)
    return made


def _is_worth(
    live: LiveDevice, problem: Problem, call: GemmCall, repeats: Sequence[Repeat], made: Problem,
    copies: Iterable[Realigned], alone_ns: float | None,
) -> bool:  # fmt: skip
    """Whether a kernel takes a batch of copies, and none the batch as it lies in less time."""
    known, count = copying_of(live, problem), made.batch
    copied_ns = 0.0
    if known is not None:
        copied_ns = sum(max(known.ns(x.size), _BLOCK_NS * x.launch.grid[0]) for x in copies)
    others_ns = None if alone_ns is None else count * alone_ns - copied_ns
    found = choose_batched(live, made, apart_ns=others_ns)
    if found is None:
        return False
    one = _longest(problem, repeats)
    apart_ns = None if alone_ns is None else one.batch * alone_ns
    other = choose_batched(live, one, _lie_aligned(call, repeats), apart_ns)
    if other is None or other.ns is None or found.ns is None or known is None:
        return other is None
    return found.ns + copied_ns < other.ns * count / one.batch


def _longest(problem: Problem, repeats: Sequence[Repeat]) -> Problem:
    """Return a product repeated along the longest dimension of a batch."""
    count, step_a, step_b, step_c = max(repeats, key=lambda one: one[0])
    return replace(problem, batch=count, step_a=step_a, step_b=step_b, step_c=step_c)


def _lie_aligned(call: GemmCall, repeats: Sequence[Repeat]) -> bool:
    """Whether all matrices of A and B begin as tensor maps take them, which count forwards."""
    along = [step for one in repeats for step in one[1:3]]
    aligned = begin_aligned(call) and keeps_alignment(along, call.precision.element_bytes)
    return aligned and min(along) >= 0


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
