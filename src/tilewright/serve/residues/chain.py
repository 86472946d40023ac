"""One product in residues, as a chain of launches on one queue.

::

    sample -> measure -> scales -> a bound in FP8 -> judge: how many moduli, or the native kernel
          -> residues -> their products -> reconstruct
          -> the native kernel

Launches that are not wanted return at once: the decision never leaves the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from tilewright.backend import GemmCall, LiveDevice, Operand
from tilewright.dataclass import dataclass
from tilewright.hardware import DeviceSpec
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.serve.kernels import begin_aligned, kernel_of, ready
from tilewright.serve.routes import Laid, MemorySpace, Step
from tilewright.serve.split.product import unproved_are_served
from tilewright.serve.tensor_cores import has_wgmma, source_of, wgmma
from tilewright.space import Config
from tilewright.stencil import Launch, Source, Stencil, Variant, stencil
from tilewright.stencil.residues.sources import (
    DECISION_WORDS,
    MOST_K,
    REPORT_WORDS,
    Passes,
)
from tilewright.stencil.wgmma import Arithmetic, Parts, TensorCall, TensorVariant

__all__ = ["BOUND", "CORE", "native_source", "residue_steps", "tensor_config", "why_native"]

# What tensor cores compute: a bound of |A| |B|, and products of residues.
BOUND = TensorVariant(
    precision("s"), Trans.T, Trans.N, arithmetic=Arithmetic("float8_e5m2", "bfloat16")
)
CORE = TensorVariant(
    precision("s"), Trans.T, Trans.N, arithmetic=Arithmetic("int8", "residues", routed=True)
)

# Planes of residues of the product begin and end with whole tiles of any config.
_TILE = 256

# The copy engine's rule for columns.
_ALIGNMENT = 16


def why_native(live: LiveDevice, problem: Problem, call: GemmCall) -> str:
    """Return why residues are out of the question; nothing if they are not."""
    if problem.k == 0 or call.alpha == 0:
        return "there is nothing to multiply"
    if problem.k > MOST_K:
        return f"k={problem.k} is above {MOST_K}, where sums of products of residues overflow"
    if unproved_are_served():
        return ""
    if not has_wgmma(live):
        return f"{live.id} has no int8 tensor cores that are proved for residues"
    config, family = _native(Variant.of(problem), live.spec)
    if not begin_aligned(call) or family.geometry(config).mode(problem).scalar:
        return "operands or their columns are not aligned to 16 bytes"
    from tilewright.serve.residues.worth import is_worth

    return "" if is_worth(live, problem, call) else "the native kernel is faster at this size"


def residue_steps(
    live: LiveDevice, space: MemorySpace, problem: Problem, call: GemmCall, report: Any = None
) -> Laid:
    """Return the launches of a product in residues; parameters as of `routes.lay_out`."""
    steps = _Chain(live, space, problem, call).steps(report)
    return Laid(list(steps), "fp64", "fp64", guarded=True)


def tensor_config(variant: TensorVariant, device: DeviceSpec) -> Config:
    """Return the config that serves `BOUND` or `CORE`."""
    return wgmma().starts(variant, device)[0]


@dataclass(frozen=True)
class _Chain:
    """The launches of one call."""

    live: LiveDevice
    space: MemorySpace
    problem: Problem
    call: GemmCall

    @cached_property
    def _passes(self) -> Passes:
        p = self.problem
        return Passes(p.m, p.n, p.k, Variant.of(p).k_fast, p.precision.is_complex)

    # -- memory ----------------------------------------------------------------------------

    @cached_property
    def _ld(self) -> int:
        return -(-self.problem.k // _ALIGNMENT) * _ALIGNMENT

    @cached_property
    def _whole(self) -> tuple[int, int]:
        """Sides of a plane of the product's residues."""
        p = self.problem
        return -(-p.m // _TILE) * _TILE, -(-p.n // _TILE) * _TILE

    @cached_property
    def _planes(self) -> tuple[Any, Any]:
        """Memory of both operands' residues; before, of the bound's bytes."""
        p, many = self.problem, self._passes.planes
        return (
            self.space.need("residues a", many * p.m * self._ld),
            self.space.need("residues b", many * p.n * self._ld),
        )

    @cached_property
    def _product(self) -> Any:
        """Memory of the product's residues; before, of the bound in 16 bits."""
        rows, columns = self._whole
        return self.space.need("residues c", self._passes.planes * rows * columns)

    @cached_property
    def _decision(self) -> Any:
        return self.space.need("decision", 4 * DECISION_WORDS)

    def _sides(self, name: str, size: int) -> Any:
        return self.space.need(name, size * self._passes.sides)

    @cached_property
    def _matrices(self) -> tuple[Any, ...]:
        p, (a, b) = self.problem, (self.call.a, self.call.b)
        return (
            _i(p.k), _i(p.m), a.memory, _i(a.offset), _i(a.ld), _i(p.n), b.memory, _i(b.offset),
            _i(b.ld), _i(self._passes.first_b),
        )  # fmt: skip

    # -- steps -----------------------------------------------------------------------------

    def _step(self, source: Source, launch: Launch, *arguments: Any) -> Step:
        return kernel_of(self.live, source), launch, arguments

    def steps(self, report: Any) -> Iterator[Step]:
        """Yield all launches; `report` is where the decision is written once more, or None."""
        of, dialect, p = self._passes, self.live.dialect, self.problem
        (a, b), c, decision = self._planes, self._product, self._decision
        partial = self.space.need("partial norms", 16 * of.chunks * of.sides)
        norms, exponents = self._sides("norms", 8), self._sides("exponents", 4)
        magnitudes, steps = self._sides("magnitudes", 4), self._sides("steps", 4)
        units, places = self._sides("units", 4), self._sides("places", 4)
        all_, chunks, first_b, ld = map(_i, (of.sides, of.chunks, of.first_b, self._ld))
        rows, columns = self._whole
        yield self._step(
            of.sample(dialect), of.sample_launch, *self._matrices, units, places, decision
        )
        yield self._step(
            of.measure(dialect), of.measure_launch,
            *self._matrices, a, _i(0), b, _i(0), ld, units, places, partial, all_, chunks,
        )  # fmt: skip
        yield self._step(
            of.scales(dialect), of.scales_launch,
            partial, all_, chunks, units, places, norms, magnitudes, steps, decision,
        )  # fmt: skip
        yield self._bound()
        yield self._step(
            of.judge(dialect), of.judge_launch,
            _i(p.m), _i(p.n), c, _i(rows), magnitudes, steps, first_b, np.float32(of.limit),
            decision, decision if report is None else report,
        )  # fmt: skip
        yield self._step(
            of.residues(dialect), of.planes_launch,
            *self._matrices, a, _i(p.m * self._ld), b, _i(p.n * self._ld), ld, norms, exponents,
            _i(p.trans_a.conjugated + 2 * p.trans_b.conjugated), decision,
        )  # fmt: skip
        yield self._products()
        alpha, beta = (p.precision.scalar(x) for x in (self.call.alpha, self.call.beta))
        parts = of.moduli.planes  # of a scalar, too
        yield self._step(
            of.reconstruct(dialect), of.reconstruct_launch,
            _i(p.m), _i(p.n), c, _i(rows * columns), _i(rows), exponents, first_b,
            *alpha[:parts], *beta[:parts],
            self.call.c.memory, _i(self.call.c.offset), _i(self.call.c.ld), decision,
        )  # fmt: skip
        yield self._native()

    def _bound(self) -> Step:
        """Return the product of the bound's bytes."""
        p, of, (a, b), low = self.problem, self._passes, self._planes, self._product
        rows, _ = self._whole
        if not has_wgmma(self.live):
            return self._step(
                of.multiply_bound(self.live.dialect), of.model_launch,
                _i(p.m), _i(p.n), _i(p.k), a, b, _i(self._ld), low, _i(rows),
            )  # fmt: skip
        config = tensor_config(BOUND, self.live.spec)
        call = TensorCall(
            p.m, p.n, p.k, 1, Parts(a, 0, self._ld), Parts(b, 0, self._ld), 0, Operand(low, 0, rows)
        )
        return self._step(
            source_of(config, BOUND), wgmma().launch(config, p.m, p.n, p.k),
            *wgmma().arguments(config, BOUND, call),
        )  # fmt: skip

    def _products(self) -> Step:
        """Return the products of residues."""
        p, of, (a, b), made = self.problem, self._passes, self._planes, self._product
        rows, columns = self._whole
        steps = p.m * self._ld, p.n * self._ld, rows * columns
        if not has_wgmma(self.live):
            return self._step(
                of.multiply(self.live.dialect), of.model_launch,
                _i(p.m), _i(p.n), _i(p.k), a, _i(steps[0]), b, _i(steps[1]), _i(self._ld),
                made, _i(steps[2]), _i(rows), self._decision,
            )  # fmt: skip
        config = tensor_config(CORE, self.live.spec)
        call = TensorCall(
            p.m, p.n, p.k, 1, Parts(a, 0, self._ld), Parts(b, 0, self._ld), 0,
            Operand(made, 0, rows), run_if=self._decision,
            moduli=self._decision + 4 * REPORT_WORDS,
        )  # fmt: skip
        launch = replace(wgmma().launch(config, p.m, p.n, p.k), batch=of.planes)
        return self._step(
            source_of(config, CORE), launch,
            *wgmma().batched_arguments(config, CORE, call, of.planes, steps),
        )  # fmt: skip

    def _native(self) -> Step:
        """Return the kernel that computes what residues may not."""
        p, variant = self.problem, Variant.of(self.problem)
        if has_wgmma(self.live):
            config, family = _native(variant, self.live.spec)
            kernel = kernel_of(self.live, native_source(variant, self.live.spec))
            launch = family.launch(config, p.m, p.n, p.k)
        else:
            chosen, kernel = ready(self.live, p, begin_aligned(self.call), routed=True)
            config, family, launch = chosen.config, chosen.stencil, chosen.launch(p)
        return kernel, launch, (*family.arguments(config, variant, self.call), self._decision)


@lru_cache(maxsize=64)
def _native(variant: Variant, device: DeviceSpec) -> tuple[Config, Stencil]:
    """Return the config that computes what residues may not, and its stencil."""
    family = stencil("mma_f64")
    return family.default(variant, device), family


def native_source(variant: Variant, device: DeviceSpec) -> Source:
    """Return the native kernel that runs where the decision is for it."""
    config, family = _native(variant, device)
    return family.source(config, variant, "cuda").run_if(0)


def _i(number: int) -> np.int64:
    return np.int64(number)
