"""One product in parts, as a chain of launches on one queue.

Guarded ("fp32")::

    largest of A and B -> split into FP16, counting; its last block decides
          -> [route 2] split into BF16
          -> [route 1] products of FP16 parts   -> [route 2] products of BF16 parts
          -> [route 0] the IEEE kernel

Launches of the routes that were not taken return at once: the decision never leaves the
device.  A named scheme is the same chain without a choice.

Products of a batch have one chain, each pass and product a launch for all, with a decision each.

Where a triangle of a real product is all that is computed (`tilewright.serve.routes.rank_k`), B is
A, which is split once, and products are launches for tiles of the triangle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from tilewright.backend import GemmCall, LiveDevice
from tilewright.dataclass import dataclass
from tilewright.portfolio import Choice
from tilewright.problem import Problem, Trans
from tilewright.serve.arrange import Repeat
from tilewright.serve.decision import DECISION_WORDS
from tilewright.serve.kernels import begin_aligned, kernel_of, ready
from tilewright.serve.routes.split.decision import ROUTES
from tilewright.serve.routes.split.product import Parts, Work, product_for
from tilewright.serve.routes.split.promise import MOST_K
from tilewright.serve.scratch import TOPS
from tilewright.serve.steps import MemorySpace, Step
from tilewright.serve.tensor_cores import has_wgmma
from tilewright.serve.triangle import Piece
from tilewright.stencil import Launch, Source, Variant, stencil
from tilewright.stencil.geometry import PLAIN
from tilewright.stencil.split import SCHEMES, Scheme, Sources
from tilewright.stencil.split.scheme import part_bytes
from tilewright.stencil.split.sources import PARTS_OF_PRODUCT, Exponents, Operands, Stored
from tilewright.stencil.wgmma import BatchOfParts

__all__ = ["Chain", "ieee_choice", "ieee_of_tensor_cores", "ieee_source", "scratch_bytes"]

_i = np.int64  # as kernels take sizes and places

# TMA's rule for the start of an array and of each of its columns.
_ALIGNMENT = 16

# Of the kernel that serves products of a batch that are refused: the one of batches of that size.
_IEEE_TILE = (64, 64)


@dataclass(frozen=True)
class Chain:
    """The launches of one call."""

    live: LiveDevice
    scratch: MemorySpace
    problem: Problem  # in real numbers
    call: GemmCall
    arithmetic: str
    first: tuple[Step, ...] = ()  # what makes complex operands real
    blocks: tuple[Piece, ...] = ()  # what is computed of the result; all of it without them
    batch: Repeat = (1, 0, 0, 0)  # how many products, and elements from one to the next
    lower: bool | None = None  # which triangle of the result is all that is computed; B is A then

    # -- memory ----------------------------------------------------------------------------

    @cached_property
    def _operands(self) -> Operands:
        p = self.problem
        b = Stored(p.n, p.k, not p.trans_b.transposed)
        if self.lower is not None:
            b = Stored(0, 0, b.k_fast)
        return Operands(Stored(p.m, p.k, p.trans_a.transposed), b, self.batch[0])

    @property
    def _first_b(self) -> int:
        """Number of op(B)'s first column among the sides."""
        return self._operands.first_b if self.lower is None else 0

    def _transposed(self, scheme: Scheme) -> tuple[bool, bool]:
        """Whether parts of A and of B are stored in the other order than the operand."""
        wants = part_bytes(scheme.part) != 2 and product_for(self.live, scheme).k_fast
        return wants and not self._operands.a.k_fast, wants and not self._operands.b.k_fast

    @cached_property
    def _placed(self) -> dict[tuple[str, int], Parts]:
        return {}

    def _parts(self, scheme: Scheme, which: int) -> Parts:
        """Return where an operand's parts go; memory for any scheme of the chain is there."""
        key = scheme.name, which
        if key not in self._placed:
            self._placed[key] = self._place(scheme, which)
        return self._placed[key]

    def _place(self, scheme: Scheme, which: int) -> Parts:
        if which and self.lower is not None:
            a = self._parts(scheme, 0)
            return replace(a, trans=Trans.N if a.trans.transposed else Trans.T)
        stored = (self._operands.a, self._operands.b)[which]
        transposed = self._transposed(scheme)[which]
        k_fast = stored.k_fast or transposed
        trans = (Trans.T if k_fast else Trans.N) if which == 0 else Trans.N if k_fast else Trans.T
        first = self._operands.first_b if which else 0
        inner, outer = (stored.outer, stored.inner) if transposed else (stored.inner, stored.outer)
        unit = _ALIGNMENT // part_bytes(scheme.part)
        ld = -(-inner // unit) * unit
        stride = ld * outer
        many = self.batch[0]
        parts = scheme.parts if many == 1 else many * PARTS_OF_PRODUCT
        memory = self.scratch.need(f"parts {which}", parts * stride * part_bytes(scheme.part))
        return Parts(memory, stride, ld, trans, first)

    def _tops(self) -> Any:
        size = 4 * self.batch[0] * self._operands.words_of_tops
        return self.scratch.need(TOPS, size, zeroed=True)

    def _sides(self) -> Any:
        return self.scratch.need("sides", 4 * self.batch[0] * self._operands.words_of_sides)

    @property
    def _steps(self) -> tuple[np.int64, ...]:
        """What passes over a batch have as arguments besides."""
        many, step_a, step_b, _ = self.batch
        return () if many == 1 else (_i(step_a), _i(step_b))

    # -- steps -----------------------------------------------------------------------------

    def _step(self, source: Source, launch: Launch, arguments: tuple[Any, ...]) -> Step:
        return kernel_of(self.live, source), launch, arguments

    @cached_property
    def _matrices(self) -> tuple[Any, ...]:
        """The arguments of either pass that tell it where operands are."""
        placed, of = list[Any](), self._operands
        for stored, x in zip((of.a, of.b), (self.call.a, self.call.b), strict=True):
            placed += [_i(stored.inner), _i(stored.outer), x.memory, _i(x.offset), _i(x.ld)]
        return *placed, _i(self._first_b)

    def _largest(self, *, guarded: bool) -> Step:
        """Return the pass before the split; what the guard counts in is zero afterwards."""
        of = self._operands
        words = of.words_of_counts if guarded else 0
        arguments = (
            *self._matrices, self._tops(), self._sides(), _i(of.sides), _i(words), *self._steps,
        )  # fmt: skip
        return self._step(Sources(self.live.dialect).largest(of), of.launch, arguments)

    def _split(
        self,
        scheme: Scheme,
        exponents: Exponents,
        guard: tuple[Any, ...] = (),
        only_if: tuple[int, Any] | None = None,
    ) -> Step:
        """Return the pass that splits both operands.

        Parameters
        ----------
        scheme : Scheme
            Into which parts.
        exponents
            As of `Sources.split`.
        guard : tuple, optional
            What the guard needs besides to decide; nothing where it has nothing to say.
        only_if : tuple, optional
            A route, and memory with the decision that it waits for.
        """
        of = self._operands
        source = Sources(self.live.dialect).split(
            of,
            scheme,
            guarded=bool(guard),
            transposed=self._transposed(scheme),
            exponents=exponents,
            run_if=None if only_if is None else only_if[0],
        )
        parts = [self._parts(scheme, which) for which in (0, 1)]
        arguments = (
            *self._matrices,
            *(x for one in parts for x in (one.memory, _i(one.stride), _i(one.ld))),
            self._tops(), self._sides(), _i(of.sides), *guard, *self._steps,
        )  # fmt: skip
        if only_if is None:
            return self._step(source, of.second_launch, arguments)
        launch = of.small_launch(self.live.spec.multiprocessors)
        return self._step(source, launch, (*arguments, only_if[1]))

    def products(self, scheme: Scheme, run_if: Any, wanted: int) -> Iterator[Step]:
        """Yield the launches that multiply parts, piece by piece of k.

        Parameters
        ----------
        scheme : Scheme
            Whose parts.
        run_if, wanted
            As of `Work`.
        """
        p = self.problem
        multiply = product_for(self.live, scheme)
        a, b = self._parts(scheme, 0), self._parts(scheme, 1)
        for k0 in range(0, p.k, MOST_K):
            for one in self._pieces:
                work = Work(
                    scheme, one.rows, one.columns, k0, min(k0 + MOST_K, p.k),
                    float(complex(self.call.alpha).real),
                    a.behind(one.row, k_fast=a.trans.transposed),
                    b.behind(one.column, k_fast=not b.trans.transposed),
                    1.0 if k0 else float(complex(self.call.beta).real), one.c,
                    self._sides(), run_if, wanted, self._batch_of_parts, self.lower,
                )  # fmt: skip
                yield multiply.step(self.live, work)

    @property
    def _batch_of_parts(self) -> BatchOfParts | None:
        many, _, _, step_c = self.batch
        words = self._operands.words_of_sides
        if many == 1:
            return None
        return BatchOfParts(many, PARTS_OF_PRODUCT, step_c, words, DECISION_WORDS)

    @property
    def _pieces(self) -> tuple[Piece, ...]:
        p = self.problem
        return self.blocks or (Piece(0, 0, p.m, p.n, self.call.c),)

    def _ieee(self) -> Iterator[Step]:
        many, *steps = self.batch
        decision = self.decision
        if many > 1:
            chosen = ieee_choice(self.live, self.problem, self.call)
            assert chosen is not None  # whoever asked for one chain looked
            variant, p, family = Variant.of(self.problem), self.problem, chosen.stencil
            made = family.batched_arguments(
                chosen.config, variant, self.call, many, (steps[0], steps[1], steps[2])
            )
            source = ieee_source(chosen, variant, self.live.dialect)
            launch = chosen.geometry.batched(p.m, p.n, many)
            yield self._step(source, launch, (*made, decision, _i(DECISION_WORDS)))
            return
        for one in self._pieces:
            yield self.ieee(*one.of(self.problem, self.call))

    def ieee(self, problem: Problem, call: GemmCall) -> Step:
        """Return the kernel that computes what is refused: this product, or a block of it."""
        chosen, kernel = ready(self.live, problem, begin_aligned(call), routed=True)
        arguments = chosen.stencil.arguments(chosen.config, Variant.of(problem), call)
        return kernel, chosen.launch(problem), (*arguments, self.decision)

    @cached_property
    def decision(self) -> Any:
        """Memory whose first int is 0 where IEEE arithmetic serves, for who waits for that."""
        return self.scratch.need("decision", 4 * DECISION_WORDS * self.batch[0])

    def steps(self, report: Any = None) -> list[Step]:
        """Return all launches; `report` is where the decision is written once more, or None."""
        return [*self.by_parts(report), *(() if self.arithmetic in SCHEMES else self._ieee())]

    def by_parts(self, report: Any = None) -> list[Step]:
        """Return all launches but those of the IEEE kernel."""
        scheme = SCHEMES.get(self.arithmetic)
        if scheme is not None:
            return [
                *self.first,
                self._largest(guarded=False),
                self._split(scheme, "of tops"),
                *self.products(scheme, self.scratch.zero, 0),
            ]
        few, many = SCHEMES[ROUTES[1]], SCHEMES[ROUTES[2]]
        for which in (0, 1):  # the larger first: one piece of memory serves both
            self._parts(many, which)
        decision = self.decision
        if report is None:
            report = self.scratch.need("report", 4 * DECISION_WORDS)
        guard = (_i(self.problem.k), decision, report)
        return [
            *self.first,
            self._largest(guarded=True),
            self._split(few, "of tops", guard),
            self._split(many, "known", only_if=(2, decision)),
            *self.products(few, decision, 1),
            *self.products(many, decision, 2),
        ]


def scratch_bytes(problem: Problem) -> int:
    """Return about how much memory a chain takes for the parts of a product of a batch."""
    elements = (problem.m + problem.n) * problem.k
    return PARTS_OF_PRODUCT * part_bytes(SCHEMES[ROUTES[2]].part) * elements


def ieee_choice(live: LiveDevice, problem: Problem, call: GemmCall) -> Choice | None:
    """Return the kernel for what is refused of a batch, its machine code aside; None without one.

    With tensor cores it is one config for operands that are aligned, so that few are built.
    """
    variant = Variant.of(problem)
    if not has_wgmma(live):  # to measure the model: what runs on any device
        family = stencil("portable")
        return Choice(family, family.default(variant, live.spec))
    chosen = ieee_of_tensor_cores(variant)
    plain = begin_aligned(call) and chosen.geometry.mode(problem) == PLAIN
    return chosen if plain else None


@lru_cache(maxsize=16)
def ieee_of_tensor_cores(variant: Variant) -> Choice:
    """Return the kernel for what is refused of a batch, on a device with tensor cores."""
    family = stencil("simt_async")
    for config in family.batch_configs(variant):
        geometry = family.geometry(config)
        if (geometry.tile_m, geometry.tile_n) == _IEEE_TILE and not geometry.persistent:
            return Choice(family, config)
    raise ValueError(f"no config of {family.name} for batches has tiles of {_IEEE_TILE}")


def ieee_source(chosen: Choice, variant: Variant, dialect: Any) -> Source:
    """Return the source of an `ieee_choice`: each product has a word that says whether it runs."""
    one = chosen.stencil.source(chosen.config, variant, dialect, chosen.mode)
    return one.batched().run_if_zero()
