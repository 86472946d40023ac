"""One path from a call to its launches, whatever the device and the route.

::

    call  ->  route: which launches, laid out  ->  plan (CUDA), or launches in order (OpenCL)

On CUDA what is laid out is kept as a plan, by everything that it depends on but addresses and
scalars' values, so that a later call looks it up and starts it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilewright.backend import Event, GemmCall, LiveDevice, Operand, OutOfMemoryError
from tilewright.dataclass import dataclass
from tilewright.portfolio.find import generation, on_reload
from tilewright.problem import Problem
from tilewright.serve.arenas import Memory, enqueue, workspace
from tilewright.serve.plan import (
    ALPHA,
    BETA,
    REPORT,
    A,
    B,
    C,
    Plan,
    Space,
    WorkspaceError,
    call_of,
)
from tilewright.serve.routes import Laid, lay_out
from tilewright.serve.scratch import TOPS, scratch_of
from tilewright.timeline import span

if TYPE_CHECKING:
    from tilewright.serve.split.decision import Decision

__all__ = ["Planned", "Wanted", "forget_plans", "launch", "start"]

# Some hundred layouts are alive in any program we know of; a plan takes 2 KB in the mean.
_MOST_PLANS = 4096


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
        "fp32" or a scheme's name; empty for IEEE arithmetic of the precision.
    """

    problem: Problem
    call: GemmCall
    exchanged: bool
    arithmetic: str = ""


@dataclass(frozen=True)
class Planned:
    """A plan, and what was decided when it was laid out.

    Parameters
    ----------
    plan : Plan
        The launches.
    laid : Laid
        Whose arithmetic serves, and why.
    lean : bool
        Whether it does without memory.
    """

    plan: Plan
    laid: Laid
    lean: bool = False


_plans: OrderedDict[Hashable, Planned] = OrderedDict()
_lock = threading.Lock()


def forget_plans() -> None:
    """Let the next calls be laid out anew."""
    with _lock:
        _plans.clear()


on_reload(forget_plans)


def _begins(x: Operand) -> int:
    """How far beyond a multiple of 16 bytes an operand begins."""
    return x.memory % 16 if isinstance(x.memory, int) else 0


def planned(live: LiveDevice, wanted: Wanted, *, told: bool = False, lean: bool = False) -> Planned:
    """Return the plan of a call, laid out if none is kept.

    Parameters
    ----------
    live : LiveDevice
        A CUDA device.
    wanted : Wanted
        Whose operands' offsets are 0.
    told : bool
        Whether a report is told what is decided on the device.
    lean : bool
        Whether it does without memory: in IEEE arithmetic, without copies of operands.
    """
    call, p = wanted.call, wanted.problem
    reads = bool(call.alpha != 0 and call.k)
    real = not (_imaginary(call.alpha) or _imaginary(call.beta))
    arithmetic = "" if lean else wanted.arithmetic
    begins = _begins(call.a), _begins(call.b)
    of = _circumstances() if arithmetic else None
    key = (live, p, begins, arithmetic, reads, real, told, lean, generation(), of)
    found = kept(key)
    if found is not None:
        return found
    alpha, beta = (ALPHA.real, BETA.real) if real else (ALPHA, BETA)
    made_up = replace(
        call,
        alpha=alpha if reads else 0,
        beta=beta,
        a=Operand(A + begins[0], 0, call.a.ld),
        b=Operand(B + begins[1], 0, call.b.ld),
        c=Operand(C, 0, call.c.ld),
    )
    space = Space()
    with span("lay out"):
        laid = lay_out(
            live, p, made_up, arithmetic, space, report=REPORT if told else None, copies=not lean
        )
        found = Planned(Plan(live, laid.steps, space, begins, laid.name), laid, lean)
    keep(key, found)
    return found


def _circumstances() -> Hashable:
    """Return what products of parts depend on besides, which most programs never import."""
    from tilewright.serve.split.product import circumstances

    return circumstances()


def _decision_bytes() -> int:
    from tilewright.serve.split.decision import DECISION_WORDS

    return 4 * DECISION_WORDS


def keep(key: Hashable, made: Planned) -> None:
    """Keep a plan; the least recently used one makes room."""
    with _lock:
        _plans[key] = made
        while len(_plans) > _MOST_PLANS:
            _plans.popitem(last=False)


def kept(key: Hashable) -> Planned | None:
    """Return the plan of a key that `keep` was given."""
    with _lock:
        found = _plans.get(key)
        if found is not None:
            _plans.move_to_end(key)
        return found


def _imaginary(value: Any) -> bool:
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
    told = report is not None and wanted.arithmetic == "fp32"
    found = planned(live, wanted, told=told)
    if report is not None and not found.laid.guarded:
        _tell(report, wanted, found.laid)
        report = None
    try:
        _start(live, found, wanted, stream, report, memory)
    except WorkspaceError:  # before anything was enqueued: beta C is computed once
        if found.plan.bytes == 0 or wanted.arithmetic not in ("", "fp32"):
            raise
        found = planned(live, wanted, lean=True)
        if report is not None:
            report.fixed("ieee", "the device has too little memory left for parts")
        _start(live, found, wanted, stream, None, memory)
    return found


def _start(
    live: Any,
    found: Planned,
    wanted: Wanted,
    stream: int,
    report: Decision | None,
    memory: Memory | None,
) -> None:
    call, words = wanted.call, 0
    if report is not None and found.laid.guarded:
        with workspace():
            words = live.allocate(_decision_bytes())
    native = call_of(
        call.a.memory, call.b.memory, call.c.memory, call.alpha, call.beta, stream, words
    )
    try:
        enqueue(live, found.plan, native, stream, memory)
        event = live.between_events(lambda: None, stream) if words else None
    except BaseException:
        if words:
            live.free(words)
        raise
    if report is not None and event is not None:
        report.pending(live, words, event, _terms(wanted.problem), wanted.exchanged)


def _tell(report: Decision, wanted: Wanted, laid: Laid) -> None:
    """Tell what the host decided, where there was something to decide."""
    if wanted.arithmetic:
        report.fixed(laid.arithmetic or "ieee", laid.why)


def _terms(problem: Problem) -> int:
    """Return how many real products a sum of parts has: of complex numbers twice as many."""
    return problem.k * (2 if problem.precision.is_complex else 1)


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
    if not hasattr(live, "between_events"):
        return _in_order(live, wanted, queue, after, report)
    stream = int(getattr(live, "stream") if queue is None else queue)  # noqa: B009  # CUDA's
    held = len(planned(live, wanted).laid.steps) if timed else 0
    made: list[Planned] = []

    def enqueue_all() -> None:
        made.append(start(live, wanted, stream, report))

    event: Event = live.between_events(enqueue_all, stream, after, made, "gemm", held)
    return event


def _in_order(
    live: LiveDevice,
    wanted: Wanted,
    queue: Any,
    after: tuple[Any, ...],
    report: Decision | None,
) -> Event:
    """One launch after the other, each told to wait for the one before."""
    scratch = scratch_of(live, queue)
    with scratch.lock:
        told = None
        if report is not None and wanted.arithmetic == "fp32":
            told = live.allocate(_decision_bytes())
        try:
            laid = _laid_with(live, wanted, scratch, told)
            with scratch.spoiled_by_failure(TOPS):
                event = scratch.run(laid.steps, queue, after)
        except BaseException:
            if told is not None:
                live.free(told)
            raise
    if report is not None and laid.guarded:
        report.pending(live, told, event, _terms(wanted.problem), wanted.exchanged)
    elif report is not None:
        if told is not None:
            live.free(told)
        _tell(report, wanted, laid)
    return event


def _laid_with(live: LiveDevice, wanted: Wanted, scratch: Any, told: Any) -> Laid:
    """Lay out a call, without memory where there is too little."""
    call = wanted.call
    if wanted.arithmetic:  # whatever the caller's scalars are, real ones may be compared
        call = replace(call, alpha=complex(call.alpha), beta=complex(call.beta))
    try:
        return lay_out(live, wanted.problem, call, wanted.arithmetic, scratch, report=told)
    except OutOfMemoryError:
        if wanted.arithmetic not in ("", "fp32"):
            raise
        why = "the device has too little memory left for parts"
        return replace(lay_out(live, wanted.problem, call, "", scratch, copies=False), why=why)
