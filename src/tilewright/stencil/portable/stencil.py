"""The portable stencil: one source, specialised by macros, for OpenCL C and CUDA C++."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tilewright.hardware import DeviceSpec
from tilewright.space import Config, Value
from tilewright.stencil.base import Resources, Stencil, Variant
from tilewright.stencil.geometry import PLAIN, Geometry, Mode
from tilewright.stencil.portable.resources import registers, shared_bytes
from tilewright.stencil.source import STATIC_SHARED_BYTES, Dialect, Source
from tilewright.stencil.source_files import read_sources

if TYPE_CHECKING:
    from tilewright.space import Space
    from tilewright.stencil.portable.constraints import Thresholds

__all__ = ["Portable"]

# Defaults from the largest to those that most devices run: block_m = block_n, the threads
# along each side, block_k.  The last is for devices of few threads in a block.
_DEFAULTS = ((128, 16, 8), (64, 16, 8), (64, 8, 8), (32, 16, 8), (16, 8, 8), (16, 4, 4))

# What all shapes here have.
_SAME: dict[str, Value] = {"pad": 1, "swizzle_rows": 8}


class Portable(Stencil):
    """GEMM by blocks for GPUs, and for any other OpenCL device.

    The kernel follows ASTRA's stencil (Kurzak et al. 2012, section 4): tiles pass
    through registers into shared memory, and while a tile is multiplied the next
    one may be on its way.  Beyond ASTRA, either operand may bypass shared memory
    (Nakasato 2010, section 4.1.3), tiles may be buffered twice, and the grid may
    be walked in bands.

    Parameters
    ----------
    thresholds : Thresholds, optional
        What counts as unlikely to be fast; ASTRA's values if left out.
    """

    name: ClassVar[str] = "portable"
    version: ClassVar[int] = 3

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self.thresholds = thresholds

    def suits(self, device: DeviceSpec) -> bool:
        """Whether the device is a GPU; CPUs run it, but the packed stencil is theirs."""
        return device.kind == "gpu"

    def space(self, variant: Variant, device: DeviceSpec) -> Space:
        """Return the parameters and constraints for a variant on a device."""
        # Imported where points are asked for: calls of a portfolio take 10 ms less to begin.
        from tilewright.space import Space
        from tilewright.stencil.portable.constraints import Thresholds, constraints
        from tilewright.stencil.portable.parameters import parameters

        thresholds = self.thresholds or Thresholds()
        return Space(
            self.name, parameters(variant.precision), constraints(variant, device, thresholds)
        )

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
        space = self.space(variant, device)
        for config in _fast_configs(variant, device):
            if config in space:
                return config
        shapes: tuple[tuple[int, int, int], ...] = _DEFAULTS
        if device.kind == "cpu" and variant.precision.words * variant.precision.parts == 4:
            # A CPU's compiler takes a minute for the larger ones' unrolled arithmetic.
            shapes = _DEFAULTS[-2:]
        candidates = [_square(*shape, variant, device) for shape in shapes]
        violated = [space.violated(values) for values in candidates]
        for kinds in ({"heuristic", "hardware", "divisibility"}, {"hardware", "divisibility"}):
            for values, against in zip(candidates, violated, strict=True):
                if not any(constraint.kind in kinds for constraint in against):
                    return Config(self.name, values)
        reasons = "; ".join(constraint.reason for constraint in violated[-1])
        raise ValueError(f"device={device.name!r} runs no default of {self.name}: {reasons}")

    def starts(self, variant: Variant, device: DeviceSpec) -> tuple[Config, ...]:
        """Return shapes that suit NVIDIA's GPUs, if this is one, and the default."""
        found = dict.fromkeys((*_fast_configs(variant, device), self.default(variant, device)))
        return tuple(found)

    def batch_configs(self, variant: Variant) -> tuple[Config, ...]:
        """Return small tiles."""
        from tilewright.stencil.portable.batched import batch_configs

        return batch_configs(variant)

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
        return Geometry(config.integer("block_m"), config.integer("block_n"), (threads, 1))

    def source(
        self, config: Config, variant: Variant, dialect: Dialect, mode: Mode = PLAIN
    ) -> Source:
        """Return dialect, prelude and kernel as one source, with its macros."""
        defines: dict[str, int | str] = {
            **variant.macros,
        }
        defines |= {name.upper(): config[name] for name in config}
        shared = self.resources(config, variant).shared_bytes
        dynamic = shared if dialect == "cuda" and shared > STATIC_SHARED_BYTES else 0
        text = read_sources(
            f"prelude/dialect_{dialect}.h",
            f"prelude/{variant.precision.letter}.h",
            "portable/kernel.cl",
        )
        return Source(text, defines, dynamic_shared_bytes=dynamic)


# For single precision on NVIDIA's GPUs: block_m, block_n, block_k, threads_m, threads_n,
# read_vector, shared_buffers.  128 elements of C in a thread are the most that leave its 255
# registers room for fragments, so the machine code for sm_90a has the largest share of
# multiply-adds.  The first has two resident blocks, so that one works while the other waits at
# a barrier, and blocks enough for small results; those that read single elements follow the
# winners on an H100.
_FAST_SINGLE = (
    (128, 128, 16, 8, 16, 4, 2),
    (256, 128, 16, 16, 16, 4, 2),
    (128, 256, 16, 16, 16, 4, 2),
    (256, 128, 8, 16, 16, 4, 2),
    (256, 128, 16, 16, 16, 4, 1),
    (256, 128, 16, 16, 16, 1, 1),
    (128, 128, 8, 8, 16, 1, 1),
)


# Blocks that fit sizes from 1024 to 2048 more evenly on 132 multiprocessors than the larger ones
# below: with these the worst size has 83 % of the rate by the count of whole blocks, in waves of
# two, instead of 72 %.
_EVENLY = ((32, 40, 16, 16, 8, 4, 2, 1), (24, 80, 16, 8, 16, 4, 2, 1), (32, 48, 16, 16, 8, 4, 2, 1))

# For real double-double on NVIDIA's GPUs: block_m, block_n, block_k, threads_m, threads_n,
# unroll_k, shared_buffers, prefetch.  A multiply-add is 12 or 21 instructions, so what counts
# is that the double-precision pipe never waits: 4 x 4 elements give a warp 16 chains, and
# leave room for two or more blocks.  These are the best for sm_90 by the cycle model; the last
# have half the tile and twice the warps.  The first, which untuned calls run, was the fastest of
# them on an H100 at n = 1024 in either accuracy and every transpose.
_FAST_PAIRS = (
    (32, 64, 16, 8, 16, 4, 2, 1),
    (32, 64, 8, 8, 16, 8, 2, 1),
    (64, 32, 16, 16, 8, 4, 2, 0),
    (32, 32, 16, 8, 8, 8, 1, 0),
    (64, 32, 8, 16, 8, 4, 1, 1),
    (64, 32, 16, 16, 16, 8, 2, 0),
    (64, 32, 8, 16, 16, 1, 2, 1),
    *_EVENLY,
)

# The same for complex ones, whose elements take twice the registers.
_FAST_COMPLEX_PAIRS = ((32, 32, 8, 8, 16, 1, 2, 1), (32, 32, 8, 16, 16, 1, 2, 1))


def _fast_configs(variant: Variant, device: DeviceSpec) -> tuple[Config, ...]:
    """Return what is likely fast on a device, in its space or not; often nothing."""
    if "nvidia" not in device.vendor.lower():
        return ()
    if variant.precision.parts == 2:
        shapes = _FAST_COMPLEX_PAIRS if variant.precision.is_complex else _FAST_PAIRS
        return tuple(Config(Portable.name, _fast_pairs(shape, variant)) for shape in shapes)
    if variant.precision.letter != "s":
        return ()
    return tuple(Config(Portable.name, _fast(shape, variant)) for shape in _FAST_SINGLE)


def _fast_pairs(shape: tuple[int, ...], variant: Variant) -> dict[str, Value]:
    """Return a shape read in single elements of 16 bytes, the widest load there is, or 32."""
    block_m, block_n, block_k, threads_m, threads_n, unroll_k, buffers, prefetch = shape
    number = threads_m * threads_n

    def along(side: int, k_fast: bool) -> int:
        # Of a side that is no power of two, the largest that divides it.
        return min(max(1, number // block_k), side) if k_fast else min(side & -side, number)

    return _SAME | {
        "block_m": block_m, "block_n": block_n, "block_k": block_k,
        "threads_m": threads_m, "threads_n": threads_n, "fragment_vector": 1, "strided": 1,
        "read_a_m": along(block_m, variant.trans_a.transposed),
        "read_b_n": along(block_n, not variant.trans_b.transposed),
        "read_vector": 1, "shared_buffers": buffers, "prefetch": prefetch, "unroll_k": unroll_k,
    }  # fmt: skip


def _fast(shape: tuple[int, ...], variant: Variant) -> dict[str, Value]:
    """Return a shape read so that a warp reads whole sectors and writes each bank once."""
    block_m, block_n, block_k, threads_m, threads_n, vector, buffers = shape
    number = threads_m * threads_n
    # Eight elements, a sector of 32 bytes, along k: a warp then writes 8 rows of 4 elements,
    # which the pad of 16 bytes puts on 32 banks.
    across = number * vector // 8

    def along(side: int, k_fast: bool) -> int:
        # 128 is the most the space has.
        return min(across, side, 128) if k_fast else min(side // vector, number, 128)

    return _SAME | {
        "block_m": block_m, "block_n": block_n, "block_k": block_k,
        "threads_m": threads_m, "threads_n": threads_n, "fragment_vector": 4, "strided": 1,
        "read_a_m": along(block_m, variant.trans_a.transposed),
        "read_b_n": along(block_n, not variant.trans_b.transposed),
        "read_vector": vector, "shared_buffers": buffers, "prefetch": 1, "unroll_k": block_k,
    }  # fmt: skip


def _square(
    side: int, threads: int, block_k: int, variant: Variant, device: DeviceSpec
) -> dict[str, Value]:
    """Return a square block, read with the longest runs that one element a read allows."""
    number = threads * threads
    size = variant.precision.element_bytes
    # 16 bytes, the widest read of shared memory on every GPU, and 4 elements, the space's most.
    vector = max(1, min(4, 16 // size))
    while vector > 1 and (vector * size > device.vector_bytes or side % (threads * vector)):
        vector //= 2
    along_m = min(side, number)
    along_k = number // min(block_k, number)
    return _SAME | {
        "block_m": side, "block_n": side, "block_k": block_k,
        "threads_m": threads, "threads_n": threads, "fragment_vector": vector,
        # With a single chunk a side both layouts are one, and the space keeps 0.
        "strided": int(side > threads * vector),
        "read_a_m": along_k if variant.trans_a.transposed else along_m,
        "read_b_n": along_m if variant.trans_b.transposed else along_k,
        "read_vector": 1, "shared_buffers": 1, "prefetch": 1, "unroll_k": block_k,
    }  # fmt: skip
