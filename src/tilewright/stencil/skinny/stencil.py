"""The stencil of products with a short side: CUDA C++, limited by memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tilewright.hardware import DeviceSpec
from tilewright.space import Config
from tilewright.stencil.base import Resources, Stencil, Variant
from tilewright.stencil.geometry import PLAIN, Geometry, Mode, SplitK
from tilewright.stencil.skinny.resources import (
    THREADS,
    block_k,
    lanes,
    long_side,
    min_blocks,
    on_tensor_cores,
    registers,
    rows,
    shared_bytes,
    short_side,
    slab_steps,
    widths,
)
from tilewright.stencil.source import ELEMENTS, OUTPUTS, Dialect, Source
from tilewright.stencil.source_files import read_sources

if TYPE_CHECKING:
    from tilewright.space import Space

__all__ = ["Skinny"]

# Loads past the first-level cache with their PTX came with compute capability 7.0; older devices
# than this one nobody has tried.
_SINCE = 80

# Widths of the short side, the likeliest first: what is between two of them takes the wider one.
_WIDTHS = (4, 8, 2, 1, 16)

# What all threads of a block read in a step, 128 bytes each; and what a multiprocessor of an H100
# gets of device memory in a cycle: 3 TB/s / 132 / 1.75 GHz.
_STEP_BYTES, _BYTES_A_CYCLE = THREADS * 128, 13

# Slices of a tile: with one tile, four blocks for each of an H100's 132 multiprocessors.
_MOST_SLICES = 528

# Of the second kernel, for each block of the first; and their threads.
_SECOND_BLOCKS, _SECOND_THREADS = 1, 256

# Cycles for which slices must be shorter than whole tiles.  The second kernel takes fewer, but a
# step of few blocks takes less than the share of device memory that is counted for it: of 5,000 to
# 40,000 this loses least of the better way, 0.9 % in the mean of 2,240 H100 problems.
_SECOND_CYCLES = 20_000.0


class Skinny(Stencil):
    """GEMM with a short side: the long operand is read once, straight to registers.

    Nothing is reused but the short operand, which is in shared memory; loads of the long one are
    what counts: 16 bytes each, eight a thread on their way, in neighbours' order.  Tensor cores
    multiply elements of 16 and 8 bits, as loads leave them in registers.
    """

    name: ClassVar[str] = "skinny"
    version: ClassVar[int] = 3
    shapes: ClassVar[tuple[str, ...]] = ("short", "layers", "any", "thin")

    def suits(self, device: DeviceSpec) -> bool:
        """Whether the device runs CUDA and has the loads."""
        return (device.compute_capability or 0) >= _SINCE

    def computes(self, variant: Variant) -> bool:
        """Whether elements are plain numbers, and those of 8 bits run along k.

        Sums of pairs would need care.
        """
        return variant.precision.parts == 1 and variant.precision.reads(variant.k_fast)

    def space(self, variant: Variant, device: DeviceSpec) -> Space:
        """Return the parameters and constraints for a variant on a device.

        Raises
        ------
        ValueError
            If elements are pairs, or lie as `Precision.reads` refuses.
        """
        if not self.computes(variant):
            raise ValueError(f"{variant} has no skinny kernels; use another stencil")
        from tilewright.space import Space
        from tilewright.stencil.skinny.constraints import constraints
        from tilewright.stencil.skinny.parameters import parameters

        return Space(self.name, parameters(), constraints(variant, device))

    def starts(self, variant: Variant, device: DeviceSpec) -> tuple[Config, ...]:
        """Return a config for each side and width.

        Their threads along k are those that read whole lines.
        """
        least, most = widths(variant.precision)
        able = [width for width in _WIDTHS if least <= width <= most]
        return tuple(self._start(variant, short_m, width) for width in able for short_m in (0, 1))

    def _start(self, variant: Variant, short_m: int, width: int) -> Config:
        """Return the config that constraints leave for a side, a width and the usual lanes."""
        k_fast = variant.k_fast[short_m]
        lanes_k = int(lanes(width, k_fast, variant.precision)[1])
        side = int(rows(width, lanes_k, k_fast, variant.precision))
        values = {
            "short_m": short_m,
            "block_m": width if short_m else side,
            "block_n": side if short_m else width,
            "block_k": int(block_k(width, lanes_k, k_fast, variant.precision)),
            "lanes_k": lanes_k,
            "min_blocks": int(min_blocks(width, side, lanes_k, variant.precision)),
        }
        return Config(self.name, values)

    def resources(self, config: Config, variant: Variant) -> Resources:
        """Return threads and shared memory, exact, and an estimate of registers."""
        sides, lanes_k = _sides(config), config.integer("lanes_k")
        shared = shared_bytes(*sides, lanes_k, config.integer("block_k"), variant.precision)
        return Resources(THREADS, int(shared), int(registers(*sides, lanes_k, variant.precision)))

    def geometry(self, config: Config) -> Geometry:
        """Return tiles in one dimension, in slices where there are few of them."""
        sides = config.integer("block_m"), config.integer("block_n")
        held = config.integer("min_blocks")
        step = _STEP_BYTES * held / _BYTES_A_CYCLE
        # Bytes of floats, as other stencils count them: larger elements take more for all they do.
        area = sides[0] * sides[1]
        cut = SplitK(step, 4 * area, _SECOND_BLOCKS, _SECOND_THREADS, _MOST_SLICES, _SECOND_CYCLES)
        return Geometry(
            *sides,
            (THREADS, 1),
            tile_k=config.integer("block_k"),
            resident=held,
            split_k=cut,
            vector_along_k=True,
            streamed=2 if config.integer("short_m") else 1,
            early=True,
        )

    def grouped_config(self, config: Config, variant: Variant) -> Config | None:
        """Return None: a table of problems has addresses of sums, and no kernel of slices."""
        return None

    def source(
        self, config: Config, variant: Variant, dialect: Dialect, mode: Mode = PLAIN
    ) -> Source:
        """Return dialect, prelude and kernel as one source, with its macros.

        Raises
        ------
        ValueError
            For any dialect but CUDA.
        """
        if dialect != "cuda":
            raise ValueError(f"dialect={dialect!r} has no loads past the cache; use portable")
        precision = variant.precision
        sums = {"int32": "int32", "float32": "s", "": precision.letter}[precision.sum_name]
        short, depth = _sides(config)[0], config.integer("block_k")
        area = config.integer("block_m") * config.integer("block_n")
        # A part is whole chunks, as a workspace wants it.
        part = -(-area * precision.sum_bytes // 16) * 16
        defines: dict[str, int | str] = {**variant.macros, "THREADS": THREADS}
        if on_tensor_cores(precision):
            defines |= {"ELEMENT": ELEMENTS[precision.dtype_name]}
            defines |= {"OUTPUT": OUTPUTS[precision.result_name]}
        defines |= {"SLAB_STEPS": int(slab_steps(short, depth, precision))}
        defines |= {"SECOND_BLOCKS": _SECOND_BLOCKS, "SECOND_THREADS": _SECOND_THREADS}
        defines |= {"PART_ELEMENTS": part // precision.sum_bytes, "EARLY": 1}
        defines |= {name.upper(): config[name] for name in config}
        return Source(
            read_sources("prelude/dialect_cuda.h", f"prelude/{sums}.h", "skinny/kernel.cuh"),
            defines,
            dynamic_shared_bytes=self.resources(config, variant).shared_bytes,
            part_bytes=part,
            second="add_parts_of_slices",
            unit=f"{self.name} {self.version}",
        )


def _sides(config: Config) -> tuple[int, int]:
    """Return the block's columns of the short side and its rows of the long one."""
    where = [config.integer(name) for name in ("short_m", "block_m", "block_n")]
    return int(short_side(*where)), int(long_side(*where))
