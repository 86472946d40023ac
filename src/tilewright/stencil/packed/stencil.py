"""The packed stencil: one work-item a work-group, packed blocks, register micro-kernel."""

from __future__ import annotations

from itertools import product
from typing import ClassVar

from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision
from tilewright.space import Config, Space
from tilewright.stencil.base import Resources, Stencil, Variant
from tilewright.stencil.geometry import PLAIN, Geometry, Mode
from tilewright.stencil.packed.constraints import constraints, spared_registers, vector_registers
from tilewright.stencil.packed.parameters import BLOCKS_M, BLOCKS_N, parameters
from tilewright.stencil.source import Dialect, Source
from tilewright.stencil.source_files import read_source

__all__ = ["Packed"]


class Packed(Stencil):
    """GEMM as CPUs want it (after Goto & van de Geijn, TOMS 34(3), 2008).

    OpenCL C only: with one work-item a block there is nothing in it for a GPU.
    """

    name: ClassVar[str] = "packed"
    version: ClassVar[int] = 2

    def suits(self, device: DeviceSpec) -> bool:
        """Whether the device is a CPU."""
        return device.kind == "cpu"

    def computes(self, variant: Variant) -> bool:
        """Whether it is not double-double complex: that is the portable stencil's alone."""
        precision = variant.precision
        return precision.words * precision.parts <= 2 and not precision.is_short

    def space(self, variant: Variant, device: DeviceSpec) -> Space:
        """Return the parameters and constraints for a variant on a device."""
        return Space(self.name, parameters(), constraints(variant.precision, device))

    def default(self, variant: Variant, device: DeviceSpec) -> Config:
        """Return a micro-tile that fills the vector registers and blocks of about 256.

        Two vectors a column need the fewest loads for a multiply-add that 16 or 32
        registers allow; complex tiles keep twice the accumulators, so have fewer columns,
        and pairs in 16 registers one vector.
        Blocks of 256 x 256 x 1 KiB pack fast and leave several to each core; of pairs,
        which multiply 20 times longer, 3 KiB: each block along k adds to C, a seventh of
        the time with 1 KiB, and ends its sums.
        """
        if not self.suits(device):
            raise ValueError(
                f"stencil='packed' is for CPUs, and {device.name} is none; use the portable one"
            )
        words, size = _words(variant.precision), variant.precision.real_bytes
        vector = max(4, min(16, device.vector_bytes // size))
        split = -(-vector * size // max(16, device.vector_bytes))
        usable = vector_registers(device) - spared_registers(variant.precision) - 1
        spare = usable // (words * split)
        tiles = product((2, 1) if split == 1 else (1,), (12, 8, 6, 4, 3, 2))
        fitting = [(many, n) for many, n in tiles if n * many + many <= spare]
        if not fitting:
            raise ValueError(
                f"device={device.name} has {device.vector_bytes}-byte vectors: too short for"
                f" precision={variant.precision.letter!r} in the packed stencil; name another"
            )
        vectors, micro_n = fitting[0]
        size = variant.precision.element_bytes
        space = self.space(variant, device)
        # With little local memory a slow config is better than none: a second pass
        # leaves the heuristics out.
        pairs = variant.precision.parts == 2
        deep = (3072 if pairs else 1024) // size
        shapes = product((True, False), (256, 128, 64, 48), (deep, 64, 32))
        for strict, limit, block_k in shapes:
            values = {
                "vector": vector,
                "micro_vectors": vectors,
                "micro_n": micro_n,
                "block_m": max(x for x in BLOCKS_M if x <= limit and x % (vector * vectors) == 0),
                "block_n": max(x for x in BLOCKS_N if x <= limit and x % micro_n == 0),
                "block_k": block_k,
                "unroll": 1 if pairs else 2,
                "order": 0,
            }
            broken = space.violated(values)
            if not broken or (not strict and all(rule.kind == "heuristic" for rule in broken)):
                return Config(self.name, values)
        raise ValueError(
            f"device={device.name} has {device.shared_bytes_per_block} bytes of local memory:"
            " too little for the packed stencil; name another"
        )

    def resources(self, config: Config, variant: Variant) -> Resources:
        """Return the local memory of the packed blocks and the micro-tile's registers."""
        value = config.integer
        words, size = _words(variant.precision), variant.precision.real_bytes
        tile = value("vector") * value("micro_vectors") * value("micro_n")
        packed = (value("block_m") + value("block_n")) * value("block_k")
        return Resources(
            threads=1,
            shared_bytes=(packed + tile) * words * size,
            registers=tile * words * size // 4,
        )

    def geometry(self, config: Config) -> Geometry:
        """Return one work-item for each block of C."""
        sides = config.integer("block_m"), config.integer("block_n")
        return Geometry(*sides, (1, 1), folded=False)

    def source(
        self, config: Config, variant: Variant, dialect: Dialect, mode: Mode = PLAIN
    ) -> Source:
        """Return the source with its macros.

        Raises
        ------
        ValueError
            For any dialect but OpenCL.
        """
        if dialect != "opencl":
            raise ValueError(f"dialect={dialect!r} has no packed stencil; use the portable one")
        precision = variant.precision
        defines: dict[str, int | str] = {
            "REAL_BYTES": precision.real_bytes,
            "WORDS": _words(precision),
            **variant.macros,
        }
        defines |= {name.upper(): config[name] for name in config}
        if precision.parts == 1:
            return Source(read_source("packed/kernel.cl"), defines)
        # Its own letter's prelude says FAST 0 or 1, as for any stencil.
        defines["FAST"] = int(precision.letter in "fv")
        return Source(read_source("packed/pairs.h") + read_source("packed/kernel.cl"), defines)


def _words(precision: Precision) -> int:
    """Return the reals or doubles that an element is packed as."""
    return precision.words * precision.parts
