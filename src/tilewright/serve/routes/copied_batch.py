"""Batches whose operands are copied at once, so that one launch takes all products.

::

    matrices of two dimensions of a batch, in any order     -->  one matrix behind the other, in
    columns that are not aligned, or run across k           -->  aligned columns, along k if needed

A batch is copied where copies and the launch are expected to take less than it takes as it lies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tilewright.backend import GemmCall, LiveDevice, Operand
from tilewright.dataclass import dataclass
from tilewright.portfolio.batches import choose_batched
from tilewright.problem import Problem, Trans
from tilewright.serve.arrange import Repeat
from tilewright.serve.kernels import begins_aligned, keeps_alignment
from tilewright.serve.routes.one_launch import lie_aligned, longest
from tilewright.serve.routes.realigned import copy_of, copying_of
from tilewright.serve.steps import MemorySpace, Step
from tilewright.stencil.asynchronous.realign import Realigned
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES

__all__ = ["copied_batch"]

# Bytes that copies of a batch's operands may take each, and dimensions that a copy goes along.
_MOST_COPIED, _MOST_LEVELS = 1 << 28, 2

# Nanoseconds that a device takes for a block of a copy at least, however little of its tile is
# copied (H200: 3.4 to 4.0, elements of 2, 4 and 8 bytes in matrices of 17 x 17).
_BLOCK_NS = 3.7

Levels = list[tuple[int, int]]
"""How many matrices lie how many elements apart, the slowest dimension first."""


@dataclass(frozen=True)
class _Read:
    """How a kernel reads an operand of a batch.

    Parameters
    ----------
    ld, step : int
        Elements between its columns, and from a matrix to the next one.
    copy : Realigned, optional
        Of all matrices, or of one that all products have; None: they are read as they lie.
    batch : tuple of int
        Where matrices that are copied lie, as `copy_of` takes it.
    """

    ld: int
    step: int
    copy: Realigned | None = None
    batch: tuple[int, int, int] = (1, 0, 0)


def copied_batch(
    live: LiveDevice, problem: Problem, call: GemmCall, repeats: Sequence[Repeat],
    space: MemorySpace, alone_ns: float | None = None,
) -> tuple[list[Step], Problem, GemmCall, tuple[Repeat, ...]] | None:  # fmt: skip
    """Return the copies of a batch's operands, and the batch of these, which has one dimension.

    Parameters
    ----------
    live, problem, call, repeats, alone_ns
        As of `one_launch`.
    space : MemorySpace
        Whose memory copies are in.

    Returns
    -------
    tuple or None
        None where there is nothing to copy, or copies and all are expected to take longer.
    """
    levels = [_levels([(one[0], one[at]) for one in repeats]) for at in (1, 2, 3)]
    if max(map(len, levels[:2])) > _MOST_LEVELS or len(levels[2]) > 1:
        return None
    p, [(count, step_c)] = problem, levels[2]
    a = _read(p, call.a, (p.m, p.k), p.trans_a.transposed, levels[0])
    b = _read(p, call.b, (p.n, p.k), not p.trans_b.transposed, levels[1])
    copies = [one.copy for one in (a, b) if one.copy is not None]
    if not copies or any(one.size > _MOST_COPIED for one in copies):
        return None
    ops = (Trans.T, Trans.N) if p.precision.reads_along_k else (p.trans_a, p.trans_b)
    steps = a.step, b.step, step_c
    made = Problem(p.m, p.n, p.k, p.precision, *ops, a.ld, b.ld, p.ldc, count, *steps)
    if not _is_worth(live, problem, call, repeats, made, copies, alone_ns):
        return None
    passes, operands = list[Step](), {"a": call.a, "b": call.b}
    for name, one in (("a", a), ("b", b)):
        if one.copy is not None:
            x = operands[name]
            copying, operands[name] = copy_of(live, one.copy, x, name, space, one.batch)
            passes.append(copying)
    changed = replace(call, a=operands["a"], b=operands["b"])
    return passes, made.one, changed, ((count, *steps),)


def _levels(dimensions: Levels) -> Levels:
    """Return dimensions of which those that step alike are one."""
    found: Levels = []
    for count, step in dimensions:
        if found and found[-1][1] == count * step:
            count *= found.pop()[0]
        found.append((count, step))
    return found


def _read(p: Problem, x: Operand, sides: tuple[int, int], is_along: bool, levels: Levels) -> _Read:
    """Return how an operand is read: `sides` are its side and k, which memory may run along."""
    size, turned = p.precision.element_bytes, p.precision.reads_along_k and not is_along
    aligned = begins_aligned(x, p.precision) and keeps_alignment(
        (x.ld, *(step for _, step in levels)), size
    )
    *beyond, (within, step) = levels
    if aligned and not turned and not beyond and step >= 0:
        return _Read(x.ld, step)
    along, across = sides[::-1] if is_along else sides  # memory
    count = math.prod(many for many, _ in levels) if any(one for _, one in levels) else 1
    inner, outer = (across, along) if turned else (along, across)
    if levels == [(count, x.ld * across)]:
        # They are one matrix, of which a block copies whole tiles, whatever their own sides are.
        if not turned:
            copy = Realigned(size, inner, outer * count, turned)
            return _Read(copy.ld, copy.ld * outer, copy)
        if inner * size % CHUNK_BYTES == 0:  # one begins `inner` elements behind the one before
            copy = Realigned(size, inner * count, outer, turned)
            return _Read(copy.ld, inner, copy)
    copy = Realigned(size, inner, outer, turned, batch=count)
    step_beyond = beyond[0][1] if beyond else 0
    return _Read(copy.ld, copy.ld * outer * (count > 1), copy, (within, step, step_beyond))


def _is_worth(
    live: LiveDevice, problem: Problem, call: GemmCall, repeats: Sequence[Repeat], made: Problem,
    copies: Sequence[Realigned], alone_ns: float | None,
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
    one = longest(problem, repeats)
    apart_ns = None if alone_ns is None else one.batch * alone_ns
    other = choose_batched(live, one, lie_aligned(call, repeats), apart_ns)
    if other is None or other.ns is None or found.ns is None or known is None:
        return other is None
    return found.ns + copied_ns < other.ns * count / one.batch
