"""The stencil fed by asynchronous copies: CUDA C++ for compute capability 8.0 and later."""

from __future__ import annotations

from typing import ClassVar

from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision
from tilewright.space import Config, Space
from tilewright.stencil.base import Dialect, Launch, Resources, Source, Stencil, Variant
from tilewright.stencil.schedule import macros, schedule_of
from tilewright.stencil.simt_async.constraints import constraints, k_fast
from tilewright.stencil.simt_async.parameters import parameters
from tilewright.stencil.simt_async.resources import registers, shared_bytes, threads
from tilewright.stencil.simt_async.starts import starts
from tilewright.stencil.text import read_text

__all__ = ["SimtAsync"]

# Copies from device memory to shared memory came with this compute capability, times ten.
_ASYNCHRONOUS_COPIES_SINCE = 80


class SimtAsync(Stencil):
    """GEMM whose tiles are copied to shared memory while others are multiplied.

    Copies pass no register, so that threads have them for their part of C, and the loop
    holds little beside multiply-adds.  Small results share a tile of C among the blocks of
    a cluster (compute capability 9.0).
    """

    name: ClassVar[str] = "simt_async"
    version: ClassVar[int] = 1

    def suits(self, device: DeviceSpec) -> bool:
        """Whether the device runs CUDA and copies asynchronously."""
        capability = device.compute_capability
        return capability is not None and capability >= _ASYNCHRONOUS_COPIES_SINCE

    def computes(self, precision: Precision) -> bool:
        """Whether an element is one number of the arithmetic units, or a pair of them."""
        return precision.parts == 1

    def space(self, variant: Variant, device: DeviceSpec) -> Space:
        """Return the parameters and constraints for a variant on a device."""
        return Space(self.name, parameters(), constraints(variant, device))

    def default(self, variant: Variant, device: DeviceSpec) -> Config:
        """Return the first of `starts` in the space.

        Raises
        ------
        ValueError
            If the device runs none of them.
        """
        space = self.space(variant, device)
        for config in self.starts(variant, device):
            if config in space:
                return config
        raise ValueError(
            f"device={device.name!r} runs no default of {self.name}; use the portable stencil"
        )

    def starts(self, variant: Variant, device: DeviceSpec) -> tuple[Config, ...]:
        """Return what is likely fast, the likeliest first."""
        return tuple(Config(self.name, values) for values in starts(variant))

    def resources(self, config: Config, variant: Variant) -> Resources:
        """Return threads and shared memory, exact, and an estimate of registers."""
        take = config.integer
        sides = {name: take(name) for name in ("block_m", "block_n")}
        tiles = {name: take(name) for name in ("tile_m", "tile_n")}
        ring = {name: take(name) for name in ("block_k", "stages", "split_k")}
        passing = {name: take(name) for name in ("block_k", "k_vectors")}
        precision, along = variant.precision, k_fast(variant)
        return Resources(
            threads=threads(**sides, **tiles),
            shared_bytes=int(shared_bytes(**sides, **ring, precision=precision, k_fast=along)),
            registers=int(
                registers(**sides, **tiles, **passing, precision=precision, k_fast=along)
            ),
        )

    def launch(self, config: Config, m: int, n: int) -> Launch:
        """Return a grid in one dimension, blocks of a cluster side by side."""
        blocks_m = -(-m // config.integer("block_m"))
        blocks_n = -(-n // config.integer("block_n"))
        blocks = blocks_m * blocks_n * config.integer("split_k")
        sides = {name: config.integer(name) for name in ("block_m", "block_n", "tile_m", "tile_n")}
        return Launch(grid=(blocks, 1), block=(threads(**sides), 1))

    def source(self, config: Config, variant: Variant, dialect: Dialect) -> Source:
        """Return dialect, prelude and kernel as one text, with its macros.

        Raises
        ------
        ValueError
            For any dialect but CUDA.
        """
        if dialect != "cuda":
            raise ValueError(f"dialect={dialect!r} has no asynchronous copies; use portable")
        parts = (
            "prelude/dialect_cuda.h",
            f"prelude/{variant.precision.letter}.h",
            "simt_async/kernel.cuh",
        )
        defines: dict[str, int | str] = {
            "TRANS_A": int(variant.trans_a.transposed),
            "CONJ_A": int(variant.trans_a.conjugated),
            "TRANS_B": int(variant.trans_b.transposed),
            "CONJ_B": int(variant.trans_b.conjugated),
        }
        defines |= macros(config)
        shared = self.resources(config, variant).shared_bytes
        text = "\n".join(read_text(part) for part in parts)
        return Source(text, defines, dynamic_shared_bytes=shared, schedule=schedule_of(config))
