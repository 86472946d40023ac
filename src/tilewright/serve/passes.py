"""Every source that a call may launch beside the kernels of S, D, C, Z and double-double GEMM.

Copies of operands and of triangles, the passes of ``accuracy="fp32"`` and ``"fp64"`` and of
double-double, their products, and what LU factorisations launch: what the portfolio ``passes``
holds, so that none of them is compiled where it serves.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from tilewright.hardware import DeviceSpec
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.serve.routes.masked import TRIANGLES
from tilewright.serve.routes.residues.chain import (
    BOUND,
    CORE,
    native_source,
    tensor_config,
    triangle_of,
)
from tilewright.serve.routes.residues.cuts import passes_of
from tilewright.serve.routes.split.chain import ieee_of_tensor_cores, ieee_source
from tilewright.serve.routes.split.product import arithmetic_of_scheme
from tilewright.serve.tensor_cores import wgmma
from tilewright.stencil import Source, Variant
from tilewright.stencil.asynchronous.realign import Realigned
from tilewright.stencil.asynchronous.triangle import MovedTriangle
from tilewright.stencil.lu import LUKernels
from tilewright.stencil.split import SCHEMES, Sources
from tilewright.stencil.split.sources import Operands, Stored
from tilewright.stencil.wgmma import Arithmetic, TensorVariant, of_triangle

__all__ = ["sources"]

_ROUTES = ("fp16x3", "bf16x6")  # of "fp32"
_FOLLOWED = (
    Arithmetic("float16", "float16", epilogue=True),
    Arithmetic("bfloat16", "bfloat16", epilogue=True),
    Arithmetic("float8_e4m3fn", "bfloat16", epilogue=True),
    Arithmetic("int8", "bfloat16", epilogue=True),
)


def sources(device: DeviceSpec) -> Iterator[tuple[str, Source]]:
    """Yield what each source is, and the source; `device` has Hopper's tensor cores."""
    yield from (("copies", one) for one in _copies())
    yield from (("splits", one) for one in (*_splits(1), *_expansions()))
    yield from (("splits of batches", one) for one in _splits(2))
    yield from (("triangles", one) for one in _triangles())
    yield from (("residues", one) for one in _residues())
    for variant in (BOUND, CORE, triangle_of(BOUND), triangle_of(CORE)):
        config = tensor_config(variant, device)
        yield f"residues {config.id}", wgmma().source(config, variant, "cuda")
    yield from (("residues native", one) for one in _native(device))
    yield from _factorisations()
    for made in _FOLLOWED:
        yield from _products(device, f"{made.element} {made.result} epilogue", made, 0)
    for letter in TRIANGLES:
        made = of_triangle(precision(letter))
        yield from _products(device, f"{made.element} {made.result} triangle", made, 0)
    yield from (("fp32 batches", one) for one in _ieee_of_batches())
    for name in _ROUTES:
        scheme = SCHEMES[name]
        made = arithmetic_of_scheme(scheme)
        yield from _products(device, name, made, scheme.promote_k)
        of = replace(made, triangle=True)
        yield from _products(device, f"{name} triangle", of, scheme.promote_k)


def _copies() -> Iterator[Source]:
    for size, transposed, batch in itertools.product((1, 2, 4, 8, 16), (False, True), (1, 2)):
        yield Realigned(size, 1, 1, transposed, batch=batch).source("cuda")
        if transposed and size >= 8:
            yield Realigned(size, 1, 1, transposed, True, batch).source("cuda")


def _triangles() -> Iterator[Source]:
    for size in (2, 4, 8, 16, 32):
        for mirrored in (False, True):
            yield MovedTriangle(size, mirrored).source("cuda")
            if size >= 8:
                yield MovedTriangle(size, mirrored, True).source("cuda")
    # Of what guards refuse: float32, float64, complex128 and double-double.
    for size, hermitian in (
        (4, False), (8, False), (16, False), (16, True), (32, False), (32, True),
    ):  # fmt: skip
        yield MovedTriangle(size, False, hermitian).source("cuda").run_if_zero()


def _factorisations() -> Iterator[tuple[str, Source]]:
    for letter in "sdcz":
        kernels = LUKernels(precision(letter))
        yield from ((f"LU {letter}", one) for one in kernels.sources())
    yield "LU", kernels.order()


def _splits(products: int) -> Iterator[Source]:
    sources = Sources("cuda")
    few, many = (SCHEMES[name] for name in _ROUTES)
    for a, b in itertools.product((False, True), repeat=2):
        of = Operands(Stored(1, 1, a), Stored(1, 1, b), products)
        yield sources.largest(of)
        yield sources.split(of, few, guarded=True)
        yield sources.split(of, many, exponents="known", run_if=2)


def _expansions() -> Iterator[Source]:
    sources = Sources("cuda")
    for op, other in itertools.product(Trans, (Trans.N, Trans.R)):
        yield sources.expand(op, wide=True, other=other)
    yield sources.expand(Trans.T, wide=False)


def _ieee_of_batches() -> Iterator[Source]:
    for ops in itertools.product((Trans.N, Trans.T), repeat=2):
        variant = Variant(precision("s"), *ops)
        yield ieee_source(ieee_of_tensor_cores(variant), variant, "cuda")


def _residues() -> Iterator[Source]:
    for letter in "dzew":
        certified = (False, True)[: 1 + (letter in "dz")]
        for a, b in itertools.product((False, True), repeat=2):
            of = replace(passes_of(Problem(1, 1, 1, precision(letter))), k_fast=(a, b))
            yield from (of.sample("cuda"), of.measure("cuda"))
            yield from (of.residues("cuda", certify) for certify in certified)
        yield from (of.scales("cuda"), of.judge("cuda"), of.fold("cuda"))
        yield from (of.reconstruct("cuda", certify) for certify in certified)
        if True in certified:
            yield from (of.draw("cuda"), of.certify("cuda"))


def _native(device: DeviceSpec) -> Iterator[Source]:
    real = Trans.N, Trans.T
    for letter in "dzew":
        operations = tuple(Trans) if precision(letter).is_complex else real
        for ops in itertools.product(operations, repeat=2):
            for scalar in (False, True)[: 1 + (letter == "d")]:
                yield native_source(Variant(precision(letter), *ops), device, scalar)


def _products(
    device: DeviceSpec, name: str, made: Arithmetic, promote_k: int
) -> Iterator[tuple[str, Source]]:
    """Yield the tensor-core kernels that may serve an arithmetic, for all orders of operands.

    What is unpacked together is a config in all orders: these differ little, and a call has one.
    """
    family = wgmma()
    orders = (Trans.T, Trans.N) if made.either_order else (Trans.T,)
    for a, b in itertools.product(orders, orders):
        if made.triangle and a != b:  # of a matrix and its own transpose
            continue
        other = Trans.N if b.transposed else Trans.T  # B contiguous along k is not transposed
        variant = TensorVariant(precision("s"), a, other, arithmetic=made)
        space = family.space(variant, device)
        for config in family.starts(variant, device):
            often = not promote_k or 0 < config.integer("promote_k") <= promote_k
            if config in space and often:
                yield f"{name} {config.id}", family.source(config, variant, "cuda")
                if made.routed and not made.triangle:
                    batch = family.source_for_batch_of_parts(config, variant)
                    yield f"{name} batches {config.id}", batch
