"""The portable stencil: one source, specialised by macros, for OpenCL C and CUDA C++."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tilewright.hardware import DeviceSpec
from tilewright.space import Config
from tilewright.stencil.base import Resources, Stencil, Variant
from tilewright.stencil.geometry import PLAIN, Geometry, Mode
from tilewright.stencil.portable.resources import registers, shared_bytes
from tilewright.stencil.source import STATIC_SHARED_BYTES, Dialect, Source
from tilewright.stencil.source_files import read_sources

if TYPE_CHECKING:
    from tilewright.space import Space

__all__ = ["Portable"]


class Portable(Stencil):
    """GEMM by blocks for GPUs, and for any other OpenCL device.

    The kernel follows ASTRA's stencil (Kurzak et al. 2012, section 4): tiles pass
    through registers into shared memory, and while a tile is multiplied the next
    one may be on its way.  Beyond ASTRA, either operand may bypass shared memory
    (Nakasato 2010, section 4.1.3), tiles may be buffered twice, and the grid may
    be walked in bands.
    """

    name: ClassVar[str] = "portable"
    version: ClassVar[int] = 3

    def suits(self, device: DeviceSpec) -> bool:
        """Whether the device is a GPU; CPUs run it, but the packed stencil is theirs."""
        return device.kind == "gpu"

    def space(self, variant: Variant, device: DeviceSpec) -> Space:
        """Return the parameters and constraints for a variant on a device."""
        # Imported where points are asked for: calls of a portfolio take 10 ms less to begin.
        from tilewright.space import Space
        from tilewright.stencil.portable.constraints import constraints
        from tilewright.stencil.portable.parameters import parameters

        return Space(self.name, parameters(variant.precision), constraints(variant, device))

    def default(self, variant: Variant, device: DeviceSpec) -> Config:
        """Return the largest of a few square shapes that the device runs.

        In single precision and double-double on NVIDIA's GPUs it is the first of `starts`
        in the space.
        A shape that no constraint rules out is preferred to one that only some
        heuristic does, as on devices with unusual limits.

        Raises
        ------
        ValueError
            If the device runs none of them; the message says what stands against
            the smallest.
        """
        from tilewright.stencil.portable.starts import DEFAULTS, square, starts

        space = self.space(variant, device)
        for values in starts(variant, device):
            if values in space:
                return Config(self.name, values)
        shapes: tuple[tuple[int, int, int], ...] = DEFAULTS
        if device.kind == "cpu" and variant.precision.words * variant.precision.parts == 4:
            # A CPU's compiler takes a minute for the larger ones' unrolled arithmetic.
            shapes = DEFAULTS[-2:]
        candidates = [square(*shape, variant, device) for shape in shapes]
        violated = [space.violated(values) for values in candidates]
        for kinds in ({"heuristic", "hardware", "divisibility"}, {"hardware", "divisibility"}):
            for values, against in zip(candidates, violated, strict=True):
                if not any(constraint.kind in kinds for constraint in against):
                    return Config(self.name, values)
        reasons = "; ".join(constraint.reason for constraint in violated[-1])
        raise ValueError(f"device={device.name!r} runs no default of {self.name}: {reasons}")

    def starts(self, variant: Variant, device: DeviceSpec) -> tuple[Config, ...]:
        """Return shapes that suit NVIDIA's GPUs, if this is one, and the default."""
        from tilewright.stencil.portable.starts import starts

        fast = (Config(self.name, values) for values in starts(variant, device))
        return tuple(dict.fromkeys((*fast, self.default(variant, device))))

    def batch_configs(self, variant: Variant) -> tuple[Config, ...]:
        """Return small tiles."""
        from tilewright.stencil.portable.starts import batch_starts

        return tuple(Config(self.name, values) for values in batch_starts(variant))

    def resources(self, config: Config, variant: Variant) -> Resources:
        """Return threads and shared memory, exact, and an estimate of registers."""
        take = config.integer
        sides = {name: take(name) for name in ("block_m", "block_n", "block_k")}
        reads = {name: take(name) for name in ("read_a_m", "read_b_n")}
        threads = {name: take(name) for name in ("threads_m", "threads_n")}
        shared = {name: take(name) for name in ("fragment_vector", "pad", "shared_buffers")}
        precision = variant.precision
        return Resources(
            threads=threads["threads_m"] * threads["threads_n"],
            shared_bytes=int(shared_bytes(**sides, **reads, **shared, precision=precision)),
            registers=int(
                registers(
                    **sides, **reads, **threads, prefetch=take("prefetch"), precision=precision
                )
            ),
        )

    def geometry(self, config: Config) -> Geometry:
        """Return a grid in one dimension: the kernel folds it by its raster order.

        CUDA allows 2^31 - 1 blocks in the first dimension, but 65535 in the second.
        """
        threads = config.integer("threads_m") * config.integer("threads_n")
        sides = config.integer("block_m"), config.integer("block_n")
        return Geometry(*sides, (threads, 1), early=True)

    def source(
        self, config: Config, variant: Variant, dialect: Dialect, mode: Mode = PLAIN
    ) -> Source:
        """Return dialect, prelude and kernel as one source, with its macros."""
        defines: dict[str, int | str] = {**variant.macros}
        defines |= {name.upper(): config[name] for name in config}
        shared = self.resources(config, variant).shared_bytes
        dynamic = shared if dialect == "cuda" and shared > STATIC_SHARED_BYTES else 0
        text = read_sources(
            f"prelude/dialect_{dialect}.h",
            f"prelude/{variant.precision.letter}.h",
            "portable/kernel.cl",
        )
        return Source(text, defines, dynamic_shared_bytes=dynamic)
