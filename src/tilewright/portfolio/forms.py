"""Which kernels of a portfolio are compiled for groups, and for one triangle, besides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.portfolio.kernel import PortfolioKernel
from tilewright.portfolio.model import NEVER, Model
from tilewright.problem import Problem, Trans
from tilewright.stencil import stencil
from tilewright.stencil.asynchronous.folded import folded_problem
from tilewright.stencil.geometry import PLAIN, Mode

__all__ = ["with_groups", "with_triangles"]

# An H100's multiprocessors, for which times are expected; and the launch modes that there are
# instances in, of those that a kernel ships in.
_MULTIPROCESSORS, _MODES = 132, (PLAIN, Mode(scalar=True))

# Side of a group's large problems.
_GROUP_SIDE = 4096

# Sides of triangles whose fastest kernels have instances for them: below, whole products serve.
# And blocks that share a multiprocessor at most: the last of a triangle's few rounds leave some
# alone, which took 1.2 times what is expected of three in D of 2048 columns (H200).
_TRIANGLE_SIDES, _TRIANGLE_RESIDENT = (512, 1024, 2048, 4096, 8192), 2


def with_groups(kernels: Sequence[PortfolioKernel]) -> list[PortfolioKernel]:
    """Return a variant's kernels, with the instances for groups that some are to have.

    Those for batches have the same ones; products that no small tile suits are the kernel's of
    which the shortest time is expected on a large square, a block a tile; and what is not aligned
    is of 16-bit kernels that serve one such product.
    """
    model = Model(
        [one.geometry for one in kernels], np.array([one.costs or NEVER for one in kernels])
    )
    variant = kernels[0].variant
    op_a, op_b = (Trans.N if op == Trans.R else op for op in (variant.trans_a, variant.trans_b))
    large = Problem(_GROUP_SIDE, _GROUP_SIDE, _GROUP_SIDE, variant.precision, op_a, op_b)
    expected = model.expected(large, _MULTIPROCESSORS)
    able = [
        at for at, one in enumerate(kernels)
        if stencil(one.config.stencil).grouped_config(one.config, variant) is not None
    ]  # fmt: skip
    serve = (at for at in able if kernels[at].modes and kernels[at].geometry.takes(large))
    best = min(serve, key=lambda at: expected[at], default=None)
    found = list(kernels)
    for at in able:
        one = kernels[at]
        # What persistent blocks of `wgmma`, which store one tile beside the multiplies of another,
        # take for a batch says little of a group's.
        apart = one.config.stencil == "wgmma" and one.geometry.persistent
        alone = {} if apart else one.batched
        along_k = one.variant.precision.reads_along_k  # operands are copied so
        unaligned = one.modes if one.geometry.reads_unaligned and not along_k else {}
        modes = [mode for mode in one.modes if mode in _MODES] if at == best else alone or unaligned
        found[at] = replace(one, grouped=dict.fromkeys(modes, ""))
    return found


def with_triangles(kernels: Sequence[PortfolioKernel]) -> list[PortfolioKernel]:
    """Return a variant's kernels, with the instances for one triangle that some are to have.

    Those of which the shortest time is expected for some squares.
    """
    variant, found = kernels[0].variant, list(kernels)
    able = {
        at: Model([one.geometry], np.array([one.costs])) for at, one in enumerate(kernels)
        if one.costs and PLAIN in one.modes and one.geometry.resident <= _TRIANGLE_RESIDENT
        and stencil(one.config.stencil).triangles(one.config, variant)
    }  # fmt: skip
    for side in _TRIANGLE_SIDES if able else ():
        square = Problem(side, side, side, variant.precision, variant.trans_a, variant.trans_b)

        def expected(at: int, square: Problem = square) -> float:
            folded = folded_problem(kernels[at].geometry, square)
            return float(able[at].expected(folded, _MULTIPROCESSORS)[0])

        best = min(able, key=expected)
        modes = [mode for mode in kernels[best].modes if mode in _MODES]
        found[best] = replace(kernels[best], triangle=dict.fromkeys(modes, ""))
    return found
