"""A triangle of a product in one launch: kernels that leave the other one out.

Of S, D, C and Z they are those that compute products, compiled for triangles; of what tensor cores
take kernels of their own.

What asks for both triangles has it mirrored behind that; or, where that takes longer, the whole
product: of a matrix and its own transpose that is symmetric, as (i, j) and (j, i) are sums of the
same products in the same order.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from tilewright.backend import BackendError, GemmCall, LiveDevice
from tilewright.portfolio import Choice, choose
from tilewright.portfolio.triangles import choices_for_triangle
from tilewright.problem import Problem
from tilewright.serve.kernels import begin_aligned, kernel_of, ready_by
from tilewright.serve.steps import Step
from tilewright.serve.tensor_cores import config_for_triangle, reads, source_of, wgmma
from tilewright.serve.triangle import Triangle
from tilewright.space import Config
from tilewright.stencil import Variant
from tilewright.stencil.asynchronous.folded import folded
from tilewright.stencil.asynchronous.triangle import MovedTriangle
from tilewright.stencil.geometry import elements_of_chunk
from tilewright.stencil.wgmma import TensorVariant, of_triangle, whole_call

__all__ = ["TRIANGLES", "by_tiles", "masked", "mirrored"]

# Precisions that there are kernels for.
TRIANGLES = ("fp16", "bf16", "fp16_f32", "bf16_f32", "tf32", "e4m3", "int8")

# What a launch by itself, as these kernels were timed, takes longer than one of many behind each
# other, as whole products were, in nanoseconds: 4.6 us of 256 columns.  And what copying the
# triangle of a whole product takes, 5 to 8 us of bfloat16 from 512 to 2048 (H200).
_ALONE, _COPIED = 4600.0, 5000.0

# What mirroring a triangle takes: a launch, and its bytes read and written in a nanosecond (H200).
_MIRRORED, _BYTES_A_NS = 4000.0, 3000.0


def masked(
    live: LiveDevice, problem: Problem, call: GemmCall, triangle: Triangle
) -> list[Step] | None:
    """Return the launch that writes a triangle of C alone, and what makes it both where asked.

    Parameters
    ----------
    live, problem, call
        The product of which a triangle is wanted, as kernels see it, column-major.
    triangle : Triangle
        Which.

    Returns
    -------
    list or None
        Where both triangles are asked for and a whole product is expected to take less, its launch.
        None where there is no kernel that can be had; or where a whole product is expected to take
        less, but a triangle of it would have to be copied, or its kernel is not known to be
        symmetric.
    """
    variant = _variant(live, problem, call)
    found = variant and config_for_triangle(variant, live.spec, problem)
    if not variant or not found:
        return None
    config, ns = found
    whole = choose(live, problem, aligned=True)
    written = problem.n**2 * problem.precision.result_bytes
    more = -_MIRRORED - written / _BYTES_A_NS if triangle.filled else _COPIED
    if whole.ns is not None and whole.ns + _ALONE + more < ns:
        return _symmetric(live, problem, call, whole) if triangle.filled else None
    with suppress(BackendError):  # products of blocks serve, where kernels cannot be had
        steps = [_step(live, config, variant, call, lower=triangle.lower)]
        return [*steps, mirrored(live, problem, call, triangle)] if triangle.filled else steps
    return None


def by_tiles(
    live: LiveDevice, problem: Problem, call: GemmCall, triangle: Triangle
) -> list[Step] | None:
    """Return the same of S, D, C and Z, by a kernel of products that is compiled for triangles.

    None where there is none that can be had, or a whole product and a copy are expected to take
    less; for sums of nothing; and for a Hermitian result of operands that were copied as
    conjugates, by which kernels know it.
    """
    p, aligned = problem, begin_aligned(call)
    is_known = p.trans_a.conjugated != p.trans_b.conjugated
    if live.dialect != "cuda" or call.alpha == 0 or p.k == 0:
        return None
    if triangle.hermitian and p.precision.is_complex and not is_known:
        return None
    found = choices_for_triangle(live, problem, aligned)
    whole = choose(live, problem, aligned).ns if found else None
    for one in found:
        if one.ns is not None and whole is not None and whole + _COPIED < one.ns:
            return None
        kernel = ready_by(live, one, Variant.of(problem))
        if kernel is None:
            continue
        arguments = one.stencil.triangle_arguments(
            one.config, Variant.of(problem), call, lower=triangle.lower
        )
        steps: list[Step] = [(kernel, one.launch(problem), arguments)]
        return [*steps, mirrored(live, problem, call, triangle)] if triangle.filled else steps
    return None


def _symmetric(
    live: LiveDevice, problem: Problem, call: GemmCall, chosen: Choice
) -> list[Step] | None:
    """Return the launch of a whole product, where its kernel has equal sums of equal products."""
    of = Variant.of(problem)
    kernel = ready_by(live, chosen, of) if chosen.stencil.name == wgmma().name else None
    if kernel is None:
        return None
    arguments = chosen.stencil.arguments(chosen.config, of, call)
    return [(kernel, chosen.launch(problem), arguments)]


def mirrored(live: LiveDevice, problem: Problem, call: GemmCall, triangle: Triangle) -> Step:
    """Return the launch that writes C's other triangle, on any device and of any type."""
    size, n, c = problem.precision.result_bytes, np.int64(problem.n), call.c
    one = MovedTriangle(size, mirrored=True, hermitian=triangle.hermitian)
    arguments = n, c.memory, np.int64(c.offset), np.int64(c.ld), np.int32(triangle.lower)
    return kernel_of(live, one.source(live.dialect)), one.launch(problem.n, problem.n), arguments


def _variant(live: LiveDevice, problem: Problem, call: GemmCall) -> TensorVariant | None:
    """Return the arithmetic and order of operands, where there are kernels for them as they lie."""
    p, chunk = problem, elements_of_chunk(problem)
    if p.precision.letter not in TRIANGLES or not reads(live, p):
        return None
    variant = TensorVariant(p.precision, p.trans_a, p.trans_b, arithmetic=of_triangle(p.precision))
    # A matrix and its own transpose: both along k, or neither.
    if len(set(variant.k_fast)) > 1 or not variant.arithmetic.reads(variant.k_fast):
        return None
    # As the copy engine takes them.
    aligned = begin_aligned(call) and p.lda % chunk == p.ldb % chunk == 0
    return variant if aligned and call.alpha != 0 and p.k > 0 else None


def _step(
    live: LiveDevice, config: Config, variant: TensorVariant, call: GemmCall, *, lower: bool
) -> Step:
    family = wgmma()
    launch = family.launch(config, *folded(family.geometry(config), call.n), call.k)
    given = replace(whole_call(call), lower=lower)
    return (
        kernel_of(live, source_of(config, variant)),
        launch,
        family.arguments(config, variant, given),
    )
