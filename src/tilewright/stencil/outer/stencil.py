"""The stencil of short sums: CUDA C++, limited by the memory that C is written to."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tilewright.hardware import DeviceSpec
from tilewright.space import Config
from tilewright.stencil.base import Resources, Stencil, Variant
from tilewright.stencil.geometry import PLAIN, Geometry, Mode
from tilewright.stencil.source import ELEMENTS, OUTPUTS, Dialect, Source
from tilewright.stencil.source_files import read_sources

if TYPE_CHECKING:
    from tilewright.space import Space

__all__ = ["Outer"]

# A warp for each column that begins at another element of a chunk, which has four or fewer.
_THREADS = 128

# What a lane stores at once of 32 bits and more; and its rows of 16 bits, stored by 8 bytes: with
# eight rows a thread has registers for few steps.
_CHUNK_BYTES, _SHORT_ROWS = 16, 4

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

# The same of 16 bits: from 9 steps on tensor cores are faster, on an H100, or as fast.
_STEPS_SHORT = (4, 8)

# The instruction that rounds to bfloat16 came with compute capability 8.0.
_SHORT_SINCE = 80


class Outer(Stencil):
    """GEMM of short sums: C is written once, straight from registers, in whole vectors.

    Outer products, k = 1, and sums of a few products.  Columns of C may begin anywhere: stores are
    of 16 aligned bytes all the same, of 16-bit results 8, so that one instance serves every mode.
    Operands of 16 bits pass through shared memory.
    """

    name: ClassVar[str] = "outer"
    version: ClassVar[int] = 1
    shapes: ClassVar[tuple[str, ...]] = ("thin",)

    def suits(self, device: DeviceSpec) -> bool:
        """Whether the device runs CUDA."""
        return device.compute_capability is not None

    def computes(self, variant: Variant) -> bool:
        """Whether elements are plain numbers of 16 bits and more: sums of pairs would need care."""
        precision = variant.precision
        return precision.parts == 1 and (not precision.is_short or precision.element_bytes == 2)

    def space(self, variant: Variant, device: DeviceSpec) -> Space:
        """Return the parameters and constraints for a variant on a device.

        Raises
        ------
        ValueError
            If elements are pairs, of 8 bits, or of tensor cores' 32.
        """
        if not self.computes(variant):
            letter = variant.precision.letter
            raise ValueError(f"precision={letter!r} has no such kernels; use another stencil")
        from tilewright.space import Constraint, Parameter, Space

        rows, short = _rows(variant), variant.precision.is_short
        rounds = not short or (device.compute_capability or 0) >= _SHORT_SINCE
        return Space(
            self.name,
            (
                Parameter(
                    "block_m",
                    (32, 64, 128),
                    "rows of C a thread block computes",
                    f"none: {_CHUNK_BYTES} bytes of a column a lane, or 4 elements",
                ),
                Parameter(
                    "block_n",
                    _COLUMNS,
                    "columns of C a thread block computes",
                    "fewer use rows of A less often; more make fewer blocks",
                ),
                Parameter(
                    "block_k",
                    _STEPS_SHORT if short else _STEPS,
                    "steps in k for which a thread has its rows of A in registers",
                    "registers; where k is shorter, additions of zeros",
                ),
            ),
            (
                Constraint(
                    "a warp's rows",
                    lambda block_m: block_m == rows,
                    f"32 lanes store {_CHUNK_BYTES} bytes of a column each, of 16 bits 4 elements",
                    "divisibility",
                ),
                Constraint(
                    "instructions",
                    lambda block_k: (block_k > 0) & rounds,
                    "devices round to bfloat16 from compute capability 8.0 on",
                    "hardware",
                ),
            ),
        )

    def starts(self, variant: Variant, device: DeviceSpec) -> tuple[Config, ...]:
        """Return a config for each number of steps."""
        rows = _rows(variant)
        return tuple(
            Config(self.name, {"block_m": rows, "block_n": 32, "block_k": steps})
            for steps in (_STEPS_SHORT if variant.precision.is_short else _STEPS)
        )

    def resources(self, config: Config, variant: Variant) -> Resources:
        """Return threads and shared memory, exact, and an estimate of registers."""
        return Resources(_THREADS, _shared_bytes(config, variant), _registers(config))

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

    def grouped_config(self, config: Config, variant: Variant) -> Config | None:
        """Return the config, but for short elements: a table of problems has sums' addresses."""
        return None if variant.precision.is_short else super().grouped_config(config, variant)

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
        precision = variant.precision
        prelude = "s" if precision.is_short else precision.letter  # of the sums
        defines: dict[str, int | str] = {**variant.macros, "THREADS": _THREADS}
        if precision.is_short:
            defines |= {"ELEMENT": ELEMENTS[precision.dtype_name]}
            defines |= {"OUTPUT": OUTPUTS[precision.result_name]}
        defines |= {name.upper(): config[name] for name in config}
        return Source(
            read_sources("prelude/dialect_cuda.h", f"prelude/{prelude}.h", "outer/kernel.cuh"),
            defines,
            dynamic_shared_bytes=_shared_bytes(config, variant),
            unit=f"{self.name} {self.version}",
        )


def _rows(variant: Variant) -> int:
    """Return the rows of C that a warp stores at once."""
    of = variant.precision
    return 32 * (_SHORT_ROWS if of.is_short else _CHUNK_BYTES // of.element_bytes)


def _shared_bytes(config: Config, variant: Variant) -> int:
    """Return the bytes of what is staged: A's rows, and a chunk's more, and B's columns."""
    if not variant.precision.is_short:
        return 0
    staged = config.integer("block_m") + _SHORT_ROWS + config.integer("block_n")
    return config.integer("block_k") * staged * variant.precision.sum_bytes


def _registers(config: Config) -> int:
    """Return the estimated registers of a thread."""
    return _OTHER_REGISTERS + config.integer("block_k") * _CHUNK_BYTES // 4
