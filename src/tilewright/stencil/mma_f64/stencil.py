"""The stencil on tensor cores for doubles: CUDA C++ for compute capability 8.0 and later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tilewright.space import Config
from tilewright.stencil.asynchronous.resources import SWIZZLED_BARRIER_BYTES
from tilewright.stencil.base import Variant
from tilewright.stencil.mma_f64.resources import LINE_BYTES, registers, threads
from tilewright.stencil.simt_async import SimtAsync
from tilewright.stencil.simt_async.stencil import layers

__all__ = ["MmaF64"]


class MmaF64(SimtAsync):
    """GEMM in doubles and pairs of them, by mma.sync.

    A block's way through a tile of C is `SimtAsync`'s; here warps multiply, not threads.
    Real and imaginary parts are multiplied apart, four instructions where one was.
    """

    name: ClassVar[str] = "mma_f64"
    package: ClassVar[str] = "tilewright.stencil.mma_f64"
    version: ClassVar[int] = 3
    multiplier: ClassVar[str] = "mma_f64/mma.cuh"
    vector_along_k: ClassVar[bool] = True
    line_bytes: ClassVar[int] = LINE_BYTES
    barrier_bytes: ClassVar[int] = SWIZZLED_BARRIER_BYTES
    macros: ClassVar[Mapping[str, int]] = {"DOUBLE_BUFFERED": 1}

    def computes(self, variant: Variant) -> bool:
        """Whether an element is a double, or a pair of them."""
        return variant.precision.parts == 1 and variant.precision.real_name == "float64"

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
