"""Ways through the CUDA kernels that copy asynchronously: configs small enough for the emulator."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.stencil.contract import bench
from tests.stencil.emulator import EmulatedDevice
from tests.stencil.portable_harness import variant
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant
from tilewright.stencil.mma_f64 import MmaF64
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.verify import Bench

SIMT, MMA = SimtAsync(), MmaF64()

STAYING = {"persistent": 1}
SHARING = {"persistent": 1, "stream_k": 1}
# A block of 32 x 32 with one warp: many tiles and blocks at little cost.
TINY = {"block_m": 32, "block_n": 32, "tile_m": 4, "tile_n": 8, "block_k": 16, "swizzle_rows": 4}


def small_simt(of: Variant, live: EmulatedDevice, **changes: int) -> Config:
    """Return a config of few threads: two warps and more, chunks in every direction."""
    chunk = 16 // of.precision.element_bytes
    tile = max(4, chunk)
    if chunk == 1:  # double complex: as many registers for a quarter of the elements
        changes = {"block_m": 32, "tile_n": 4, **changes}
    values = {
        "block_m": 64, "block_n": 32, "tile_m": tile, "tile_n": 2 * tile, "lanes_m": 8,
        "block_k": 16, "unroll_k": 8, "stages": 3, "cluster_k": 1, "min_blocks": 1,
        "copy_groups": 2, "serpentine_rows": 0, "b_first": 0, "swizzle_rows": 4,
    }  # fmt: skip
    return SIMT.space(of, live.spec).config(
        {**values, **changes}, kinds=("divisibility", "hardware")
    )


def small_mma(of: Variant, live: EmulatedDevice, **changes: int) -> Config:
    """Return a config of four warps, two by two, each with several instructions both ways."""
    whole = 8 if of.precision.is_complex else 16
    values = {
        "block_m": 64, "block_n": 32, "warp_m": 32, "warp_n": 16, "mma_m": 16, "mma_k": 4,
        "block_k": whole, "stages": 3, "interleave": 4,
        "serpentine_rows": 0, "min_blocks": 1, "cluster_k": 1, "swizzle_rows": 4,
    }  # fmt: skip
    return MMA.space(of, live.spec).config(
        {**values, **changes}, kinds=("divisibility", "hardware")
    )


@dataclass(frozen=True)
class Way:
    """A config of few threads, and the launch mode that it is compiled in.

    Parameters
    ----------
    family : Stencil
        Whose config it is.
    name : str
        Of the variant, such as ``"sNT"``.
    mode : str
        The launch mode.
    changes : dict
        What differs from the family's small config.
    """

    family: Stencil
    name: str
    mode: str = "plain"
    changes: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        words = (f"{name}={value}" for name, value in self.changes.items())
        return " ".join((self.family.name, self.name, self.mode, *words))

    @property
    def of(self) -> Variant:
        """The variant."""
        return variant(self.name)

    def config(self, live: EmulatedDevice) -> Config:
        """Return the config."""
        small = small_mma if self.family is MMA else small_simt
        return small(self.of, live, **self.changes)

    def bench(
        self, live: EmulatedDevice, blocks: int | None = None, family: Stencil | None = None
    ) -> Bench:
        """Return the kernel, compiled, to run on so many blocks; `family` may have a fault."""
        return bench(
            live, family or self.family, self.config(live), self.of, self.mode, blocks=blocks
        )


def simt(name: str, mode: str = "plain", **changes: int) -> Way:
    """Return a way through `simt_async`."""
    return Way(SIMT, name, mode, changes)


def mma(name: str, mode: str = "plain", **changes: int) -> Way:
    """Return a way through `mma_f64`."""
    return Way(MMA, name, mode, changes)
