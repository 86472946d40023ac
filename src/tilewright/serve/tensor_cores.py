"""Where tensor cores are, and which config serves what their portfolio ``passes`` is for.

Products in parts, with an epilogue, and of which one triangle is wanted.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.hardware import DeviceSpec
from tilewright.portfolio.choose import fastest
from tilewright.portfolio.find import shipped_for
from tilewright.portfolio.held import Held, held_of
from tilewright.problem import Problem, Trans
from tilewright.space import Config
from tilewright.stencil import Source, Variant, stencil
from tilewright.stencil.asynchronous.folded import folded_problem
from tilewright.stencil.asynchronous.realign import aligned_ld
from tilewright.stencil.geometry import MOST_PLACES, MOST_STRIDE
from tilewright.stencil.wgmma import Arithmetic, TensorVariant, Wgmma, operands_of

__all__ = [
    "config_for",
    "config_for_triangle",
    "expected_ns",
    "has_wgmma",
    "reads",
    "source_of",
    "source_of_batch",
    "wgmma",
]

# Of the devices that have these tensor cores.
_CAPABILITY = 90


@lru_cache(maxsize=1)
def wgmma() -> Wgmma:
    """Return the stencil, which knows its own argument list."""
    found = stencil("wgmma")
    assert isinstance(found, Wgmma)
    return found


def has_wgmma(live: LiveDevice) -> bool:
    """Whether a device has the stencil's tensor cores, and runs CUDA."""
    return live.dialect == "cuda" and wgmma().suits(live.spec)


def reads(live: LiveDevice, problem: Problem) -> bool:
    """Whether a device has them, and the copy engine counts as far as a problem's operands go."""
    reach = max(problem.lda, problem.ldb) * problem.precision.element_bytes
    longest = max(problem.m, problem.n, problem.k)
    return has_wgmma(live) and longest < MOST_PLACES and reach < MOST_STRIDE


@lru_cache(maxsize=256)
def source_of(config: Config, variant: TensorVariant) -> Source:
    """Return the source of a config: composing one takes longer than all else of a launch."""
    return wgmma().source(config, variant, "cuda")


@lru_cache(maxsize=64)
def source_of_batch(config: Config, variant: TensorVariant) -> Source:
    """Return the source of a config for batches of products of parts."""
    return wgmma().source_for_batch_of_parts(config, variant)


def config_for(
    variant: TensorVariant, device: DeviceSpec, m: int, n: int, k: int, promote_k: int = 0,
    compensated: bool = False, products: int = 1,
) -> Config:  # fmt: skip
    """Return the config of which the shortest time is expected.

    Times are expected as in every other precision (`tilewright.portfolio.model`), by costs that the
    portfolio ``passes`` has.

    Parameters
    ----------
    variant : TensorVariant
        Arithmetic and order of the operands.
    device : DeviceSpec
        Whose multiprocessors are filled.
    m, n, k : int
        Sizes.
    promote_k : int
        Sums leave the tensor core after at most so many steps; 0: whenever.
    compensated : bool
        Whether it has to make up for the roundings of sums that leave it (`Wgmma.compensates`).
    products : int
        Of a batch, in one launch.

    Raises
    ------
    ValueError
        If the device runs none.
    """
    return _expected(variant, device, (m, n, k), promote_k, compensated, products)[0]


def expected_ns(
    variant: TensorVariant, device: DeviceSpec, m: int, n: int, k: int, promote_k: int = 0,
    compensated: bool = False, products: int = 1,
) -> float:  # fmt: skip
    """Return the nanoseconds that are expected of a product.

    Parameters and errors are those of `config_for`.
    """
    return _expected(variant, device, (m, n, k), promote_k, compensated, products)[1]


@lru_cache(maxsize=256)
def config_for_triangle(
    variant: TensorVariant, device: DeviceSpec, problem: Problem, promote_k: int = 0,
    compensated: bool = False,
) -> tuple[Config, float] | None:  # fmt: skip
    """Return the config of which the shortest time is expected, and its nanoseconds.

    Parameters
    ----------
    variant : TensorVariant
        Arithmetic and order of the operands.
    device : DeviceSpec
        Whose multiprocessors are filled.
    problem : Problem
        The product of which a triangle is wanted.
    promote_k, compensated
        As of `config_for`.

    Returns
    -------
    tuple or None
        None where the device runs none.
    """
    able = _able(variant, device, promote_k, compensated)
    if able is None or able.model is None:
        return None
    expected = [
        able.model.expected(folded_problem(one.geometry, problem), device.multiprocessors)[at]
        for at, one in enumerate(able.kernels)
    ]
    best = int(np.argmin(expected))
    return able.kernels[best].config, float(expected[best])


def _expected(
    variant: TensorVariant, device: DeviceSpec, size: tuple[int, int, int], promote_k: int,
    compensated: bool, products: int,
) -> tuple[Config, float]:  # fmt: skip
    # Parts run along k in aligned columns, as the copy engine takes them.
    ld = aligned_ld(size[2], 1)
    problem = Problem(
        *size, operands_of(variant.arithmetic), Trans.T, Trans.N, ld, ld, batch=products
    )
    if variant.arithmetic.triangle:
        chosen = config_for_triangle(variant, device, problem, promote_k, compensated)
        if chosen is not None:
            return chosen
    able = _able(variant, device, promote_k, compensated)
    if able is None:
        raise ValueError(f"device={device.name!r} runs no config of wgmma for {variant}")
    found = fastest(device, able, problem, True, 0)
    # None takes sides and columns beyond what the copy engine counts: such products take for ever.
    at, _, ns = found or (0, 0, math.inf)
    assert ns is not None  # all have costs
    return able.kernels[at].config, ns


@lru_cache(maxsize=64)
def _able(
    variant: TensorVariant, device: DeviceSpec, promote_k: int, compensated: bool
) -> Held | None:
    """Return the configs that were timed and promote as is asked, with the model of their times."""
    family, of = wgmma(), variant.arithmetic
    portfolio = shipped_for(_CAPABILITY, "passes")
    if portfolio is None:
        return None
    rows = [
        replace(one, config=_filling(one.config, device))
        for one in portfolio.kernels
        if isinstance(one.variant, TensorVariant) and _is_alike(one.variant.arithmetic, of)
    ]
    space = family.space(variant, device)
    found = [
        one
        for one in rows
        if one.config in space
        and (not promote_k or 0 < one.config.integer("promote_k") <= promote_k)
        and (not compensated or family.compensates(one.config, variant))
    ]
    # As one's own, which serve every launch mode.
    held = [(one, portfolio, True) for one in found]
    return held_of(held, Variant(operands_of(of), Trans.T, Trans.N), device) if held else None


def _is_alike(one: Arithmetic, other: Arithmetic) -> bool:
    """Whether products take as long."""
    first, second = (
        (x.element_bytes, x.kept_bits, len(x.products), x.epilogue, _of_triangle(x))
        for x in (one, other)
    )
    return first == second


def _of_triangle(x: Arithmetic) -> int:
    """Return what tells triangles from whole products: of parts they take as long a tile."""
    return x.result_bytes if x.triangle and x.parts == 1 else 0


def _filling(config: Config, device: DeviceSpec) -> Config:
    """Return a config whose persistent blocks fill the device."""
    if not config.integer("multiprocessors") or device.multiprocessors <= 1:
        return config
    return config.replace(multiprocessors=device.multiprocessors)
