"""Products whose operands are copied first, where that is expected to be faster.

The fastest kernels take operands that run along m or n in aligned columns, whole tiles of them at
once.  A pass over memory (realign.cl) makes such a copy of any operand: turned if it runs along k,
its columns aligned if they were not.  What that costs grows with the square of a size, what it
wins with the cube::

    A as it lies, or its copy  --+
                                 +-->  the kernel for those  -->  C
    B as it lies, or its copy  --+

All four ways are compared by the times that `choose` expects, and the pass's own, as measured on
the device that the shipped table is of.  Elements are moved as they are, but for conjugates, which
are exact; so the arithmetic is the chosen kernel's.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilewright.backend import Event, GemmCall, LiveDevice, Operand, OutOfMemoryError
from tilewright.library.gemm import Placed, begins_aligned, column_major_call, prepare_call
from tilewright.library.in_order import Launching, in_order
from tilewright.library.kernels import kernel_of
from tilewright.library.scratch import Scratch, scratch_of
from tilewright.portfolio import Served, choose, shipped
from tilewright.problem import Problem, Trans
from tilewright.stencil.asynchronous.realign import Realigned
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES

if TYPE_CHECKING:
    from tilewright.library.gemm import Request

__all__ = [
    "CopiedCall",
    "Way",
    "best_way",
    "copied_call",
    "launch_realigned",
    "launch_way",
    "way_of",
    "ways",
]

# Of the time without: what is won by less is not worth the memory, nor is it known so well.
_WORTH = 0.995

# A kernel is not slower than the best there is by more than passes of so much of its time.
_MOST = 0.3

# Of a device's memory, for a call's copies: 2.5 GB of 80.  It stays taken for the next call on its
# stream, because taking and giving back 1 GB each time lets the device wait for 1.5 ms (H100).
_SHARE_OF_MEMORY = 1 / 32


@dataclass(frozen=True)
class Way:
    """How a product is computed.

    Parameters
    ----------
    problem : Problem
        What the kernel computes.
    a, b : Realigned or None
        The copy of an operand that it reads; None: the operand itself.
    aligned : bool
        Whether what it reads begins at multiples of 16 bytes.
    """

    problem: Problem
    a: Realigned | None
    b: Realigned | None
    aligned: bool

    @property
    def copies(self) -> dict[str, Realigned]:
        """The copies by operand."""
        return {name: one for name, one in (("a", self.a), ("b", self.b)) if one is not None}


def ways(problem: Problem, aligned: tuple[bool, bool]) -> list[Way]:
    """Return all ways to compute a product, the one without a copy first.

    Parameters
    ----------
    problem : Problem
        What is to be computed.
    aligned : tuple of bool
        Whether A's and B's first elements lie at multiples of 16 bytes.
    """
    p = problem
    a = _copy(p, p.m, p.lda, p.trans_a.transposed, p.trans_a.conjugated, aligned[0])
    # What B's kernels call transposed runs along n.
    b = _copy(p, p.n, p.ldb, not p.trans_b.transposed, p.trans_b.conjugated, aligned[1])
    pairs = itertools.product(*(dict.fromkeys((None, one)) for one in (a, b)))
    return [_way(problem, a, b, aligned) for a, b in pairs]


def _copy(
    p: Problem, side: int, ld: int, along_k: bool, conjugated: bool, aligned: bool
) -> Realigned | None:
    """Return the copy of an operand that runs along its side, aligned; None where it does."""
    size = p.precision.element_bytes
    if not along_k and aligned and ld * size % CHUNK_BYTES == 0:
        return None
    # A conjugate that is not turned stays with the kernel.
    return Realigned(size, side, p.k, along_k, along_k and conjugated)


def _way(
    problem: Problem, a: Realigned | None, b: Realigned | None, aligned: tuple[bool, bool]
) -> Way:
    found = problem
    if a is not None:
        found = replace(found, lda=a.ld, trans_a=Trans.N if a.turned else found.trans_a)
    if b is not None:
        found = replace(found, ldb=b.ld, trans_b=Trans.T if b.turned else found.trans_b)
    begin = all(one is not None or was for one, was in zip((a, b), aligned, strict=True))
    return Way(found, a, b, begin)


def best_way(device: Served, problem: Problem, aligned: tuple[bool, bool]) -> Way:
    """Return the way of which the shortest time is expected.

    Without a copy where the device's table does not say what one costs, or has no times of such
    products in this precision, or what copies win is less than is worth it.

    Parameters
    ----------
    device : Served
        Where it is to run.
    problem, aligned
        As of `ways`.
    """
    portfolio = shipped(device.spec, problem.precision.letter)
    known = portfolio.copying if portfolio is not None else None
    if known is None:
        return Way(problem, None, None, all(aligned))
    plain, *others = ways(problem, aligned)
    if not others:
        return plain
    expected = choose(device, problem, plain.aligned).ns
    if expected is None:
        return plain
    best, shortest = plain, expected * _WORTH
    room = (device.spec.memory_bytes or 0) * _SHARE_OF_MEMORY
    for way in others:
        passes = sum(known.ns(one.traffic) for one in way.copies.values())
        if passes > _MOST * expected or sum(x.size for x in way.copies.values()) > room:
            continue
        ns = choose(device, way.problem, way.aligned).ns
        if ns is not None and ns + passes < shortest:
            best, shortest = way, ns + passes
    return best


@dataclass(frozen=True)
class CopiedCall:
    """A call whose operands are worth copying first: the way, and the call as kernels see it.

    Parameters
    ----------
    way : Way
        With a copy at least.
    call : GemmCall
        Whose operands lie as they were given.
    exchanged : bool
        Whether its A is the caller's b.
    """

    way: Way
    call: GemmCall
    exchanged: bool


def copied_call(
    live: LiveDevice, request: Request, operands: tuple[Placed, Placed, Placed]
) -> CopiedCall | None:
    """Return how operands should be copied; None where the kernel for them as they lie is best."""
    if request.alpha == 0 or request.k == 0:  # neither operand is read
        return None
    problem, call, exchanged = column_major_call(request, operands)
    way = way_of(live, problem, call)
    return CopiedCall(way, call, exchanged) if way.copies else None


def launch_realigned(
    live: LiveDevice, wanted: CopiedCall, queue: Any = None, after: tuple[Any, ...] = ()
) -> Event | None:
    """Enqueue copies and product.

    Parameters
    ----------
    live : LiveDevice
        Where the operands are.
    wanted : CopiedCall
        By `copied_call`.
    queue, after
        As of `LiveDevice.launch`.

    Returns
    -------
    Event or None
        Of the launches; None where nothing was enqueued, because the queue is captured, or the
        device has no memory left for copies: another call like this one may have them.
    """
    if live.is_captured(queue):
        return None
    try:
        return launch_way(live, wanted.way, wanted.call, wanted.exchanged, queue, after)
    except OutOfMemoryError:
        return None


def way_of(live: LiveDevice, problem: Problem, call: GemmCall) -> Way:
    """Return the best way for a call as kernels see it; see `best_way`."""
    begin = (begins_aligned(call.a, call.precision), begins_aligned(call.b, call.precision))
    return best_way(live, problem, begin)


def launch_way(
    live: LiveDevice,
    way: Way,
    call: GemmCall,
    exchanged: bool = False,
    queue: Any = None,
    after: tuple[Any, ...] = (),
    timed: bool = False,
) -> Event:
    """Enqueue the copies of a way and then its kernel.

    Parameters
    ----------
    live : LiveDevice
        Where the operands are.
    way : Way
        One of `ways` for the call's problem.
    call : GemmCall
        As kernels see it; alpha and k are not 0.
    exchanged : bool
        Whether its A is the caller's b.
    queue, after
        As of `LiveDevice.launch`.
    timed : bool
        Whether its time is asked for, as of `LiveDevice.launch_timed`.

    Raises
    ------
    OutOfMemoryError
        If the device has too little memory for the copies; nothing was enqueued.
    """
    scratch = scratch_of(live, queue)
    with scratch.lock:
        memory = {name: _memory(scratch, name, one) for name, one in way.copies.items()}
        launches: list[Launching] = []
        read = {"a": call.a, "b": call.b}
        for name, one in way.copies.items():
            x, to = read[name], memory[name]
            steps = (x.ld, 1) if one.turned else (1, x.ld)
            arguments = one.arguments(x.memory, x.offset, *steps, to)
            launches.append((kernel_of(live, one.source(live.dialect)), one.launch, arguments))
            read[name] = Operand(to, 0, one.ld)
        ready = replace(call, a=read["a"], b=read["b"])
        made = prepare_call(live, way.problem, ready, exchanged)
        launches.append((made.kernel, made.launch, made.arguments))
        return in_order(live, scratch, launches, queue, after, made.kernel.entry, timed)


def _memory(scratch: Scratch, name: str, copy: Realigned) -> Any:
    return scratch.need(f"realigned {name}", copy.size)
