"""Where tensor cores are, and which start serves products in parts and with an epilogue."""

from __future__ import annotations

from functools import lru_cache

from tilewright.backend import LiveDevice
from tilewright.hardware import DeviceSpec
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Source, stencil
from tilewright.stencil.geometry import MOST_PLACES, MOST_STRIDE
from tilewright.stencil.wgmma import TensorVariant, Wgmma
from tilewright.stencil.wgmma.starts import Pace

__all__ = ["config_for", "has_wgmma", "multiply_adds", "reads", "source_of", "wgmma"]


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


@lru_cache(maxsize=4096)
def config_for(
    variant: TensorVariant, device: DeviceSpec, m: int, n: int, k: int, promote_k: int = 0,
    compensated: bool = False,
) -> Config:  # fmt: skip
    """Return the start that promises the shortest time, by its pace and its waves of tiles.

    Waves of tiles take k steps each and a launch `fill` more (`tilewright.stencil.wgmma.starts`).
    Of what was timed on an H100 at 1024, 2048 and 4096 this takes configs within 2 % of the best
    in FP16x3 and BF16x6 (`tests/serve/test_tensor_cores.py`).

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

    Raises
    ------
    ValueError
        If the device runs none.
    """
    return _promising(variant, device, (m, n, k), promote_k, compensated)[0]


def multiply_adds(
    variant: TensorVariant, device: DeviceSpec, m: int, n: int, k: int, promote_k: int = 0,
    compensated: bool = False,
) -> float:  # fmt: skip
    """Return what a product takes, counted in multiply-adds of the first start at its pace.

    Parameters and errors are those of `config_for`.
    """
    config, pace = _promising(variant, device, (m, n, k), promote_k, compensated)
    return _time(config, pace, device, (m, n, k))


def _promising(
    variant: TensorVariant, device: DeviceSpec, size: tuple[int, int, int], promote_k: int,
    compensated: bool,
) -> tuple[Config, Pace]:  # fmt: skip
    # No start compensates the sums of TF32's parts, which are not served but to measure them.
    able = _able(variant, device, promote_k, compensated) or _able(
        variant, device, promote_k, False
    )
    if not able:
        raise ValueError(f"device={device.name!r} runs no config of wgmma for {variant}")
    return min(able, key=lambda one: _time(one[0], one[1], device, size))


@lru_cache(maxsize=64)
def _able(
    variant: TensorVariant, device: DeviceSpec, promote_k: int, compensated: bool
) -> tuple[tuple[Config, Pace], ...]:
    """Return the starts of the space that promote as is asked, each with its pace."""
    family = wgmma()
    starts = family.starts(variant, device)
    able = family.space(variant, device).contained(starts)
    return tuple(
        (config, pace)
        for config, pace, is_able in zip(starts, family.paces(variant), able, strict=True)
        if is_able
        and (not promote_k or 0 < config.integer("promote_k") <= promote_k)
        and (not compensated or family.compensates(config, variant))
    )


def _time(config: Config, pace: Pace, device: DeviceSpec, size: tuple[int, int, int]) -> float:
    """Return what a product takes with a config, as `multiply_adds` counts."""
    m, n, k = size
    block_m, block_n = config.integer("block_m"), config.integer("block_n")
    tiles = -(-m // block_m) * -(-n // block_n)
    # A pace is that of a multiprocessor with all its blocks: one alone has no more than its part.
    slots = device.multiprocessors * config.integer("min_blocks")
    waves = max(1, -(-tiles // slots))
    return (waves * k + pace.fill) * slots * block_m * block_n / pace.speed
