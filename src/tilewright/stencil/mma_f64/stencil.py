"""The stencil on tensor cores for doubles: CUDA C++ for compute capability 8.0 and later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from tilewright.hardware import DeviceSpec
from tilewright.space import Config
from tilewright.stencil.asynchronous.resources import SWIZZLED_BARRIER_BYTES
from tilewright.stencil.base import Variant
from tilewright.stencil.mma_f64.resources import LINE_BYTES, registers, threads
from tilewright.stencil.simt_async import SimtAsync
from tilewright.stencil.simt_async.stencil import layers

if TYPE_CHECKING:
    from tilewright.space import Constraint, Space

__all__ = ["MmaF64"]


class MmaF64(SimtAsync):
    """GEMM in doubles and pairs of them, by mma.sync.

    A block's way through a tile of C is `SimtAsync`'s; here warps multiply, not threads.
    Real and imaginary parts are multiplied apart, four instructions where one was.
    """

    name: ClassVar[str] = "mma_f64"
    version: ClassVar[int] = 3
    multiplier: ClassVar[str] = "mma_f64/mma.cuh"
    vector_along_k: ClassVar[bool] = True
    line_bytes: ClassVar[int] = LINE_BYTES
    barrier_bytes: ClassVar[int] = SWIZZLED_BARRIER_BYTES
    macros: ClassVar[Mapping[str, int]] = {"DOUBLE_BUFFERED": 1}

    def computes(self, variant: Variant) -> bool:
        """Whether an element is a double, or a pair of them."""
        return variant.precision.parts == 1 and variant.precision.real_name == "float64"

    def space(self, variant: Variant, device: DeviceSpec) -> Space:
        """Return the parameters and constraints for a variant on a device.

        Raises
        ------
        ValueError
            If elements are not made of doubles.
        """
        if not self.computes(variant):
            letter = variant.precision.letter
            raise ValueError(f"precision={letter!r} is not of doubles; use d or z, or portable")
        from tilewright.space import Space
        from tilewright.stencil.mma_f64.constraints import constraints
        from tilewright.stencil.mma_f64.parameters import parameters

        return Space(self.name, parameters(), constraints(variant, device))

    def mode_constraints(self, variant: Variant) -> Mapping[str, tuple[Constraint, ...]]:
        """Return by launch mode what a point of the space needs to be compiled in it."""
        from tilewright.stencil.mma_f64.constraints import mode_constraints

        return mode_constraints(variant)

    def starts(self, variant: Variant, device: DeviceSpec) -> tuple[Config, ...]:
        """Return what is likely fast, the likeliest first."""
        from tilewright.stencil.mma_f64.starts import starts

        return tuple(Config(self.name, values) for values in starts(variant))

    def batch_configs(self, variant: Variant) -> tuple[Config, ...]:
        """Return small tiles."""
        from tilewright.stencil.mma_f64.batched import batch_configs

        return batch_configs(variant)

    def longer(self, config: Config, variant: Variant) -> int:
        """Return by how many elements rows of both tiles exceed the block's sides: none."""
        return 0

    def registers(self, config: Config, variant: Variant) -> int:
        """Return the estimated registers of a thread."""
        values = {name: config.integer(name) for name in ("warp_m", "warp_n", "mma_k")}
        return int(registers(**values, precision=variant.precision))

    def threads(self, config: Config) -> int:
        """Return the threads of a block."""
        sides = {name: config.integer(name) for name in ("block_m", "block_n", "warp_m", "warp_n")}
        return int(threads(**sides, warps_k=layers(config)))
