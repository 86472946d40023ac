"""Panels of accuracy="fp32" that are split into parts once, for all products that they are in.

::

    upload A0    | largest, split A0 | decision of A0 --+
    upload B0    | largest, split B0 | decision of B0 --+-->  product of parts, or IEEE

A product of whole operands has the guard's decision on the device (`tilewright.serve.split`).  Here
the guard counts in each panel alone, and the host puts the counts of two together as decide.h does
those of two operands: the arithmetic of a product is the same as if its panels were all of A and B.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import Event, Operand
from tilewright.problem import Problem, Trans
from tilewright.serve.kernels import kernel_of
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
from tilewright.stencil.split import SCHEMES, Scheme, Sources
from tilewright.stencil.split.scheme import part_bytes
from tilewright.stencil.split.sources import Operands, Stored

__all__ = ["SplitPanel", "Splitter"]

# TMA's rule for the start of an array and of each of its columns.
_ALIGNMENT = 16


def _operands(side: int, k: int, k_fast: bool) -> Operands:
    """Return a panel as the passes see it: A, without a B."""
    return Operands(Stored(side, k, k_fast), Stored(0, k, k_fast))


@dataclass
class SplitPanel:
    """A panel, and its parts.

    Parameters
    ----------
    stored : Stored
        How it lies in memory.
    operand : Operand
        Where.
    parts, numbers, decision : object
        Memory of its parts of FP16, of numbers of its sides, and of the decision on it alone.
    ready : Event
        Of the passes.
    """

    stored: Stored
    operand: Operand
    parts: Any
    numbers: Any
    decision: Any
    ready: Event
    words: NDArray[np.int32] | None = None
    many: Any = None


class Splitter:
    """Splits panels on a stream of a CUDA device, and multiplies their parts.

    Parameters
    ----------
    live : CUDADevice
        The device.
    stream : int, optional
        Where panels are split, one after the other.
    allocate : callable
        Returns device memory of so many bytes.
    longest : int
        Length of the longest side of a panel.
    """

    def __init__(self, live: Any, stream: Any, allocate: Any, longest: int) -> None:
        self._live, self._stream, self._allocate = live, stream, allocate
        self._sources = Sources(live.dialect)
        self._more: dict[int, tuple[int, int]] = {}
        self._few, self._many = SCHEMES[ROUTES[1]], SCHEMES[ROUTES[2]]
        tops = np.zeros(4 + longest + 4, np.int32)
        self._tops, self._zero, self._two = (allocate(size) for size in (tops.nbytes, 256, 256))
        live.write(self._tops, tops)
        live.write(self._zero, np.zeros(1, np.int32))
        live.write(self._two, np.full(1, 2, np.int32))

    # -- panels ----------------------------------------------------------------------------

    def split(
        self, stored: Stored, operand: Operand, room: tuple[Any, Any, Any], after: Any
    ) -> SplitPanel:
        """Enqueue the passes over a panel, behind events; room is for all but the panel."""
        parts, numbers, decision = room
        of = _operands(stored.side, stored.k, stored.k_fast)
        matrices = self._matrices(stored, operand, of)
        first = self._sources.largest(of), of.launch, (
            *matrices, self._tops, numbers, _i(of.sides), _i(of.words_of_counts),
        )  # fmt: skip
        where = _placed(self._few, stored, parts)
        second = self._sources.split(of, self._few, guarded=True), of.second_launch, (
            *matrices, parts, _i(where.stride), _i(where.ld), parts, _i(where.stride),
            _i(where.ld), self._tops, numbers, _i(of.sides), _i(stored.k), decision, decision,
        )  # fmt: skip
        self._launch(*first, self._stream, after)
        ready = self._launch(*second, self._stream, ())
        return SplitPanel(stored, operand, parts, numbers, decision, ready)

    def _matrices(self, stored: Stored, operand: Operand, of: Operands) -> tuple[Any, ...]:
        a = _i(stored.inner), _i(stored.outer), operand.memory, _i(operand.offset), _i(operand.ld)
        b = _i(of.b.inner), _i(of.b.outer), operand.memory, _i(operand.offset), _i(operand.ld)
        return *a, *b, _i(of.first_b)

    def _launch(self, source: Any, launch: Any, arguments: Any, stream: int, after: Any) -> Event:
        with getattr(self._live, "current", nullcontext)():  # where tensor maps are made
            kernel = kernel_of(self._live, source)
            event: Event = self._live.launch(kernel, launch, arguments, stream, after)
        return event

    def _words(self, panel: SplitPanel) -> NDArray[np.int32]:
        """Return what the guard counted in a panel, once it has."""
        if panel.words is None:
            words = np.empty(DECISION_WORDS, np.int32)
            panel.ready.wait()
            self._live.download(panel.decision, words)
            panel.words = words
        return panel.words

    # -- products --------------------------------------------------------------------------

    def route(self, problem: Problem, call: Any, a: SplitPanel, b: SplitPanel) -> str:
        """Return the arithmetic of a product: that of ROUTES which decide.h takes."""
        if why_ieee(self._live, problem, call, "fp32"):
            return ROUTES[0]
        k, of_a, of_b = a.stored.k, self._words(a), self._words(b)
        _, finite_a, seen_a, wide_a, cut_a, _, short_a, _ = map(int, of_a)
        _, finite_b, seen_b, wide_b, cut_b, _, short_b, _ = map(int, of_b)
        seen, wide = seen_a + seen_b - k, wide_a + wide_b - k
        if not (finite_a and finite_b) or seen < TERMS_BF16 or (short_a and short_b):
            return ROUTES[0]
        terms = seen if short_a or short_b else wide
        if terms >= TERMS_FP16 and max(cut_a, cut_b) <= seen // TERMS_A_CUT:
            return ROUTES[1]
        return ROUTES[2]

    def multiply(
        self, name: str, call: Any, a: SplitPanel, b: SplitPanel, stream: int, after: Any
    ) -> Event:
        """Enqueue a product of the parts of kernels' A and B, behind events."""
        scheme, waits = SCHEMES[name], [*after, a.ready, b.ready]
        if scheme is self._many:
            waits += [self._split_more(one, waits) for one in (a, b)]
        first, second = (
            replace(
                _placed(scheme, one.stored, one.parts if scheme is self._few else one.many or 0),
                trans=_trans(one.stored.k_fast, of_b=of_b),
                first_exponent=one.numbers // 4,
            )
            for one, of_b in ((a, False), (b, True))
        )
        ended: Any = None
        for k0 in range(0, call.k, MOST_K):
            work = Work(
                scheme, call.m, call.n, k0, min(k0 + MOST_K, call.k),
                float(complex(call.alpha).real), first, second,
                1.0 if k0 else float(complex(call.beta).real), call.c, 0, self._zero, 0,
            )  # fmt: skip
            step = product_for(self._live, scheme).step(self._live, work)
            ended = self._launch(step.source, step.launch, step.arguments, stream, waits)
            waits = []
        return ended  # type: ignore[no-any-return]

    def _split_more(self, panel: SplitPanel, after: Any) -> Event:
        """Enqueue the pass that makes parts of BF16 of a panel, if there are none yet."""
        if panel.many is None:
            stored = panel.stored
            of = _operands(stored.side, stored.k, stored.k_fast)
            where = _placed(self._many, stored, 0)
            panel.many = self._room(panel.numbers, self._many.parts * where.stride * 2)
            source = self._sources.split(of, self._many, exponents="known", run_if=2)
            arguments = (
                *self._matrices(stored, panel.operand, of), panel.many, _i(where.stride),
                _i(where.ld), panel.many, _i(where.stride), _i(where.ld), self._tops,
                panel.numbers, _i(of.sides), self._two,
            )  # fmt: skip
            panel.ready = self._launch(source, of.small_launch, arguments, self._stream, after)
        return panel.ready

    def _room(self, numbers: int, size: int) -> int:
        """Return memory for parts of BF16 of whichever panel has its numbers here."""
        address, room = self._more.get(numbers, (0, 0))
        if room < size:
            address = self._allocate(size)
            self._more[numbers] = address, size
        return address


def _placed(scheme: Scheme, stored: Stored, memory: int) -> Parts:
    """Return where parts of a panel are."""
    unit = _ALIGNMENT // part_bytes(scheme.part)
    ld = -(-stored.inner // unit) * unit
    return Parts(memory, ld * stored.outer, ld, Trans.N, 0)


def _trans(k_fast: bool, *, of_b: bool) -> Trans:
    """Return what a product does to parts as they are stored."""
    return Trans.T if k_fast is not of_b else Trans.N


def _i(number: int) -> np.int64:
    return np.int64(number)
