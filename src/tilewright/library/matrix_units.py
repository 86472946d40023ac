"""Which config of the tensor-core stencil serves a size: untuned, from what its starts reached."""

from __future__ import annotations

from functools import lru_cache

from tilewright.hardware import DeviceSpec
from tilewright.space import Config
from tilewright.stencil import stencil
from tilewright.stencil.wgmma import TensorVariant, Wgmma

__all__ = ["config_for", "wgmma"]


def wgmma() -> Wgmma:
    """Return the stencil, which knows its own argument list."""
    found = stencil("wgmma")
    assert isinstance(found, Wgmma)
    return found


@lru_cache(maxsize=4096)
def config_for(
    variant: TensorVariant, device: DeviceSpec, m: int, n: int, promote_k: int = 0
) -> Config:
    """Return the start that promises the shortest time: of its speed, the share it can use.

    The speed is what the start reached at 4096 (`tilewright.stencil.wgmma.starts`), the share
    that of all waves of tiles which is work.  On an H100 their product orders the starts that
    were timed at 1024 as the times do: in BF16 NT 15.8 us for 128 x 128 and 21.1 for 256 x 128
    (in TN 17.3 and 22.6), in BF16x6 NT 32.2 us for 64 x 128, 42.5 for 128 x 128 and 75.5 for
    256 x 128; but for one time, 108 us of FP16x3 NT, which is 46 to 47 in the other transposes.
    Times differ by less than the product does: starting a launch costs all alike.

    Parameters
    ----------
    variant : TensorVariant
        Arithmetic and order of the operands.
    device : DeviceSpec
        Whose multiprocessors are filled.
    m, n : int
        Of the result.
    promote_k : int
        Sums leave the tensor core after at most so many steps; 0: whenever.

    Raises
    ------
    ValueError
        If the device runs none.
    """
    able = _able(variant, device, promote_k)
    if not able:
        raise ValueError(f"device={device.name!r} runs no config of wgmma for {variant}")
    return max(able, key=lambda one: one[1] * _share(one[0], device, m, n))[0]


@lru_cache(maxsize=64)
def _able(
    variant: TensorVariant, device: DeviceSpec, promote_k: int
) -> tuple[tuple[Config, float], ...]:
    """Return the starts of the space that promote often enough, each with its speed."""
    family = wgmma()
    space = family.space(variant, device)
    both = zip(family.starts(variant, device), family.speeds(variant), strict=True)
    return tuple(
        (config, speed)
        for config, speed in both
        if config in space and (not promote_k or 0 < config.integer("promote_k") <= promote_k)
    )


def _share(config: Config, device: DeviceSpec, m: int, n: int) -> float:
    """Return which share of all waves of tiles is work (the tail effect)."""
    block_m, block_n = config.integer("block_m"), config.integer("block_n")
    tiles = -(-m // block_m) * -(-n // block_n)
    # A speed is that of a multiprocessor with all its blocks: one alone has no more than its part.
    slots = device.multiprocessors * config.integer("resident")
    waves = max(1, -(-tiles // slots))
    return m * n / (waves * slots * block_m * block_n)
