"""Panels of accuracy="fp32" that are split into parts once, for all products that they are in.

::

    upload A0    | largest, split A0 | decision of A0 --+
    upload B0    | largest, split B0 | decision of B0 --+-->  product of parts of FP16, or alone

A product of whole operands has the guard's decision on the device (`tilewright.serve.split`).  Here
the guard counts in each panel by itself, and the host puts the counts of two together as decide.h
does those of two operands.  Where that allows parts of FP16, as it nearly always does, those that
are there are multiplied; else the product is served as one of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import Event, GemmCall, LiveDevice, Operand
from tilewright.portfolio.find import generation
from tilewright.problem import Problem, Trans
from tilewright.serve.arenas import enqueue
from tilewright.serve.calls import keep, kept
from tilewright.serve.kernels import kernel_of
from tilewright.serve.plan import ALPHA, BETA, A, B, C, Plan, Space, call_of
from tilewright.serve.routes import Step
from tilewright.serve.scratch import TOPS
from tilewright.serve.split.decision import (
    DECISION_WORDS,
    ROUTES,
    TERMS_A_CUT,
    TERMS_BF16,
    TERMS_FP16,
)
from tilewright.serve.split.product import Parts, Work, product_for
from tilewright.serve.split.promise import MOST_K
from tilewright.serve.split.serve import why_ieee
from tilewright.stencil.split import SCHEMES, Sources
from tilewright.stencil.split.scheme import part_bytes
from tilewright.stencil.split.sources import Operands, Stored

__all__ = ["Rooms", "SplitPanel", "Splitter", "are_multiplied", "steps_to_split"]

# TMA's rule for the start of an array and of each of its columns; what allocators align to.
_ALIGNMENT, _PIECE = 16, 256

_SCHEME = SCHEMES[ROUTES[1]]


@dataclass(frozen=True)
class Rooms:
    """Memory for what a panel is split into: parts, numbers of its sides, and its decision.

    ::

        | part 0 | part 1 | numbers of sides (guard.h) | decision |
    """

    parts: Any
    numbers: Any
    decision: Any

    @classmethod
    def within(cls, address: int, stored: Stored) -> Rooms:
        """Return where they are in a piece of memory."""
        of, where = _operands(stored), _parts(stored, 0)
        numbers = address + _up(_SCHEME.parts * where.stride * part_bytes(_SCHEME.part), _PIECE)
        words = of.sides + of.words_of_counts
        return cls(address, numbers, numbers + _up(4 * words, _ALIGNMENT))


def steps_to_split(
    live: LiveDevice, stored: Stored, operand: Operand, rooms: Rooms, tops: Any
) -> list[Step]:
    """Return the two passes over a panel.

    Parameters
    ----------
    live : LiveDevice
        Where they run.
    stored : Stored
        How the panel lies in memory.
    operand : Operand
        Where.
    rooms : Rooms
        Where they leave what they find.
    tops : object
        Memory of `Operands.words_of_tops` ints, which are zero before and afterwards.
    """
    of, sources, where = _operands(stored), Sources(live.dialect), _parts(stored, rooms.parts)
    place = operand.memory, _i(operand.offset), _i(operand.ld)
    matrices = (
        _i(stored.inner), _i(stored.outer), *place, _i(of.b.inner), _i(of.b.outer), *place,
        _i(of.first_b),
    )  # fmt: skip
    parts = rooms.parts, _i(where.stride), _i(where.ld)
    guard = _i(stored.k), rooms.decision, rooms.decision
    return [
        (
            kernel_of(live, sources.largest(of)), of.launch,
            (*matrices, tops, rooms.numbers, _i(of.sides), _i(of.words_of_counts)),
        ),
        (
            kernel_of(live, sources.split(of, _SCHEME, guarded=True)), of.second_launch,
            (*matrices, *parts, *parts, tops, rooms.numbers, _i(of.sides), *guard),
        ),
    ]  # fmt: skip


def are_multiplied(a: NDArray[np.int32], b: NDArray[np.int32], k: int) -> bool:
    """Whether decide.h takes parts of FP16 for operands whose own decisions these are."""
    _, finite_a, seen_a, wide_a, cut_a, _, short_a, _ = map(int, a)
    _, finite_b, seen_b, wide_b, cut_b, _, short_b, _ = map(int, b)
    seen, wide = seen_a + seen_b - k, wide_a + wide_b - k
    if not (finite_a and finite_b) or seen < TERMS_BF16 or (short_a and short_b):
        return False
    terms = seen if short_a or short_b else wide
    return terms >= TERMS_FP16 and max(cut_a, cut_b) <= seen // TERMS_A_CUT


@dataclass
class SplitPanel:
    """A panel on its way to be split.

    Parameters
    ----------
    stored : Stored
        How it lies in memory.
    address : int
        Of its rooms.
    ready : Event
        Of the passes.
    """

    stored: Stored
    address: int
    ready: Event
    words: NDArray[np.int32] | None = None

    def decision(self, live: Any) -> NDArray[np.int32]:
        """Return what the guard found, once it has."""
        if self.words is None:
            words = np.empty(DECISION_WORDS, np.int32)
            self.ready.wait()
            live.download(Rooms.within(self.address, self.stored).decision, words)
            self.words = words
        return self.words


class Splitter:
    """Splits panels on a CUDA device, and multiplies their parts; its plans are kept.

    Parameters
    ----------
    live : CUDADevice
        The device.
    stream : int
        Where panels are split, one after the other.
    """

    def __init__(self, live: Any, stream: int) -> None:
        self._live, self._stream = live, stream

    def split(self, stored: Stored, operand: Operand, address: int, after: Any) -> SplitPanel:
        """Enqueue the passes over a panel into rooms, behind events."""
        key = "split", self._live, stored, operand.ld, generation()
        plan = kept(key)
        if plan is None:
            space = Space()
            tops = space.need(TOPS, 4 * _operands(stored).words_of_tops, zeroed=True)
            made_up = Operand(A, 0, operand.ld)
            steps = steps_to_split(self._live, stored, made_up, Rooms.within(B, stored), tops)
            plan = Plan(self._live, steps, space, name="split")
            keep(key, plan)
        ready = self._started(plan, (operand.memory, address, 0), 1, 0, self._stream, after)
        return SplitPanel(stored, address, ready)

    def takes(self, problem: Problem, call: GemmCall, a: SplitPanel, b: SplitPanel) -> bool:
        """Whether parts of kernels' A and B are multiplied; waits for what was found in them."""
        if why_ieee(self._live, problem, call, "fp32"):
            return False
        return are_multiplied(a.decision(self._live), b.decision(self._live), call.k)

    def multiply(
        self, call: GemmCall, a: SplitPanel, b: SplitPanel, stream: int, after: Any
    ) -> Event:
        """Enqueue a product of the parts of kernels' A and B, behind events."""
        key = "parts", self._live, call.m, call.n, a.stored, b.stored, call.c.ld, generation()
        plan = kept(key)
        if plan is None:
            plan = self._laid_out(call, a.stored, b.stored)
            keep(key, plan)
        places = a.address, b.address, call.c.memory
        after = [*after, a.ready, b.ready]
        return self._started(plan, places, call.alpha, call.beta, stream, after)

    def _laid_out(self, call: GemmCall, a: Stored, b: Stored) -> Plan:
        space, product = Space(), product_for(self._live, _SCHEME)
        sides = [Rooms.within(base, stored) for base, stored in ((A, a), (B, b))]
        x, y = (
            replace(_parts(stored, rooms.parts), trans=trans, first_exponent=rooms.numbers // 4)
            for stored, rooms, trans in zip(
                (a, b), sides,
                (Trans.T if a.k_fast else Trans.N, Trans.N if b.k_fast else Trans.T), strict=True,
            )
        )  # fmt: skip
        with self._live.current():  # where tensor maps are made
            works = (
                Work(
                    _SCHEME, call.m, call.n, k0, min(k0 + MOST_K, a.k), ALPHA.real, x, y,
                    1.0 if k0 else BETA.real, Operand(C, 0, call.c.ld), 0, space.zero, 0,
                )
                for k0 in range(0, a.k, MOST_K)
            )  # fmt: skip
            steps = [product.step(self._live, one) for one in works]
            return Plan(
                self._live,
                [(kernel_of(self._live, x.source), x.launch, x.arguments) for x in steps],
                space,
            )

    def _started(
        self, plan: Plan, places: tuple[int, int, int], alpha: Any, beta: Any, stream: int,
        after: Any,
    ) -> Event:  # fmt: skip
        native = call_of(*places, alpha, beta, stream)

        def begin() -> None:
            enqueue(self._live, plan, native, stream)

        event: Event = self._live.between_events(begin, stream, after, plan, plan.name)
        return event


def _operands(stored: Stored) -> Operands:
    """Return a panel as the passes see it: A, without a B."""
    return Operands(stored, Stored(0, stored.k, stored.k_fast))


def _parts(stored: Stored, memory: Any) -> Parts:
    """Return where parts of a panel are."""
    unit = _ALIGNMENT // part_bytes(_SCHEME.part)
    ld = _up(stored.inner, unit)
    return Parts(memory, ld * stored.outer, ld, Trans.N, 0)


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _i(number: int) -> np.int64:
    return np.int64(number)
