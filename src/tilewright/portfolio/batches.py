"""Which kernel computes all products of a batch, or of a group, in one launch.

::

    what serves one product is compiled here   the same config, compiled for batches
    or was built here, where nothing ships     the same
    machine code for batches is there          the shortest expected time; or one launch a product,
                                               where their times add up to less
    else                                       one launch a product
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from tilewright.portfolio.choose import (
    Choice,
    able_by_arrays,
    by_arrays,
    choose,
    expected_by_arrays,
    fastest,
    made_choice,
)
from tilewright.portfolio.find import shipped
from tilewright.portfolio.held import Held, Served, held_rows
from tilewright.portfolio.kernel import BATCHED, GROUPED
from tilewright.portfolio.model import Model
from tilewright.problem import Problem
from tilewright.stencil import Variant
from tilewright.stencil.geometry import MODES, elements_of_chunk

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["choices_for_group", "choose_batched", "choose_grouped"]

# How many times longer what groups are made of takes than is expected of it (syrk of 4096 columns
# on an H100).  FP64 tensor cores wait while a block fills its first stages and stores, where no
# other block is on the multiprocessor: 1.16 in D and 1.14 in Z.  Tiles smaller than 64 x 64 were
# timed on small products, of which the L2 holds more: up to 1.4 in D, 1.12 in C and 1.08 in Z.
# Persistent blocks copy the next tile while they store one, which took batches of 128 to 512 on an
# H200 3 to 7 % less.
_ALONE, _SMALL, _SMALL_TILE, _NOT_PERSISTENT = 1.16, 1.15, 64 * 64, 1.05


def choose_batched(
    device: Served, problem: Problem, aligned: bool = True, apart_ns: float | None = None
) -> Choice | None:
    """Return the kernel that computes a batch in one launch; None: one a product is faster.

    Parameters
    ----------
    device : Served
        Where.
    problem : Problem
        Of two products or more, as kernels see it, column-major.
    aligned : bool
        Whether A and B of every product begin at multiples of 16 bytes.
    apart_ns : float, optional
        What all products take one by one; without it, by the kernel for one as it lies.
    """
    if problem.precision.reads_along_k and not _is_along_k(problem, aligned):
        return None  # copied first
    one, table = choose(device, problem.one, aligned), held_rows(device, Variant.of(problem))
    if _is_compiled(device, one, table, BATCHED):
        able = one.stencil.batches(one.config, Variant.of(problem))
        return replace(one, form=BATCHED) if able else None
    found = fastest(device.spec, table, problem, aligned, BATCHED)
    if found is None:
        return None
    at, number, ns = found
    if apart_ns is None and one.ns is not None:
        apart_ns = one.ns * problem.batch
    if ns is not None and apart_ns is not None and apart_ns < ns:
        return None
    return replace(made_choice(table, at, MODES[number], device.spec, BATCHED), ns=ns)


def choose_grouped(
    device: Served, problems: Sequence[Problem], aligned: bool = True
) -> Choice | None:
    """Return the kernel that computes some products in one launch; None: there is none.

    Parameters are those of `choices_for_group`.
    """
    return next(iter(choices_for_group(device, problems, aligned)), None)


def choices_for_group(
    device: Served, problems: Sequence[Problem], aligned: bool = True
) -> list[Choice]:
    """Return the kernels that compute some products in one launch, the best first.

    Best for a batch of products of the size that most of the work has.

    Parameters
    ----------
    device : Served
        Where; it runs CUDA.
    problems : sequence of Problem
        Single products of one variant, as kernels see them.
    aligned : bool
        Whether A and B of each begin at multiples of 16 bytes.
    """
    usual = _usual(problems)
    if usual.precision.reads_along_k and not all(_is_along_k(one, aligned) for one in problems):
        return []
    variant = Variant.of(usual)
    one, table = choose(device, usual.one, aligned), _alone(held_rows(device, variant))
    if _is_compiled(device, one, table, GROUPED):
        config = one.stencil.grouped_config(one.config, variant)
        return [] if config is None else [replace(one, config=config, form=GROUPED)]
    if table.model is None:
        found = by_arrays(device.spec, table, usual, aligned, GROUPED)
        return [] if found is None else [_in_mode(device, table, found[0], usual)]
    # What needs no tensor maps, whose addresses take a host longer than small products a device, is
    # for aligned operands, too.
    takes = [able_by_arrays(table, usual, x, GROUPED) for x in {aligned, False}]
    able = np.flatnonzero(np.logical_or.reduce(takes))
    more = _more_tiles(table, problems, usual)
    ns = expected_by_arrays(device.spec, table, usual, GROUPED, more)
    return [
        replace(_in_mode(device, table, at, usual), ns=float(ns[at]))
        for at in map(int, able[np.argsort(ns[able], kind="stable")])
    ]


def _is_compiled(device: Served, one: Choice, table: Held, form: int) -> bool:
    """Whether many products are computed by the kernel for one, which is compiled for them.

    A compiler is there where there is no machine code of a kernel, or where it was made.
    """
    if not one.digest():
        return True
    ships = shipped(device.spec, table.kernels[0].variant.precision.portfolio)
    return one.portfolio is not ships and not table.there(form).any()


def _in_mode(device: Served, table: Held, at: int, problem: Problem) -> Choice:
    """Return a kernel for groups in the launch mode that suits."""
    mode = table.kernels[at].geometry.mode(problem)
    return made_choice(table, at, mode, device.spec, GROUPED)


@lru_cache(maxsize=64)
def _alone(table: Held) -> Held:
    """Return kernels with the model of their instances for groups: blocks that share nothing."""
    if table.model is None:
        return table
    geometries = [
        replace(one.geometry, persistent=False, stream_k=0, split_k=None, cluster_k=1)
        for one in table.kernels
    ]
    times = [
        (_SMALL if one.tile_m * one.tile_n < _SMALL_TILE else 1.0)
        * (_ALONE if kernel.config.stencil == "mma_f64" and one.resident == 1 else 1.0)
        * (_NOT_PERSISTENT if kernel.batched and kernel.geometry.persistent else 1.0)
        for one, kernel in zip(geometries, table.kernels, strict=True)
    ]
    return replace(table, model=Model(geometries, table.model.costs * np.array(times)[:, None]))


def _more_tiles(table: Held, problems: Sequence[Problem], usual: Problem) -> NDArray[np.float64]:
    """Return how many times the steps of a batch a group has of each kernel's tiles."""
    sides = np.array([(one.m, one.n, max(1, one.k)) for one in problems], np.float64)
    tile = np.array([(one.geometry.tile_m, one.geometry.tile_n) for one in table.kernels])
    tiles = np.ceil(sides[:, None, :2] / tile).prod(axis=2)
    whole = np.ceil(np.array((usual.m, usual.n)) / tile).prod(axis=1) * usual.batch * usual.k
    found: NDArray[np.float64] = (tiles * sides[:, None, 2]).sum(axis=0) / whole
    return found


def _usual(problems: Sequence[Problem]) -> Problem:
    """Return a batch that takes as long as some products, of the alignment that none falls below.

    Its sides are means, each product counted as its work is.
    """
    work = [max(1, one.m) * max(1, one.n) * max(1, one.k) for one in problems]
    total = sum(work)

    def mean(side: str) -> int:
        whole: int = sum(w * getattr(one, side) for w, one in zip(work, problems, strict=True))
        return max(1, round(whole / total))

    m, n, k = map(mean, "mnk")
    first, chunk = problems[0], elements_of_chunk(problems[0])
    odd = {
        name: any(getattr(one, name) % chunk for one in problems)
        for name in ("m", "n", "k", "lda", "ldb", "ldc")
    }
    m, n, k = (
        -(-side // chunk) * chunk - odd[name] for side, name in ((m, "m"), (n, "n"), (k, "k"))
    )
    m, n, k = max(1, m), max(1, n), max(1, k)
    op_a, op_b = first.trans_a, first.trans_b
    rows = k if op_a.transposed else m, n if op_b.transposed else k, m
    lda, ldb, ldc = (
        -(-size // chunk) * chunk + odd[name]
        for size, name in zip(rows, ("lda", "ldb", "ldc"), strict=True)
    )
    batch = max(1, round(total / (m * n * k)))
    return Problem(m, n, k, first.precision, op_a, op_b, lda, ldb, ldc, batch)


def _is_along_k(p: Problem, aligned: bool) -> bool:
    """Whether 8-bit operands lie as tensor cores read them: along k, in aligned columns."""
    chunk = elements_of_chunk(p)
    along = p.trans_a.transposed and not p.trans_b.transposed
    return along and aligned and p.lda % chunk == p.ldb % chunk == 0
