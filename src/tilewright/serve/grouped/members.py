"""Groups on a CUDA device: plans of many products.

::

    arrays  ->  layouts, addresses  ->  prepared: plans of up to 128 problems each  ->  started
                                             |
                                             +--  what no kernel for groups takes: gemm, one by one

Calls like one made before are found by what their arrays look like, and started, in C
(`tilewright.serve.warm.group`).

A plan is of one variant; problems with more tiles than most are cut along n into several of its
table (prelude/grouped.h), so that few of a launch's blocks have nothing to do.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import GemmCall, Kernel, Operand
from tilewright.backend.cuda.device import device_at
from tilewright.dataclass import dataclass
from tilewright.portfolio import Choice, choose
from tilewright.portfolio.batches import choose_grouped
from tilewright.portfolio.find import generation
from tilewright.precision import PRECISIONS, Precision, dtype_of, precision_of
from tilewright.problem import Problem, Trans
from tilewright.serve import warm
from tilewright.serve.arenas import enqueue
from tilewright.serve.arrange import shapes_of
from tilewright.serve.checks import check_scalars, loaded, scalars_of
from tilewright.serve.grouped.overlaps import may_overlap, refuse_overlaps
from tilewright.serve.kernels import ready_for_group
from tilewright.serve.laid_out import ALPHA, BETA, A, B, C, Space, member
from tilewright.serve.narrow.types import is_narrow, results_of, short_precision, type_name
from tilewright.serve.plan import Plan, call_of
from tilewright.serve.request import Placed, Request, column_major_call, strided
from tilewright.serve.routes.one_launch import group_step
from tilewright.stencil import Variant
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES
from tilewright.stencil.table import MAPS, PROBLEMS, Part
from tilewright.timeline import span

__all__ = ["in_one_launch"]

# Sizes in a table are 32-bit integers, and so are numbers of tiles.
_MOST = 2**31

# A problem is cut where it has so many times the tiles of the mean of its launch.
_UNEVEN = 2


@dataclass(frozen=True)
class _Prepared:
    """How groups of some layouts are computed.

    Parameters
    ----------
    launches : tuple
        Plans, and the number of the first of each one's problems among all that are launched.
    places : NDArray
        Where among all arrays, numbered as in `extents`, each launched problem's A, B and C are.
    rest : tuple of int
        Numbers of the products that are computed one by one.
    addresses, extents : NDArray
        Of each array, extents in bytes from the first element to the end of the last: all of a, of
        b and of c, which are 0 of new ones.
    ordinal : int
        CUDA's number of the device.
    shapes : list of tuple
        Of the results.
    keep : tuple
        Types, by whose addresses groups are looked up.
    """

    launches: tuple[tuple[Plan, int], ...]
    places: NDArray[np.uint32]
    rest: tuple[int, ...]
    addresses: NDArray[np.uint64]
    extents: NDArray[np.uint64]
    ordinal: int
    shapes: list[tuple[int, int]]
    keep: tuple[Any, ...]


def in_one_launch(
    a: list[Any], b: list[Any], c: list[Any], *, alpha: Any, beta: Any, trans_a: Any, trans_b: Any,
    out_dtype: Any,
) -> tuple[list[Any], tuple[int, ...]] | None:  # fmt: skip
    """Return the products of arrays on a CUDA device; None where arrays need a closer look.

    Parameters
    ----------
    a, b, c : list
        As many of each; c's may be None.
    alpha, beta, trans_a, trans_b, out_dtype
        As of `tilewright.gemm`.

    Returns
    -------
    list of array
        Results, given or new.
    tuple of int
        Numbers of those that are still to be computed, one by one: their arrays are checked.
    """
    is_new = c[0] is None
    # Types as warm.group knows them.
    alpha, beta = (x.item() if isinstance(x, np.generic) else x for x in (alpha, beta))
    given = a, b, None if is_new else c, alpha, beta, trans_a, trans_b, out_dtype
    found: tuple[list[Any], tuple[int, ...]] | None = warm.group(*given)
    if found is not None:
        return found
    library, portfolios = _library(a[0]), generation()
    if library is None:
        return None
    ops = Trans.parse(trans_a, "trans_a"), Trans.parse(trans_b, "trans_b")
    views, of = _views(library, a, b, c), _precision(a[0], c[0], out_dtype)
    if views is None or of is None:
        return None
    scalars = _scalars(alpha, beta, of, c[0])
    prepared = _prepared(views, ops, of, scalars)
    if prepared is None:
        return None
    at = prepared.addresses
    make = partial(_new_results, library, prepared.shapes, of)
    if is_new:
        c = make(a[0])
        see = _seeing(library)
        at[-len(c) :] = [see(x).address for x in c]
    elif may_overlap(*(x.reshape(3, -1).T for x in (at, at + prepared.extents))):
        refuse_overlaps(a, b, c)
    _start(prepared, scalars, library)
    if portfolios != generation():  # reload() forgot what this call would have remembered
        return c, prepared.rest
    whole = of.is_short and of.is_whole
    warm.remember_group(
        given, prepared.launches, (prepared.keep, out_dtype), make, refuse_overlaps, prepared.rest,
        prepared.places.tobytes(), prepared.extents.tobytes(), of.is_complex, whole,
        2.0**31 - 1 if whole else PRECISIONS["s"].largest if of.is_short else of.largest,
    )  # fmt: skip
    return c, prepared.rest


def _start(prepared: _Prepared, scalars: tuple[Any, Any], library: Any) -> None:
    """Enqueue all launches on the library's current stream."""
    live, stream = device_at(prepared.ordinal), library.stream_of(prepared.ordinal)
    members = prepared.addresses.take(prepared.places)
    call: Any = call_of(0, 0, 0, *scalars, stream, members=members)
    begin = call.members
    for plan, first in prepared.launches:
        call.members = begin + first * members.strides[0]
        enqueue(live, plan, call, stream, library.memory)


# -- what there is to see ----------------------------------------------------------------


def _library(x: Any) -> Any:
    """Return the adapter of an array's library; None of arrays that take a closer look."""
    cupy, torch = loaded("cupy"), loaded("torch")
    if cupy is not None and type(x) is cupy.ndarray:
        from tilewright.serve.arrays import cupy as on_cupy

        return on_cupy
    if torch is not None and type(x) is torch.Tensor and x.is_cuda:
        from tilewright.serve.arrays import torch as on_torch

        return on_torch
    return None


def _seeing(library: Any) -> Any:
    """Return what tells what there is to know of an array."""
    return getattr(library, "narrow_view", None) or partial(library.view, "a")


def _views(library: Any, a: list[Any], b: list[Any], c: list[Any]) -> list[Any] | None:
    """Return what there is to know of each product's arrays; None where one is unusual."""
    see = _seeing(library)
    kind, first = type(a[0]), a[0].dtype
    has_c = c[0] is not None
    found = []
    for some in zip(a, b, c, strict=True):
        given = some if has_c else some[:2]
        if any(type(x) is not kind for x in given) or (some[2] is not None) != has_c:
            return None
        if (
            some[0].dtype != first
            or some[1].dtype != first
            or (has_c and c[0].dtype != some[2].dtype)
        ):
            return None
        views = tuple(map(see, given))
        if any(x is None or len(x.shape) != 2 or x.conjugated for x in views):
            return None
        found.append(views if has_c else (*views, None))
    if any(x.ordinal != found[0][0].ordinal for one in found for x in one if x is not None):
        return None
    return found


def _precision(a: Any, c: Any, asked: Any) -> Precision | None:
    """Return the precision of a group; None where `gemm` has to say what is wrong."""
    if is_narrow(a):
        kind = type_name(a.dtype)
        able = results_of(kind)
        out = able[0] if asked is None else type_name(asked)
        if c is not None:
            out = type_name(c.dtype)
        return short_precision(kind, out) if out in able and (c is None or asked is None) else None
    try:
        of = precision_of(np.dtype(type_name(a.dtype)))
    except (TypeError, ValueError):
        return None
    return of if asked is None and (c is None or c.dtype == a.dtype) else None


def _scalars(alpha: Any, beta: Any, of: Precision, c: Any) -> tuple[Any, Any]:
    """Return scalars as kernels take them."""
    if of.is_short:
        return scalars_of(alpha, beta, c, whole=of.is_whole)
    check_scalars(alpha, beta, of, c)
    return alpha, beta


def _new_results(
    library: Any, shapes: list[tuple[int, int]], of: Precision, like: Any
) -> list[Any]:
    dtype = like.dtype
    if of.is_short:
        torch = sys.modules.get("torch")
        named = getattr(torch, of.result_name, None) if hasattr(like, "data_ptr") else None
        dtype = named or dtype_of(of.result_name)
    made: list[Any] = library.new_arrays(like, shapes, dtype)
    return made


# -- how they are computed ---------------------------------------------------------------


@dataclass(frozen=True)
class _Member:
    """A product of a group as kernels see it, by its number."""

    number: int
    problem: Problem
    call: GemmCall
    exchanged: bool
    aligned: bool


def _prepared(
    views: list[Any], ops: tuple[Trans, Trans], of: Precision, scalars: tuple[Any, Any]
) -> _Prepared | None:
    """Return how a group is computed; None where `gemm` has to say what is wrong."""
    real = not any(complex(x).imag for x in scalars)
    alpha, beta = _made_up(of, real=real)
    made_up = alpha if scalars[0] != 0 else 0, beta
    kinds: dict[Any, list[_Member]] = {}
    for number, some in enumerate(views):
        try:
            shapes_of(some[0], some[1], some[2], *ops)
        except ValueError as error:
            raise ValueError(f"product {number}: {error}") from None
        one = _member(number, some, ops, of, made_up)
        if one is None:
            return None
        kinds.setdefault((Variant.of(one.problem), one.exchanged, one.aligned), []).append(one)
    launches, rest = list[tuple[Plan, int]](), list[int]()
    places = [np.empty((0, 3), np.uint32)]
    live = device_at(views[0][0].ordinal)
    with span("lay out"):
        for chunk in (part for members in kinds.values() for part in _chunks(live, members)):
            found = _chosen(live, chunk)
            if found is None:
                rest += [one.number for one in chunk]
                continue
            for part in _pieces_of(chunk, _most(found[0])):
                order = (1, 0, 2) if part[0].exchanged else (0, 1, 2)
                columns = len(views) * np.array(order, np.uint32)
                numbers = np.array([one.number for one in part], np.uint32)
                launches.append((_plan(live, found, part), sum(map(len, places))))
                places.append(numbers[:, None] + columns)
    first = views[0]
    down, right = ops[0].transposed, not ops[1].transposed
    return _Prepared(
        tuple(launches), np.concatenate(places), tuple(sorted(rest)),
        _of_all(views, "address"), _of_all(views, "extent"),
        first[0].ordinal, [(x.shape[down], y.shape[right]) for x, y, _ in views],
        tuple(x.array.dtype for some in views for x in some if x is not None),
    )  # fmt: skip


def _of_all(views: list[Any], name: str) -> NDArray[np.uint64]:
    """Return an attribute of all arrays, 0 of those that are to be made: of a, of b and of c."""
    columns = zip(*views, strict=True)
    found = [0 if x is None else getattr(x, name) for some in columns for x in some]
    return np.array(found, np.uint64)


def _chunks(live: Any, members: list[_Member]) -> Iterator[list[_Member]]:
    """Yield the products that one kernel is chosen for, those of longest sums first.

    As many as a launch of the kernel has that is best for all.
    """
    # Without a result nothing is computed; a launch has no blocks for it.
    some = [one for one in members if one.problem.m and one.problem.n]
    some.sort(key=lambda one: -one.problem.k)
    if some:
        best = choose_grouped(live, [one.problem for one in some], some[0].aligned)
        yield from _pieces_of(some, _most(best))


def _most(chosen: Choice | None) -> int:
    """Return how many products a launch of a kernel has at most: a table has room for so many."""
    has_maps = chosen is not None and chosen.geometry.tma
    return min(PROBLEMS, MAPS // 2) if has_maps else PROBLEMS


def _pieces_of(members: list[_Member], most: int) -> Iterator[list[_Member]]:
    """Yield members one behind the other, at most so many at a time and about as many each time."""
    pieces = -(-len(members) // most)
    each = max(1, -(-len(members) // max(1, pieces)))
    for at in range(0, len(members), each):
        yield members[at : at + each]


def _member(
    number: int, views: Any, ops: tuple[Trans, Trans], of: Precision, scalars: tuple[Any, Any]
) -> _Member | None:
    """Return a product with scalars that are made up; None of one that BLAS could not take."""
    placed: list[Placed] = []
    m, n = views[0].shape[ops[0].transposed], views[1].shape[not ops[1].transposed]
    for x in views:
        if x is None:
            placed.append((Operand(0, 0, max(1, n)), True))
            continue
        layout = strided(x.shape, x.strides, x.dtype.itemsize)
        if layout is None or x.address % x.dtype.itemsize:
            return None
        placed.append((Operand(x.address, 0, layout[1]), layout[0]))
    k = views[0].shape[not ops[0].transposed]
    request = Request(of, int(m), int(n), int(k), *scalars, *ops, *views)
    problem, call, exchanged = column_major_call(request, (placed[0], placed[1], placed[2]))
    if max(m, n, k) >= _MOST:
        return None
    size = of.element_bytes
    aligned = all(
        x.memory % CHUNK_BYTES == 0 and x.ld * size % CHUNK_BYTES == 0 for x in (call.a, call.b)
    )
    return _Member(number, problem, call, exchanged, aligned)


def _made_up(of: Precision, *, real: bool) -> tuple[Any, Any]:
    """Return the scalars that plans are laid out with."""
    if of.is_whole:
        return int(ALPHA.real), int(BETA.real)
    return (ALPHA.real, BETA.real) if real else (ALPHA, BETA)


def _chosen(live: Any, members: Sequence[_Member]) -> tuple[Choice, Kernel] | None:
    """Return the kernel for some products of a variant; None where calls of one take less time."""
    problems, aligned = [one.problem for one in members], members[0].aligned
    found = ready_for_group(live, problems, aligned)
    if found is None:
        return None
    ns, alone = found[0].ns, [choose(live, one, aligned).ns for one in problems]
    if ns is not None and None not in alone and sum(alone) < ns:  # type: ignore[arg-type]
        return None
    return found


def _plan(live: Any, found: tuple[Choice, Kernel], members: Sequence[_Member]) -> Plan:
    """Return the launch of some products of a variant."""
    (chosen, kernel), one = found, members[0]
    begins = 0 if one.aligned else one.problem.precision.element_bytes
    tile = chosen.geometry.tile_m, chosen.geometry.tile_n
    step = group_step(chosen, kernel, one.problem, list(_parts(members, begins, tile)))
    return Plan(live, [step], Space(), (begins, begins), "group", is_group=True)


def _parts(members: Sequence[_Member], begins: int, tile: tuple[int, int]) -> Iterator[Part]:
    """Yield the problems of a launch: the products, large ones in several parts."""
    tiles = [(-(-one.problem.m // tile[0]), -(-one.problem.n // tile[1])) for one in members]
    for at, (one, pieces) in enumerate(zip(members, _pieces(tiles), strict=True)):
        of = one.call
        a = Operand(member(A, at) + begins, 0, of.a.ld)
        b = Operand(member(B, at) + begins, 0, of.b.ld)
        c = Operand(member(C, at), 0, of.c.ld)
        call = GemmCall(of.precision, of.m, of.n, of.k, of.alpha, a, b, of.beta, c)
        wide = -(-tiles[at][1] // pieces) * tile[1]
        for column in range(0, of.n, wide):
            at_column = Operand(c.memory, column * c.ld, c.ld) if column else c
            yield Part(call, of.m, min(wide, of.n - column), at_column, 0, column)


def _pieces(tiles: Sequence[tuple[int, int]]) -> list[int]:
    """Return into how many parts along n each of some products is cut.

    Parameters
    ----------
    tiles : sequence of tuple
        Of each, down and across.
    """
    pieces = [1] * len(tiles)
    total = sum(map(math.prod, tiles))

    def each(at: int) -> int:
        return tiles[at][0] * -(-tiles[at][1] // pieces[at])

    for _ in range(PROBLEMS - len(tiles)):
        longest = max(range(len(tiles)), key=each)
        if each(longest) <= _UNEVEN * total / sum(pieces) or pieces[longest] >= tiles[longest][1]:
            break
        pieces[longest] += 1
    return pieces
