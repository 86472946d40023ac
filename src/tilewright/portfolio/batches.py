"""Which kernel computes all products of a batch in one launch, if one is faster than many launches.

::

    what serves one product is compiled here   the same config, compiled for batches
    machine code for batches is there          the shortest expected time; or one launch a product,
                                               where their times add up to less
    else                                       one launch a product
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.portfolio.choose import (
    Choice,
    Served,
    by_arrays,
    choose,
    held_rows,
    made_choice,
)
from tilewright.portfolio.kernel import BATCHED
from tilewright.problem import Problem
from tilewright.stencil import Variant
from tilewright.stencil.geometry import MODES, elements_of_chunk

__all__ = ["choose_batched"]


def choose_batched(device: Served, problem: Problem, aligned: bool = True) -> Choice | None:
    """Return the kernel that computes a batch in one launch; None: one a product is faster.

    Parameters
    ----------
    device : Served
        Where.
    problem : Problem
        Of two products or more, as kernels see it, column-major.
    aligned : bool
        Whether A and B of every product begin at multiples of 16 bytes.
    """
    if problem.precision.reads_along_k and not _is_along_k(problem, aligned):
        return None  # copied first, matrix by matrix
    one = choose(device, problem.one, aligned)
    if not one.digest():
        able = one.stencil.batches(one.config, Variant.of(problem))
        return replace(one, batched=True) if able else None
    table = held_rows(device, Variant.of(problem))
    native = table.native[BATCHED]
    if native is not None and native.takes(problem):
        found = native(problem, aligned)
    else:
        found = by_arrays(device.spec, table, problem, aligned, BATCHED)
    if found is None:
        return None
    at, number, ns = found
    if ns is not None and one.ns is not None and one.ns * problem.batch < ns:
        return None
    return replace(made_choice(table, at, MODES[number], device.spec, BATCHED), ns=ns)


def _is_along_k(p: Problem, aligned: bool) -> bool:
    """Whether 8-bit operands lie as tensor cores read them: along k, in aligned columns."""
    chunk = elements_of_chunk(p)
    along = p.trans_a.transposed and not p.trans_b.transposed
    return along and aligned and p.lda % chunk == p.ldb % chunk == 0
