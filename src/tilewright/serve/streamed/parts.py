"""Operands of accuracy="fp32" that are split into parts once, for all products that they are in.

::

    upload      | strip 0 of A | strip 1 of A | ...
    passes                 | split 0      | split 1      | ...      and what the guard says of each
    multiply                        | parts of A and B ...

A product of whole operands has the guard's decision on the device
(`tilewright.serve.routes.split`).  Here the guard counts in what is copied at a time by itself.
Products do not wait for what it finds: before a tile is copied back the host puts the counts of A
and of B together, as decide.h does those of two operands.  Where that allows no parts of FP16,
which is rare, the tile is computed anew by products that decide by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import GemmCall, Operand
from tilewright.portfolio.find import generation
from tilewright.problem import Problem, Trans
from tilewright.serve.calls import keep, kept
from tilewright.serve.kernels import kernel_of
from tilewright.serve.laid_out import ALPHA, BETA, REPORT, VECTORS, A, B, C, Space
from tilewright.serve.plan import Plan, call_of
from tilewright.serve.routes.split.decision import ROUTES, TERMS_A_CUT, TERMS_BF16, TERMS_FP16
from tilewright.serve.routes.split.product import Parts, Work, product_for
from tilewright.serve.routes.split.promise import MOST_K
from tilewright.serve.routes.split.serve import why_ieee
from tilewright.serve.scratch import TOPS
from tilewright.serve.steps import Step
from tilewright.serve.streamed.tiling import Piece, span
from tilewright.stencil.split import SCHEMES, Sources
from tilewright.stencil.split.scheme import part_bytes
from tilewright.stencil.split.sources import Operands, Stored

__all__ = ["Part", "SplitOperand", "are_multiplied", "plan_of", "steps_to_split"]

_i = np.int64  # as kernels take sizes and places

# Every piece begins at a multiple of what allocators align to; TMA wants columns aligned to 16.
_PIECE, _COLUMN = 256, 16

_SCHEME = SCHEMES[ROUTES[1]]
_PART_BYTES = part_bytes(_SCHEME.part)

# guard.h: of the words of a decision.
SEEN, WIDE = 2, 3


class Part(NamedTuple):
    """Parts of some sides of an operand, of one piece of k.

    Parameters
    ----------
    k_fast : bool
        Whether memory runs along k.
    address, stride, ld : int
        Of the first part; elements from a part to the next, and from a line to the next.
    exponents : int
        Address of the first side's.
    """

    k_fast: bool
    address: int
    stride: int
    ld: int
    exponents: int


@dataclass(frozen=True)
class SplitOperand:
    """Where parts of an operand are on a device: the whole, and numbers by pieces of k.

    ::

        | part 0 | part 1 | for each piece of k: numbers of all sides (guard.h) |

    What comes at a time is split at a time; its numbers are those of its first piece of k.

    Parameters
    ----------
    side : int
        Rows of op(A), or columns of op(B).
    ks : sequence of (int, int)
        Pieces of k.
    pieces : int
        Of the sides.
    k_fast : bool
        Whether memory runs along k.
    memory : int
        Where all of it is.
    decisions : ndarray, optional
        What the guard finds, by pieces of the sides, pieces of k, and words.  The device writes it
        into the host's memory: a copy would wait behind those of whole tiles.
    """

    side: int
    ks: tuple[Piece, ...]
    pieces: int
    k_fast: bool
    memory: int = 0
    decisions: NDArray[np.int32] | None = None

    def part(self, start: int, p: int, first: int) -> Part:
        """Return what begins with a side and a piece of k, of what came with a `first` one."""
        stored = Stored(self.side, self.ks[-1][1], self.k_fast)
        ld = _up(stored.inner, _COLUMN // _PART_BYTES)
        line, within = (start, self.ks[p][0]) if self.k_fast else (self.ks[p][0], start)
        address = self.memory + (line * ld + within) * _PART_BYTES
        stride = ld * stored.outer
        numbers = self.memory + _up(_SCHEME.parts * stride * _PART_BYTES, _PIECE)
        return Part(
            self.k_fast, address, stride, ld, numbers + first * self._numbers_bytes + 4 * start
        )

    @property
    def size(self) -> int:
        """All of it in bytes."""
        return self.part(0, 0, len(self.ks)).exponents - self.memory

    @cached_property
    def sides(self) -> int:
        """Sides, rounded up as guard.h has them."""
        return Operands(Stored(self.side, 1, True), Stored(0, 1, True)).sides

    @cached_property
    def _numbers_bytes(self) -> int:
        words = 5 * self.sides + 4  # exponents, three counts and two marks, from any side on
        return _up(4 * words, _PIECE)

    def counts(self, number: int, p: int, unit: Piece) -> list[int]:
        """Return what the guard found in a piece of the sides and of k, once that is known.

        It came with the pieces of k of a `unit`, and is told as if all others were seen.
        """
        assert self.decisions is not None
        (begin, end), (start, stop) = span(self.ks, unit), self.ks[p]
        found: list[int] = self.decisions[number, unit[0]].tolist()
        for word in (SEEN, WIDE):
            found[word] -= end - begin - (stop - start)
        return found

    def split(
        self, live: Any, stream: int, sides: Piece, number: int, steps: Piece, operand: Operand
    ) -> tuple[Plan, Any]:
        """Return the passes over a piece of the sides, and pieces of k, and their call.

        Parameters
        ----------
        live : CUDADevice
            Where they run.
        stream : int
            Where they are enqueued, one after the other.
        sides : (int, int)
            The piece of the sides.
        number : int
            Which it is.
        steps : (int, int)
            The pieces of k.
        operand : Operand
            Where they are on the device.
        """
        begin, end = span(self.ks, steps)
        stored = Stored(sides[1] - sides[0], end - begin, self.k_fast)
        to = self.part(sides[0], steps[0], steps[0])
        key = "split", live, stored, operand.ld, to.stride, to.ld, self.sides, generation()
        plan = kept(key)
        if plan is None:
            space = Space()
            tops = space.need(TOPS, 4 * (self.sides + 4), zeroed=True)
            place = to._replace(address=B, exponents=C)
            made_up = replace(operand, memory=A)
            launches = steps_to_split(live, stored, made_up, place, self.sides, tops, REPORT)
            plan = Plan(live, launches, space, name="split")
            keep(key, plan)
        assert self.decisions is not None
        told = self.decisions[number, steps[0]].ctypes.data
        return plan, call_of(operand.memory, to.address, to.exponents, 1, 0, stream, report=told)


def steps_to_split(
    live: Any, stored: Stored, operand: Operand, to: Part, sides: int, tops: Any, decision: Any
) -> list[Step]:
    """Return the two passes over some sides.

    Parameters
    ----------
    live : LiveDevice
        Where they run.
    stored : Stored
        How they lie in memory.
    operand : Operand
        Where.
    to : Part
        Where parts and numbers go; those of other sides are so many as `sides` apart.
    tops : object
        Memory of 4 ints and as many as sides, zero before and afterwards.
    decision : object
        Where the guard tells what it found.
    """
    of, sources = Operands(stored, Stored(0, stored.k, stored.k_fast)), Sources(live.dialect)
    place = operand.memory, _i(operand.offset), _i(operand.ld)
    matrices = (
        _i(stored.inner), _i(stored.outer), *place, _i(of.b.inner), _i(of.b.outer), *place,
        _i(of.first_b),
    )  # fmt: skip
    parts = to.address, _i(to.stride), _i(to.ld)
    counts = replace(of, a=Stored(sides, 1, True)).words_of_counts
    guard = _i(stored.k), decision, decision
    return [
        (
            kernel_of(live, sources.largest(of)), of.launch,
            (*matrices, tops, to.exponents, _i(sides), _i(counts)),
        ),
        (
            kernel_of(live, sources.split(of, _SCHEME, guarded=True)), of.second_launch,
            (*matrices, *parts, *parts, tops, to.exponents, _i(sides), *guard),
        ),
    ]  # fmt: skip


def are_multiplied(a: Iterable[int], b: Iterable[int], k: int) -> bool:
    """Whether decide.h takes parts of FP16 for operands whose own decisions these are."""
    _, finite_a, seen_a, wide_a, cut_a, _, short_a, _ = map(int, a)
    _, finite_b, seen_b, wide_b, cut_b, _, short_b, _ = map(int, b)
    seen, wide = seen_a + seen_b - k, wide_a + wide_b - k
    if not (finite_a and finite_b) or seen < TERMS_BF16 or (short_a and short_b):
        return False
    terms = seen if short_a or short_b else wide
    return terms >= TERMS_FP16 and max(cut_a, cut_b) <= seen // TERMS_A_CUT


def plan_of(
    live: Any, problem: Problem, call: GemmCall, exchanged: bool, parts: Sequence[Part]
) -> Plan | None:
    """Return the plan of a product of parts of A and B; None where single precision serves it."""
    if why_ieee(live, problem, call, "fp32"):
        return None
    a, b = (x._replace(address=0, exponents=0) for x in parts)
    return _laid_out(live, problem, b, a) if exchanged else _laid_out(live, problem, a, b)


def _laid_out(live: Any, problem: Problem, a: Part, b: Part) -> Plan:
    space, product = Space(), product_for(live, _SCHEME)
    x, y = (
        Parts(memory, one.stride, one.ld, trans, exponents // 4)
        for memory, one, trans, exponents in (
            (A, a, Trans.T if a.k_fast else Trans.N, VECTORS[0]),
            (B, b, Trans.N if b.k_fast else Trans.T, VECTORS[1]),
        )
    )
    m, n, k = problem.m, problem.n, problem.k
    steps = [
        product.step(live, Work(
            _SCHEME, m, n, k0, min(k0 + MOST_K, k), ALPHA.real, x, y,
            1.0 if k0 else BETA.real, Operand(C, 0, problem.ldc), 0, space.zero, 0,
        ))
        for k0 in range(0, k, MOST_K)
    ]  # fmt: skip
    return Plan(live, steps, space)


def _up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
