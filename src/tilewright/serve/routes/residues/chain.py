"""One product in residues, as a chain of launches on one queue.

::

    sample -> measure -> scales -> a bound in FP8 -> judge: how many moduli, or the native kernel
          -> [draw: a certificate's random numbers]
          -> residues -> their products [-> fold] -> reconstruct      of each tile of C, piece of k
          -> [certify] -> the native kernel

Where a triangle is all that is computed (`tilewright.serve.routes.rank_k`), B is A: what is
measured of A counts for both, and A's residues serve as B's (but of complex pairs' conjugates).
Bounds and products are launches for tiles of the triangle, and elements of it alone are judged and
put together.

Launches that are not wanted return at once: the decision never leaves the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tilewright.backend import GemmCall, LiveDevice, Operand
from tilewright.dataclass import dataclass
from tilewright.hardware import DeviceSpec
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.serve.kernels import begin_aligned, kernel_of, ready
from tilewright.serve.routes.residues.cuts import (
    ALIGNMENT,
    TILE,
    Cut,
    aligned,
    passes_of,
    workspace,
)
from tilewright.serve.routes.residues.options import PLAIN, Residues
from tilewright.serve.routes.residues.worth import best_cut, is_worth, least_bytes
from tilewright.serve.steps import Laid, MemorySpace, Step
from tilewright.serve.tensor_cores import has_wgmma, source_of, wgmma
from tilewright.serve.triangle import Triangle
from tilewright.serve.unproved import unproved_are_served
from tilewright.space import Config
from tilewright.stencil import Launch, Source, Stencil, Variant, stencil
from tilewright.stencil.asynchronous.folded import folded
from tilewright.stencil.geometry import Mode
from tilewright.stencil.residues.sources import MOST_K, REPORT_WORDS, Passes
from tilewright.stencil.wgmma import Arithmetic, Parts, TensorCall, TensorVariant

__all__ = [
    "BOUND",
    "CORE",
    "Chain",
    "chain_of",
    "native_source",
    "residue_steps",
    "tensor_config",
    "triangle_of",
    "why_native",
]

_i = np.int64  # as kernels take sizes and places

# What tensor cores compute: a bound of |A| |B|, and products of residues.
BOUND = TensorVariant(
    precision("s"), Trans.T, Trans.N, arithmetic=Arithmetic("float8_e5m2", "bfloat16")
)
CORE = TensorVariant(
    precision("s"), Trans.T, Trans.N, arithmetic=Arithmetic("int8", "residues", routed=True)
)


def why_native(
    live: LiveDevice, problem: Problem, call: GemmCall, asked: Residues = PLAIN, *,
    together: bool = False, triangle: Triangle | None = None,
) -> str:  # fmt: skip
    """Return why residues are out of the question; nothing if they are not.

    With `together` the product is one of a batch; with a triangle that alone is computed.
    """
    if problem.k == 0 or call.alpha == 0:
        return "there is nothing to multiply"
    if problem.k > MOST_K:
        return f"k={problem.k} is above {MOST_K}, up to which errors are bounded"
    cut = best_cut(live.spec, problem, asked, triangle is not None)
    if cut is None:
        least = least_bytes(problem, asked, triangle is not None)
        return f"residues take {least} bytes of workspace, and it has {asked.max_workspace}"
    if unproved_are_served():
        return ""
    if not has_wgmma(live):
        return f"{live.id} has no int8 tensor cores that are proved for residues"
    worth = is_worth(live, problem, call, cut, together, triangle is not None)
    return "" if worth else "the native kernel is faster at this size"


def residue_steps(
    live: LiveDevice, space: MemorySpace, problem: Problem, call: GemmCall, report: Any = None,
    asked: Residues = PLAIN,
) -> Laid:  # fmt: skip
    """Return the launches of a product in residues.

    Parameters are as of `lay_out`.
    """
    chain = chain_of(live, space, problem, call, asked)
    return Laid(list(chain.steps(report)), chain.name, chain.name, guarded=True)


def chain_of(
    live: LiveDevice, space: MemorySpace, problem: Problem, call: GemmCall,
    asked: Residues = PLAIN, triangle: Triangle | None = None,
) -> Chain:  # fmt: skip
    """Return the chain of a product, or of a triangle of it, which `why_native` does not refuse."""
    cut = best_cut(live.spec, problem, asked, triangle is not None)
    assert cut is not None  # or `why_native` says so
    return Chain(live, space, problem, call, cut, asked.certify, triangle)


def tensor_config(variant: TensorVariant, device: DeviceSpec) -> Config:
    """Return the config that serves `BOUND` or `CORE`, or a triangle of either."""
    whole = replace(variant, arithmetic=replace(variant.arithmetic, triangle=False))
    return wgmma().starts(whole, device)[0]


def triangle_of(variant: TensorVariant) -> TensorVariant:
    """Return the same of a triangle of C."""
    return replace(variant, arithmetic=replace(variant.arithmetic, triangle=True))


class _Part(NamedTuple):
    """A range of rows, columns or steps of k: how many come before it, and its size."""

    at: int
    size: int


def _parts(size: int, most: int) -> list[_Part]:
    return [_Part(at, min(most, size - at)) for at in range(0, size, most)]


@dataclass(frozen=True)
class Chain:
    """The launches of one call."""

    live: LiveDevice
    space: MemorySpace
    problem: Problem
    call: GemmCall
    cut: Cut
    certify: bool
    triangle: Triangle | None = None

    # Whether each plane's products are a launch of their own: that is slower (docs/ladder.md).
    _apart = False

    @property
    def name(self) -> str:
        """What it is called."""
        return "fp64" if self.problem.precision.parts == 1 else "accurate"

    @cached_property
    def _passes(self) -> Passes:
        """The passes over sides: A's alone, where B is A."""
        of = passes_of(self.problem)
        return replace(of, n=0) if self.triangle else of

    @property
    def _first_b(self) -> int:
        """Number of op(B)'s first column among the sides."""
        return 0 if self.triangle else self._passes.first_b

    # -- memory ----------------------------------------------------------------------------

    @cached_property
    def _sizes(self) -> dict[str, int]:
        return workspace(self.problem, self.cut, self.certify)

    def _need(self, *names: str) -> list[Any]:
        return [self.space.need(name, self._sizes[name]) for name in names]

    @cached_property
    def _is_one(self) -> bool:
        """Whether B's residues are A's.

        Those of a conjugate are the same two of each modulus, exchanged; but not of pairs, which
        have residues of the sum of both parts besides.
        """
        return self.triangle is not None and not (self._is_conjugated and self._passes.is_pair)

    @property
    def _is_conjugated(self) -> bool:
        """Whether one operand is conjugated, and the other is not."""
        return self.problem.trans_a.conjugated != self.problem.trans_b.conjugated

    @cached_property
    def _planes(self) -> tuple[Any, Any]:
        """Memory of both operands' residues."""
        (a,) = self._need("residues a")
        return a, a if self._is_one else self._need("residues b")[0]

    @property
    def _bytes(self) -> tuple[Any, Any]:
        """Memory of both operands' bytes for the bound, which come before their residues."""
        a, b = self._planes
        return a, a if self.triangle else b

    @cached_property
    def _product(self) -> Any:
        """Memory of a tile's residues; before, of its bound in 16 bits."""
        return self._need("residues c")[0]

    @cached_property
    def decision(self) -> Any:
        """Memory whose first int is not 0 where residues serve, for who holds others back."""
        return self._need("decision")[0]

    @cached_property
    def _whole(self) -> tuple[int, int]:
        """Sides of a plane of a tile's residues."""
        p, cut = self.problem, self.cut
        return -(-min(cut.m, p.m) // TILE) * TILE, -(-min(cut.n, p.n) // TILE) * TILE

    @cached_property
    def _tiles(self) -> list[tuple[_Part, _Part]]:
        p, cut = self.problem, self.cut
        return list(product(_parts(p.m, cut.m), _parts(p.n, cut.n)))

    def _matrices(self, rows: _Part, columns: _Part, ks: _Part) -> tuple[Any, ...]:
        """Return where parts of op(A) and op(B) are."""
        a, b, (a_along, b_along) = self.call.a, self.call.b, self._passes.k_fast

        def behind(x: Operand, side: int, along: bool) -> np.int64:
            return _i(x.offset + (side * x.ld + ks.at if along else side + ks.at * x.ld))

        return (
            _i(ks.size), _i(rows.size), a.memory, behind(a, rows.at, a_along), _i(a.ld),
            _i(columns.size), b.memory, behind(b, columns.at, b_along), _i(b.ld),
            _i(rows.at), _i(self._first_b + columns.at),
        )  # fmt: skip

    # -- steps -----------------------------------------------------------------------------

    def _step(self, source: Source, launch: Launch, *arguments: Any) -> Step:
        return kernel_of(self.live, source), launch, arguments

    def steps(self, report: Any) -> Iterator[Step]:
        """Yield all launches; `report` is where the decision is written once more, or None."""
        yield from self.by_residues(report)
        yield self.native(self.problem, self.call)

    def by_residues(self, report: Any) -> Iterator[Step]:
        """Yield all launches but that of what residues may not compute."""
        of, dialect, p = self._passes, self.live.dialect, self.problem
        yield from self._choice(report)
        sums = self._need("randoms", "certificate") if self.certify else []
        if sums:
            yield self._step(
                of.draw(dialect), of.draw_launch,
                _i(of.sides), sums[0], _i(of.sums_words), sums[1], report,
            )  # fmt: skip
        held: tuple[Any, Any] = None, None
        counted: set[Any] = set()
        for rows, columns in self._tiles:
            for ks in _parts(p.k, self.cut.k):
                wanted = ("a", rows, ks), ("b", columns, ks)
                fresh = [one != other for one, other in zip(wanted, held, strict=True)]
                fresh[1] &= not self._is_one
                first = [new and one not in counted for new, one in zip(fresh, wanted, strict=True)]
                held = wanted
                counted.update(wanted)
                if any(fresh):
                    m, n = (
                        part if new else _Part(part.at, 0)
                        for part, new in zip((rows, columns), fresh, strict=True)
                    )
                    yield self._residues(m, n, ks, sums, first[0] + 2 * first[1])
                yield from self._products(rows, columns, ks)
            yield self._reconstruct(rows, columns, sums)
        if sums:
            yield self._step(
                of.certify(dialect), of.certify_launch, _i(p.k), sums[1], self.decision, report
            )

    def _choice(self, report: Any) -> Iterator[Step]:
        """Yield the launches that choose the number of moduli, or the native kernel."""
        of, dialect, p, decision = self._passes, self.live.dialect, self.problem, self.decision
        (a, b), rows = self._bytes, self._whole[0]
        whole = _Part(0, p.m), _Part(0, of.n), _Part(0, p.k)
        partial, norms = self._need("partial norms", "norms")
        magnitudes, steps, units, places = self._need("magnitudes", "steps", "units", "places")
        all_, chunks, matrices = _i(of.sides), _i(of.chunks), self._matrices(*whole)
        yield self._step(of.sample(dialect), of.sample_launch, *matrices, units, places, decision)
        yield self._step(
            of.measure(dialect), of.measure_launch,
            *matrices, a, _i(0), b, _i(0), _i(aligned(p.k)), units, places, partial, all_, chunks,
        )  # fmt: skip
        yield self._step(
            of.scales(dialect), of.scales_launch,
            partial, all_, chunks, units, places, norms, magnitudes, steps, decision,
        )  # fmt: skip
        launches = [Passes(m.size, n.size, p.k).judge_launch for m, n in self._tiles]
        blocks = sum(one.grid[0] for one in launches)
        for (m, n), launch in zip(self._tiles, launches, strict=True):
            yield self._bound(m, n)
            yield self._step(
                of.judge(dialect), launch,
                _i(m.size), _i(n.size), self._product, _i(rows), magnitudes, steps, all_, _i(m.at),
                _i(self._first_b + n.at), self._part_of_c, np.float32(of.limit), _i(blocks),
                decision, decision if report is None else report,
            )  # fmt: skip

    def _bound(self, m: _Part, n: _Part) -> Step:
        """Return the product of the bound's bytes, of a tile."""
        p, of, (a, b), low = self.problem, self._passes, self._bytes, self._product
        rows, ld = self._whole[0], aligned(p.k)
        first = m.at * ld, n.at * ld
        if not has_wgmma(self.live):
            return self._step(
                of.multiply_bound(self.live.dialect), Passes(m.size, n.size, p.k).model_launch,
                _i(m.size), _i(n.size), _i(p.k), a, _i(first[0]), b, _i(first[1]), _i(ld), low,
                _i(rows),
            )  # fmt: skip
        variant = triangle_of(BOUND) if self.triangle else BOUND
        config = tensor_config(BOUND, self.live.spec)
        call = TensorCall(
            m.size, n.size, p.k, 1, Parts(a, first[0], ld), Parts(b, first[1], ld), 0,
            Operand(low, 0, rows), lower=self._lower,
        )  # fmt: skip
        return self._step(
            source_of(config, variant), self._launch(config, m.size, n.size, p.k),
            *wgmma().arguments(config, variant, call),
        )  # fmt: skip

    @property
    def _lower(self) -> bool | None:
        """Whether it is the lower triangle that is computed; None: all of C is."""
        return None if self.triangle is None else self.triangle.lower

    @property
    def _part_of_c(self) -> np.int32:
        """The part of C that is computed, as kernels have it (residues/tiles.h)."""
        return np.int32(0 if self.triangle is None else 1 if self.triangle.lower else -1)

    def _launch(self, config: Config, m: int, n: int, k: int) -> Launch:
        """Return the launch of tensor cores for tiles of all of C, or of a triangle."""
        sides = folded(wgmma().geometry(config), n) if self.triangle else (m, n)
        return wgmma().launch(config, *sides, k)

    def _residues(
        self, rows: _Part, columns: _Part, ks: _Part, sums: list[Any], counted: int
    ) -> Step:
        """Return the pass that makes residues of parts of both operands."""
        p, of, (a, b), ld = self.problem, self._passes, self._planes, aligned(self.cut.k)
        launched = replace(of, m=rows.size, n=columns.size, k=ks.size).planes_launch
        certificate = (*sums, _i(p.k), _i(ks.at), _i(counted)) if sums else ()
        return self._step(
            of.residues(self.live.dialect, bool(sums)), launched,
            *self._matrices(rows, columns, ks), a, _i(self._steps[0]), b, _i(self._steps[1]),
            _i(ld), *self._need("norms", "exponents"),
            _i(p.trans_a.conjugated + 2 * p.trans_b.conjugated), self.decision, *certificate,
        )  # fmt: skip

    def _products(self, m: _Part, n: _Part, ks: _Part) -> Iterator[Step]:
        """Yield the products of residues of a piece of k, added to those before."""
        of, made = self._passes, self._product
        to = self._need("residues of a piece")[0] if ks.at else made
        yield from self._multiplied(m, n, ks.size, to)
        if ks.at:
            stride = self._steps[2]
            yield self._step(
                of.fold(self.live.dialect), of.fold_launch(stride), made, to, _i(stride),
                self.decision,
            )  # fmt: skip

    @cached_property
    def _steps(self) -> tuple[int, int, int]:
        """Bytes from a plane of A's, of B's and of the product's residues to the next."""
        rows, columns = self._whole
        ld = aligned(self.cut.k)
        return self.cut.m * ld, self.cut.n * ld, rows * columns

    @property
    def _config(self) -> Config:
        """What multiplies residues."""
        return tensor_config(CORE, self.live.spec)

    def _multiplied(self, rows: _Part, columns: _Part, k: int, to: Any) -> Iterator[Step]:
        """Yield the products of residues of a piece of k."""
        of, (a, b), across, ld = self._passes, self._planes, self._whole[0], aligned(self.cut.k)
        m, n = rows.size, columns.size
        exchanged = self._is_one and self._is_conjugated
        if not has_wgmma(self.live):
            yield self._step(
                of.multiply(self.live.dialect), Passes(m, n, k).model_launch,
                _i(m), _i(n), _i(k), a, _i(self._steps[0]), b, _i(self._steps[1]),
                np.int32(exchanged), _i(ld), to, _i(self._steps[2]), _i(across), self.decision,
            )  # fmt: skip
            return
        config, together = self._config, 1 if self._apart else of.planes
        variant = triangle_of(CORE) if self.triangle else CORE
        launch = replace(self._launch(config, m, n, k), batch=together)
        for z in range(0, of.planes, together):
            behind_a, behind_b, behind_c = (z * step for step in self._steps)
            # What is no modulus of this call is zero, and says that nothing is wanted.
            modulus = self.decision + 4 * (REPORT_WORDS + 2 * z)
            call = TensorCall(
                m, n, k, 1, Parts(a, behind_a, ld), Parts(b, behind_b, ld), 0,
                Operand(to, behind_c, across), moduli=modulus, lower=self._lower,
                exchanged=exchanged, run_if=self.decision if together > 1 else modulus,
            )  # fmt: skip
            yield self._step(
                source_of(config, variant), launch,
                *wgmma().batched_arguments(config, variant, call, together, self._steps),
            )  # fmt: skip

    def _reconstruct(self, m: _Part, n: _Part, sums: list[Any]) -> Step:
        """Return the pass that puts a tile of C together."""
        p, of, (rows, columns), c = self.problem, self._passes, self._whole, self.call.c
        alpha, beta = (p.precision.scalar(x) for x in (self.call.alpha, self.call.beta))
        parts = 2 if p.precision.is_complex else 1
        launched = replace(of, m=m.size, n=n.size).reconstruct_launch
        hermitian = [np.int32(self.triangle is not None and self.triangle.hermitian)]
        return self._step(
            of.reconstruct(self.live.dialect, bool(sums)), launched,
            _i(m.size), _i(n.size), self._product, _i(rows * columns), _i(rows),
            *self._need("exponents"), _i(m.at), _i(self._first_b + n.at), self._part_of_c,
            *hermitian[: parts - 1], *alpha[:parts], *beta[:parts], c.memory,
            _i(c.offset + m.at + n.at * c.ld), _i(c.ld), self.decision,
            *sums, *([_i(of.totals_at)] if sums else []),
        )  # fmt: skip

    def native(self, p: Problem, call: GemmCall) -> Step:
        """Return the kernel that computes what residues may not: this product, or a block of it."""
        variant = Variant.of(p)
        if has_wgmma(self.live):
            config, family = _native(variant, self.live.spec)
            scalar = family.geometry(config).mode(p).scalar or not begin_aligned(call)
            kernel = kernel_of(self.live, native_source(variant, self.live.spec, scalar))
            launch = family.launch(config, p.m, p.n, p.k)
        else:
            chosen, kernel = ready(self.live, p, begin_aligned(call), routed=True)
            config, family, launch = chosen.config, chosen.stencil, chosen.launch(p)
        return kernel, launch, (*family.arguments(config, variant, call), self.decision)


@lru_cache(maxsize=64)
def _native(variant: Variant, device: DeviceSpec) -> tuple[Config, Stencil]:
    """Return the config that computes what residues may not, and its stencil."""
    of = variant.precision
    pairs = "portable" if of.is_complex else "simt_async"
    family = stencil("mma_f64" if of.parts == 1 else pairs)
    return family.default(variant, device), family


def native_source(variant: Variant, device: DeviceSpec, scalar: bool = False) -> Source:
    """Return the native kernel that runs where the decision is for it.

    Parameters
    ----------
    variant : Variant
        What it computes.
    device : DeviceSpec
        Where.
    scalar : bool
        Whether it copies single elements: where columns are not aligned.  Those of 16 bytes are.
    """
    config, family = _native(variant, device)
    mode = Mode(scalar=scalar and variant.precision.element_bytes < ALIGNMENT)
    made = family.source(config, variant, "cuda", mode).run_if_zero()
    # The portable stencil's sources have no unit, as no other portfolio holds machine code of them.
    return made if made.unit else replace(made, unit=f"{family.name} {family.version}")
