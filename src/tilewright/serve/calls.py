"""One path from a call to its launches, whatever the device and the route.

::

    call  ->  route: which launches, laid out  ->  plan  ->  started: in C (CUDA), in order (OpenCL)

What is laid out is kept as a plan, by everything that it depends on but addresses and scalars'
values, so that a later call looks it up and starts it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, TypeVar

from tilewright.backend import Event, GemmCall, LiveDevice, Operand
from tilewright.dataclass import dataclass
from tilewright.portfolio.find import generation, on_reload
from tilewright.precision import Precision
from tilewright.problem import Problem
from tilewright.serve.accuracy import BY_RESIDUES
from tilewright.serve.arenas import Memory, enqueue, workspace
from tilewright.serve.arrange import Repeat
from tilewright.serve.decision import Decision, Grounds, words_on
from tilewright.serve.kernels import begins, keeps_alignment
from tilewright.serve.laid_out import ALPHA, BETA, REPORT, A, B, C, Space
from tilewright.serve.ordered import OrderedPlan, made_up
from tilewright.serve.plan import Plan, WorkspaceError, call_of
from tilewright.serve.request import Placed, Request, column_major_call
from tilewright.serve.routes.lay_out import lay_out
from tilewright.serve.routes.residues.options import PLAIN, Residues
from tilewright.serve.steps import Laid
from tilewright.serve.triangle import Triangle
from tilewright.serve.unproved import unproved_are_served
from tilewright.timeline import span

__all__ = [
    "Planned",
    "Wanted",
    "forget_plans",
    "in_bytes",
    "keep",
    "kept",
    "launch",
    "launch_gemm",
    "planned",
    "start",
    "wanted_of",
]

T = TypeVar("T")

# Some hundred layouts are alive in any program we know of; a plan takes 2 KB in the mean.
_MOST_PLANS = 4096

# Those of factorisations have hundreds of launches: up to 0.4 MB each.  They make room for one
# another alone.
_MOST_LARGE = 64


@dataclass(frozen=True)
class Wanted:
    """A product on a device, as kernels see it.

    Parameters
    ----------
    problem : Problem
        Column-major.
    call : GemmCall
        Addresses (or other handles) and scalars.
    exchanged : bool
        Whether the kernels' A is the caller's b.
    arithmetic : str
        "fp32", "fp64", a scheme's name, or "accurate" of double-double; empty for the precision's
        own kernels.
    repeats : tuple of Repeat
        Of a batch: how the product is repeated, in elements of the kernels' A, B and C.
    triangle : Triangle, optional
        Which part of the result is computed, where that is not all.
    residues : Residues
        How residues may serve.
    """

    problem: Problem
    call: GemmCall
    exchanged: bool
    arithmetic: str = ""
    repeats: tuple[Repeat, ...] = ()
    triangle: Triangle | None = None
    residues: Residues = PLAIN


def wanted_of(request: Request, operands: tuple[Placed, Placed, Placed]) -> Wanted:
    """Return a request as it is served: as kernels see it."""
    found = column_major_call(request, operands)
    repeats = request.repeats
    if found[2]:
        repeats = tuple((count, b, a, c) for count, a, b, c in repeats)
    triangle = request.triangle
    if triangle is not None and found[2]:
        triangle = triangle.exchanged()
    return Wanted(*found, request.arithmetic, repeats, triangle, request.residues)


@dataclass(frozen=True)
class Planned:
    """A plan, and what was decided when it was laid out.

    Parameters
    ----------
    plan : Plan or OrderedPlan
        The launches, of a CUDA or of an OpenCL device.
    laid : Laid
        Whose arithmetic serves, and why.
    lean : bool
        Whether it does without memory, or with less than it would have.
    """

    plan: Any
    laid: Laid
    lean: bool = False


_plans: OrderedDict[Hashable, Any] = OrderedDict()
_large: OrderedDict[Hashable, Any] = OrderedDict()
_lock = threading.Lock()


def forget_plans() -> None:
    """Let the next calls be laid out anew."""
    with _lock:
        _plans.clear()
        _large.clear()


on_reload(forget_plans)


def planned(live: LiveDevice, wanted: Wanted, *, told: bool = False, lean: bool = False) -> Planned:
    """Return the plan of a call, laid out if none is kept.

    Parameters
    ----------
    live : LiveDevice
        Where the operands are.
    wanted : Wanted
        Whose operands' offsets are 0 on a CUDA device.
    told : bool
        Whether a report is told what is decided on the device.
    lean : bool
        Whether it does without memory: in IEEE arithmetic, without copies of operands.
    """
    call, of, part = wanted.call, wanted.problem.precision, wanted.triangle
    reads = bool(call.alpha != 0 and call.k)
    real = not (_imaginary(call.alpha) or _imaginary(call.beta))
    arithmetic = "" if lean else wanted.arithmetic
    first = _begins(call.a, of, wanted.repeats, 1), _begins(call.b, of, wanted.repeats, 2)
    unproved = bool(arithmetic) and unproved_are_served()
    keeps = call.beta != 0 or part is None  # passes over a triangle depend on it
    key = (
        live, wanted.problem, wanted.repeats, first, arithmetic, reads, real, told, lean,
        generation(), unproved, part, keeps, wanted.residues,
    )  # fmt: skip
    found: Planned | None = kept(key)
    if found is None:
        alpha, beta = (ALPHA.real, BETA.real) if real else (ALPHA, BETA)
        scalars = alpha if reads else 0, beta if keeps else 0
        found = _laid_out(live, wanted, arithmetic, scalars, first, told=told, lean=lean)
        keep(key, found)
    return found


def _laid_out(
    live: LiveDevice, wanted: Wanted, arithmetic: str, scalars: tuple[complex, complex],
    first: tuple[int, int], *, told: bool, lean: bool,
) -> Planned:  # fmt: skip
    """Return the plan of a call with made-up scalars, whose A and B begin `first` bytes beyond."""
    given, p, space = wanted.call, wanted.problem, Space()
    ordered = _is_ordered(live)
    operand = partial(made_up, of=p.precision) if ordered else _at_address
    a, b = operand(A, first[0], given.a.ld), operand(B, first[1], given.b.ld)
    c = operand(C, 0, given.c.ld)
    call = GemmCall(given.precision, given.m, given.n, given.k, scalars[0], a, b, scalars[1], c)
    with span("lay out"):
        laid = lay_out(
            live, p, call, arithmetic, space, report=REPORT if told else None, copies=not lean,
            repeats=wanted.repeats, triangle=wanted.triangle, residues=wanted.residues,
        )  # fmt: skip
        if ordered:
            plan: Any = OrderedPlan(live, p.precision, laid.steps, space, first, laid.repeats)
        else:
            again = in_bytes(laid.repeats, p.precision)
            plan = Plan(live, laid.steps, space, first, laid.name, again)
    return Planned(plan, laid, lean)


def _begins(x: Operand, of: Precision, repeats: tuple[Repeat, ...], which: int) -> int:
    """Return how many bytes beyond what is aligned an operand of a plan begins.

    Where later products' matrices are aligned otherwise, all are laid out as not aligned.
    """
    found = begins(x, of)
    size = of.element_bytes
    return found or (0 if keeps_alignment((one[which] for one in repeats), size) else size)


def in_bytes(repeats: tuple[Repeat, ...], of: Precision) -> tuple[Repeat, ...]:
    """Return repeats that are in elements in bytes."""
    size, result = of.element_bytes, of.result_dtype.itemsize
    return tuple((count, a * size, b * size, c * result) for count, a, b, c in repeats)


def _is_ordered(live: LiveDevice) -> bool:
    """Whether a device's launches are enqueued one by one, each told what to wait for."""
    return not hasattr(live, "between_events")


def _at_address(base: int, begins: int, ld: int) -> Operand:
    """Return an operand to lay out with on a CUDA device."""
    return Operand(base + begins, 0, ld)


def keep(key: Hashable, made: Any, *, large: bool = False) -> None:
    """Keep a plan and what is known of it; the least recently used one makes room."""
    plans, most = (_large, _MOST_LARGE) if large else (_plans, _MOST_PLANS)
    with _lock:
        plans[key] = made
        while len(plans) > most:
            plans.popitem(last=False)


def kept(key: Hashable) -> Any:
    """Return what `keep` was given with a key; None of any other."""
    with _lock:
        for plans in (_plans, _large):
            if key in plans:
                plans.move_to_end(key)
                return plans[key]
        return None


def _imaginary(value: Any) -> bool:
    if isinstance(value, int | float):  # as nearly all are
        return False
    return any(complex(getattr(value, part, 0)).imag != 0 for part in ("hi", "lo")) or (
        not hasattr(value, "hi") and complex(value).imag != 0
    )


def start(
    live: Any,
    wanted: Wanted,
    stream: int,
    report: Decision | None = None,
    memory: Memory | None = None,
) -> Planned:
    """Enqueue a product on a CUDA stream.

    Parameters
    ----------
    live : CUDADevice
        Where the operands are.
    wanted : Wanted
        The product.
    stream : int
        Address of the stream.
    report : Decision, optional
        Told which arithmetic serves.
    memory : Memory, optional
        Who gives what calls need besides: the caller's library; the driver without one.

    Raises
    ------
    BackendError
        If the device refuses, or has too little memory even for IEEE arithmetic without copies.
    """

    def begin(found: Planned, words: Any) -> Event | None:
        call = wanted.call
        if wanted.residues.certify and live.is_captured(stream):
            raise ValueError(
                "certify=True waits for its verdict, and the stream is captured into a graph; leave"
                " it out"
            )
        a, b, c = call.a.memory, call.b.memory, call.c.memory
        native = call_of(a, b, c, call.alpha, call.beta, stream, words or 0)
        enqueue(live, found.plan, native, stream, memory)
        return live.between_events(lambda: None, stream) if words else None

    return _started(live, wanted, report, begin)[0]


def _started(
    live: LiveDevice,
    wanted: Wanted,
    report: Decision | None,
    begin: Callable[[Planned, Any], T],
) -> tuple[Planned, T]:
    """Let a product's plan be begun, and another one where there is too little memory.

    Parameters
    ----------
    live, wanted, report
        As of `start`.
    begin : callable
        Starts a plan, given memory where a decision is written, or None; returns an event.
    """
    asked = report
    told = report is not None and wanted.arithmetic in ("fp32", *BY_RESIDUES)
    found = planned(live, wanted, told=told)
    if report is not None and not found.laid.guarded:
        if wanted.arithmetic:
            report.fixed(found.laid.arithmetic or "ieee", found.laid.why)
        report = None
    try:
        return found, _begun(live, found, wanted, report, begin)
    except WorkspaceError:  # before anything was enqueued: beta C is computed once
        if found.plan.bytes == 0 or wanted.arithmetic not in ("", "fp32", "tf32", *BY_RESIDUES):
            raise
        if found.laid.arithmetic in BY_RESIDUES:  # down to the least that residues can do with
            half = replace(wanted.residues, max_workspace=found.plan.bytes // 2)
            found, begun = _started(live, replace(wanted, residues=half), asked, begin)
            return replace(found, lean=True), begun
        found = planned(live, wanted, lean=True)
        if asked is not None:
            asked.fixed("ieee", "the device has too little memory left for parts")
        return found, begin(found, None)


def _begun(
    live: LiveDevice,
    found: Planned,
    wanted: Wanted,
    report: Decision | None,
    begin: Callable[[Planned, Any], T],
) -> T:
    """Begin a plan, and tell a report where the guard's decision will be."""
    if report is None:
        return begin(found, None)
    with workspace():
        words = _words(live, wanted)
    try:
        event: Any = begin(found, words)
    except BaseException:
        live.free(words)
        raise
    report.pending(live, words, event, _grounds(wanted))
    return event  # type: ignore[no-any-return]


def _words(live: LiveDevice, wanted: Wanted) -> Any:
    """Return memory where a decision will be written; a certificate finds its random seed there."""
    if not wanted.residues.certify:
        return words_on(live)
    from tilewright.serve.routes.residues.decision import first_words

    return words_on(live, first_words(prod(one[0] for one in wanted.repeats)))


def _grounds(wanted: Wanted) -> Grounds:
    """Return what the words mean that a guard leaves."""
    k, is_complex = wanted.problem.k, wanted.problem.precision.is_complex
    if wanted.arithmetic in BY_RESIDUES:
        from tilewright.serve.routes.residues.decision import OfResidues

        return OfResidues(wanted.problem, wanted.residues.certify)
    from tilewright.serve.routes.split.decision import OfParts

    return OfParts(2 * k if is_complex else k, wanted.exchanged)


def launch(
    live: LiveDevice,
    wanted: Wanted,
    queue: Any = None,
    after: tuple[Any, ...] = (),
    report: Decision | None = None,
    *,
    timed: bool = False,
) -> Event:
    """Enqueue a product between two events; see `LiveDevice.launch`.

    With `timed` its time is asked for, as of `LiveDevice.launch_timed`.

    Returns
    -------
    Event
        Of all its launches, or of the last.
    """
    if _is_ordered(live):

        def begin(found: Planned, words: Any) -> Event:
            call = wanted.call
            places = tuple((x.memory, x.offset) for x in (call.a, call.b, call.c))
            return found.plan.start(places, call.alpha, call.beta, queue, after, words)  # type: ignore[no-any-return]

        return _started(live, wanted, report, begin)[1]
    stream = int(getattr(live, "stream") if queue is None else queue)  # noqa: B009  # CUDA's
    held = len(planned(live, wanted).laid.steps) if timed else 0
    made: list[Planned] = []

    def enqueue_all() -> None:
        made.append(start(live, wanted, stream, report))

    on_stream: Any = live
    event: Event = on_stream.between_events(enqueue_all, stream, after, made, "gemm", held)
    return event


def launch_gemm(
    live: LiveDevice,
    request: Request,
    operands: tuple[Placed, Placed, Placed],
    queue: Any = None,
    after: tuple[Any, ...] = (),
) -> Any:
    """Enqueue a product between two events; see `LiveDevice.launch`.

    Returns
    -------
    Event
        Of its launches.
    """
    return launch(live, wanted_of(request, operands), queue, after, request.report)
