"""The stencil of short sums: CUDA C++, limited by the memory that C is written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tilewright.hardware import DeviceSpec
from tilewright.space import Config
from tilewright.stencil.base import Resources, Stencil, Variant
from tilewright.stencil.geometry import PLAIN, Geometry, Mode
from tilewright.stencil.source import Dialect, Source
from tilewright.stencil.source_files import read_sources

if TYPE_CHECKING:
    from tilewright.space import Space

__all__ = ["Outer"]

# A warp for each column that begins at another element of 16 bytes, of which floats have four.
_THREADS = 128

# What a lane stores at once; and what its warp does, of one column.
_CHUNK_BYTES = 16
_WARP_BYTES = 32 * _CHUNK_BYTES

# 32-bit registers of a thread besides A's rows, four for each step of k: four columns' sums take
# 16, addresses and elements of B others.  NVRTC 13.0 takes 78 to 128 in all for sm_90a.
_OTHER_REGISTERS = 64

# 32-bit registers of a multiprocessor: of each device since compute capability 5.0.
_ALL_REGISTERS = 65_536

# Steps of k whose rows of A fit a thread, and columns of a block: more of them use these rows more
# often, fewer make more blocks.  With one step, 16, and 64 columns besides, an H100's products of k
# to 8 took 0.7 to 2.3 % less, in the mean of each precision and order; from 9 steps on `simt_async`
# is faster.
_STEPS, _COLUMNS = (2, 4, 8), (32, 128)


class Outer(Stencil):
    """GEMM of short sums: C is written once, straight from registers, in whole vectors.

    Outer products, k = 1, and sums of a few products.  Columns of C may begin anywhere: stores are
    of 16 aligned bytes all the same, so that one instance serves every mode.
    """

    name: ClassVar[str] = "outer"
    version: ClassVar[int] = 1
    shapes: ClassVar[tuple[str, ...]] = ("thin",)

    def suits(self, device: DeviceSpec) -> bool:
        """Whether the device runs CUDA."""
        return device.compute_capability is not None

    def computes(self, variant: Variant) -> bool:
        """Whether elements are plain numbers of 32 bits and more: sums of pairs would need care."""
        return variant.precision.parts == 1 and not variant.precision.is_short

    def space(self, variant: Variant, device: DeviceSpec) -> Space:
        """Return the parameters and constraints for a variant on a device.

        Raises
        ------
        ValueError
            If elements are pairs, or shorter than 32 bits.
        """
        if not self.computes(variant):
            letter = variant.precision.letter
            raise ValueError(f"precision={letter!r} has no such kernels; use another stencil")
        from tilewright.space import Constraint, Parameter, Space

        rows = _rows(variant)
        return Space(
            self.name,
            (
                Parameter(
                    "block_m",
                    (32, 64, 128),
                    "rows of C a thread block computes",
                    "none: 16 bytes of a column for each lane of a warp",
                ),
                Parameter(
                    "block_n",
                    _COLUMNS,
                    "columns of C a thread block computes",
                    "fewer use rows of A less often; more make fewer blocks",
                ),
                Parameter(
                    "block_k",
                    _STEPS,
                    "steps in k for which a thread has its rows of A in registers",
                    "registers; where k is shorter, additions of zeros",
                ),
            ),
            (
                Constraint(
                    "a warp's rows",
                    lambda block_m: block_m == rows,
                    f"32 lanes store {_CHUNK_BYTES} bytes of a column each",
                    "divisibility",
                ),
            ),
        )

    def starts(self, variant: Variant, device: DeviceSpec) -> tuple[Config, ...]:
        """Return a config for each number of steps."""
        rows = _rows(variant)
        return tuple(
            Config(self.name, {"block_m": rows, "block_n": 32, "block_k": steps})
            for steps in _STEPS
        )

    def resources(self, config: Config, variant: Variant) -> Resources:
        """Return threads, and an estimate of registers; there is no shared memory."""
        return Resources(_THREADS, 0, _registers(config))

    def geometry(self, config: Config) -> Geometry:
        """Return a block for each tile, whatever the alignment of any operand."""
        held = _ALL_REGISTERS // _registers(config) // _THREADS
        return Geometry(
            config.integer("block_m"),
            config.integer("block_n"),
            (_THREADS, 1),
            tile_k=config.integer("block_k"),
            resident=held,
            most_k=config.integer("block_k"),
            any_alignment=True,
            early=True,
        )

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
            raise ValueError(f"dialect={dialect!r} has no such kernels; use portable")
        prelude = f"prelude/{variant.precision.letter}.h"
        return Source(
            read_sources("prelude/dialect_cuda.h", prelude, "outer/kernel.cuh"),
            {
                **variant.macros,
                "THREADS": _THREADS,
                **{name.upper(): config[name] for name in config},
            },
            unit=f"{self.name} {self.version}",
        )


def _rows(variant: Variant) -> int:
    """Return the rows of C that a warp stores at once."""
    return _WARP_BYTES // variant.precision.element_bytes


def _registers(config: Config) -> int:
    """Return the estimated registers of a thread."""
    return _OTHER_REGISTERS + config.integer("block_k") * _CHUNK_BYTES // 4
