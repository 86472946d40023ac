"""All products of a batch in one launch, where a kernel takes batches and that is faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.backend import GemmCall, Kernel, LiveDevice
from tilewright.portfolio import Choice
from tilewright.problem import Problem
from tilewright.serve.arrange import Repeat
from tilewright.serve.kernels import begin_aligned, keeps_alignment, ready_for_batch
from tilewright.serve.steps import Step
from tilewright.stencil import Variant
from tilewright.stencil.table import Part
from tilewright.timeline import span

__all__ = ["group_step", "lie_aligned", "longest", "one_launch"]

# CUDA C++ Programming Guide, table of technical specifications: grid in z.
_MOST = 65535


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
    whole = longest(problem, repeats)
    count, steps = whole.batch, (whole.step_a, whole.step_b, whole.step_c)
    with span("choose"):
        found = ready_for_batch(
            live, whole, lie_aligned(call, repeats), None if alone_ns is None else alone_ns * count
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


def longest(problem: Problem, repeats: Sequence[Repeat]) -> Problem:
    """Return a product repeated along the longest dimension of a batch."""
    count, step_a, step_b, step_c = max(repeats, key=lambda one: one[0])
    return replace(problem, batch=count, step_a=step_a, step_b=step_b, step_c=step_c)


def lie_aligned(call: GemmCall, repeats: Sequence[Repeat]) -> bool:
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
