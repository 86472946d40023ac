"""Who multiplies parts: the seam for stencils on tensor cores.

A product takes operands in parts, as `tilewright.stencil.split` leaves them in device memory,
and adds up the scheme's products.  The first of `products()` that serves a scheme on a device
is used: a stencil for tensor cores comes before the model, which runs everywhere, slowly.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar, Protocol

import numpy as np

from tilewright.backend import LiveDevice, Operand
from tilewright.dataclass import dataclass
from tilewright.hardware import DeviceSpec
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.serve.kernels import kernel_of
from tilewright.serve.routes.split.promise import is_compensated
from tilewright.serve.steps import Step
from tilewright.serve.tensor_cores import config_for, has_wgmma, source_of, source_of_batch, wgmma
from tilewright.stencil.asynchronous.folded import folded
from tilewright.stencil.split import Scheme, Sources
from tilewright.stencil.wgmma import Arithmetic, BatchOfParts, TensorCall, TensorVariant
from tilewright.stencil.wgmma import Parts as WgmmaParts
from tilewright.stencil.wgmma.arithmetic import Element

__all__ = [
    "HopperProduct",
    "ModelProduct",
    "Parts",
    "Product",
    "Work",
    "arithmetic_of_scheme",
    "is_proved",
    "product_for",
]


@dataclass(frozen=True)
class Parts:
    """An operand in parts.

    Parameters
    ----------
    memory : object
        The backend's handle; part 0 begins there, aligned to 16 bytes.
    stride, ld : int
        Elements from a part to the next, and between columns; multiples of 16 bytes.
    trans : Trans
        What is done to the parts as they are stored.
    first_exponent : int
        Where the operand's exponents begin among the sides' numbers.
    offset : int
        Elements before part 0, a multiple of 16 bytes.
    """

    memory: Any
    stride: int
    ld: int
    trans: Trans
    first_exponent: int
    offset: int = 0

    def behind(self, side: int, *, k_fast: bool) -> Parts:
        """Return what is behind so many rows of op(A), or columns of op(B), as stored."""
        first, offset = self.first_exponent + side, side * (self.ld if k_fast else 1)
        return Parts(self.memory, self.stride, self.ld, self.trans, first, self.offset + offset)


@dataclass(frozen=True)
class Work:
    """C <- alpha 2^(exponents) sum of products of parts + beta C, for k from k0 to k1.

    Parameters
    ----------
    scheme : Scheme
        Which products.
    m, n, k0, k1 : int
        Sizes, and the piece of k.
    alpha, beta : float
        Scalars.
    a, b : Parts
        Operands.
    c : Operand
        In float32.
    sides : object
        Memory with the sides' numbers, exponents among them (guard.h).
    run_if, wanted
        Memory whose first int has to be `wanted`, or nothing happens.
    batch : BatchOfParts, optional
        How often all of it is repeated, each product as an int of its own says.
    lower : bool, optional
        Where one triangle of a square C is all that is computed: which.
    """

    scheme: Scheme
    m: int
    n: int
    k0: int
    k1: int
    alpha: float
    a: Parts
    b: Parts
    beta: float
    c: Operand
    sides: Any
    run_if: Any
    wanted: int
    batch: BatchOfParts | None = None
    lower: bool | None = None

    def is_compensated(self, device: DeviceSpec) -> bool:
        """Whether its sums make up for the roundings of their promotions; see `promise`."""
        products = self.batch.products if self.batch else 1
        return is_compensated(self.scheme, self.m, self.n, device, products)


class Product(Protocol):
    """What multiplies parts."""

    @property
    def k_fast(self) -> bool:
        """Whether it wants parts of more or less than 16 bits contiguous along k."""

    def serves(self, live: LiveDevice, scheme: Scheme) -> bool:
        """Whether it computes this scheme on this device."""

    def is_proved(self, live: LiveDevice, scheme: Scheme) -> bool:
        """Whether it was shown on such a device to be right, and fast."""

    def step(self, live: LiveDevice, work: Work) -> Step:
        """Return the launch that does the work."""


@dataclass(frozen=True)
class ModelProduct:
    """The model of a tensor core: right everywhere, fast nowhere."""

    k_fast: ClassVar[bool] = False

    def serves(self, live: LiveDevice, scheme: Scheme) -> bool:
        """Every device runs it."""
        return True

    def is_proved(self, live: LiveDevice, scheme: Scheme) -> bool:
        """Never: it is no faster than IEEE arithmetic anywhere."""
        return False

    def step(self, live: LiveDevice, work: Work) -> Step:
        """Return the launch of model.cl."""
        sources = Sources(live.dialect)
        whole, real = np.int64, np.float32

        def operand(parts: Parts, k_fast: bool) -> tuple[Any, ...]:
            begin = parts.offset + work.k0 * (1 if k_fast else parts.ld)
            return parts.memory, whole(begin), whole(parts.stride), whole(parts.ld)

        of, launch = work.batch, sources.model_launch(work.m, work.n)
        steps: tuple[Any, ...] = ()
        if of is not None:
            launch = replace(launch, batch=of.products)
            parts = (of.step_parts * x.stride for x in (work.a, work.b))
            steps = tuple(map(whole, (*parts, of.step_c, of.step_exponents, of.step_run_if)))
        triangle = np.int32(0 if work.lower is None else 1 if work.lower else -1)
        source = sources.model(
            work.scheme, work.a.trans, work.b.trans,
            compensated=work.is_compensated(live.spec), batched=of is not None,
        )  # fmt: skip
        return (
            kernel_of(live, source),
            launch,
            (
                *map(whole, (work.m, work.n, work.k1 - work.k0)), real(work.alpha),
                *operand(work.a, work.a.trans.transposed),
                *operand(work.b, not work.b.trans.transposed),
                work.sides, whole(work.a.first_exponent), whole(work.b.first_exponent),
                real(work.beta), work.c.memory, whole(work.c.offset), whole(work.c.ld),
                work.run_if, np.int32(work.wanted), triangle, *steps,
            ),
        )  # fmt: skip


# What "fp32" uses.  At 4096 on random normal numbers eta was 7.0e-8 of fp16x3 and 6.7e-8 of bf16x6
# against 3.9e-7 of SGEMM (H100, 2026-11-21).
_PROVED = ("fp16x3", "bf16x6")


@dataclass(frozen=True)
class HopperProduct:
    """The tensor-core stencil of Hopper."""

    k_fast: ClassVar[bool] = True

    def serves(self, live: LiveDevice, scheme: Scheme) -> bool:
        """Hopper through CUDA runs it."""
        return has_wgmma(live)

    def is_proved(self, live: LiveDevice, scheme: Scheme) -> bool:
        """Those that ran on an H100: bit for bit on integers, errors on random numbers below."""
        return scheme.name in _PROVED and self.serves(live, scheme)

    def step(self, live: LiveDevice, work: Work) -> Step:
        """Return the launch of a config that promotes as the promise needs it, by size."""
        family, made = wgmma(), arithmetic_of_scheme(work.scheme)
        made = replace(made, triangle=work.lower is not None)
        variant = TensorVariant(precision("s"), work.a.trans, work.b.trans, arithmetic=made)
        config = config_for(
            variant, live.spec, work.m, work.n, work.k1 - work.k0, work.scheme.promote_k,
            work.is_compensated(live.spec), work.batch.products if work.batch else 1,
        )  # fmt: skip

        def operand(parts: Parts, k_fast: bool) -> WgmmaParts:
            begin = parts.offset + work.k0 * (1 if k_fast else parts.ld)
            return WgmmaParts(parts.memory, begin, parts.ld, parts.stride)

        exponents_a, exponents_b = (work.sides + 4 * x.first_exponent for x in (work.a, work.b))
        call = TensorCall(
            work.m, work.n, work.k1 - work.k0, work.alpha,
            operand(work.a, work.a.trans.transposed), operand(work.b, not work.b.trans.transposed),
            work.beta, work.c, exponents_a, exponents_b, work.run_if, work.wanted, lower=work.lower,
        )  # fmt: skip
        if work.batch is not None:
            source = source_of_batch(config, variant)
            launched = family.launch_of_batch_of_parts(config, variant, call, work.batch)
            return kernel_of(live, source), *launched
        sides = work.m, work.n
        if made.triangle:
            sides = folded(family.geometry(config), work.n)
        return (
            kernel_of(live, source_of(config, variant)),
            family.launch(config, *sides),
            family.arguments(config, variant, call),
        )


@lru_cache(maxsize=16)
def arithmetic_of_scheme(scheme: Scheme) -> Arithmetic:
    """Return a scheme as the stencil knows it: scaled, though by nothing, and routed."""
    element: Element = {"fp16": "float16", "bf16": "bfloat16", "tf32": "tf32"}[scheme.part]  # type: ignore[assignment]
    return Arithmetic(element, products=scheme.products, scaled=True, routed=True)


# A stencil for tensor cores goes before the model.
_PRODUCTS: tuple[Product, ...] = (HopperProduct(), ModelProduct())


def product_for(live: LiveDevice, scheme: Scheme) -> Product:
    """Return what computes a scheme on a device."""
    return next(one for one in _PRODUCTS if one.serves(live, scheme))


def is_proved(live: LiveDevice, scheme: Scheme) -> bool:
    """Whether what computes a scheme on a device was proved there."""
    return product_for(live, scheme).is_proved(live, scheme)
