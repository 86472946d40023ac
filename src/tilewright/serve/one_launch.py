"""All products of a batch in one launch, where a kernel takes batches and that is faster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tilewright.backend import GemmCall, Kernel, LiveDevice, Operand
from tilewright.problem import Problem
from tilewright.serve.batches import Repeat
from tilewright.serve.kernels import begin_aligned, ready_for_batch
from tilewright.stencil import Launch, Variant
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES
from tilewright.timeline import span

__all__ = ["keeps_alignment", "one_launch"]

Step = tuple[Kernel, Launch, tuple[Any, ...]]

# CUDA C++ Programming Guide, table of technical specifications: grid in z.
_MOST = 65535


def keeps_alignment(steps: Iterable[int], element_bytes: int) -> bool:
    """Whether matrices so many elements apart are all aligned to 16 bytes if the first one is."""
    return all(step * element_bytes % CHUNK_BYTES == 0 for step in steps)


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
            _moved(x, first * step) for x, step in zip((call.a, call.b, call.c), steps, strict=True)
        )
        many = min(_MOST, count - first)
        arguments = chosen.stencil.batched_arguments(
            chosen.config, Variant.of(problem), replace(call, a=a, b=b, c=c), many, steps
        )
        launch = chosen.geometry.batched(problem.m, problem.n, many)
        made.append((kernel, launch, arguments))
    return made, (*repeats[:at], *repeats[at + 1 :])


def _moved(x: Operand, by: int) -> Operand:
    return replace(x, offset=x.offset + by) if by else x
