"""The portable stencil: one text, specialised by macros, for OpenCL C and CUDA C++."""

from __future__ import annotations

from typing import ClassVar

from tilewright.hardware import DeviceSpec
from tilewright.space import Config, Space, Value
from tilewright.stencil.base import Dialect, Launch, Resources, Source, Stencil, Variant
from tilewright.stencil.portable.constraints import Thresholds, constraints
from tilewright.stencil.portable.parameters import parameters
from tilewright.stencil.portable.resources import registers, shared_bytes
from tilewright.stencil.text import read_text

__all__ = ["Portable"]

# Defaults from the largest to those that most devices run: block_m = block_n, the threads
# along each side, block_k.  The last is for devices of few threads in a block.
_DEFAULTS = ((128, 16, 8), (64, 16, 8), (64, 8, 8), (32, 16, 8), (16, 8, 8), (16, 4, 4))


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
    version: ClassVar[int] = 1

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self.thresholds = thresholds or Thresholds()

    def suits(self, device: DeviceSpec) -> bool:
        """Whether the device is a GPU; CPUs run it, but the packed stencil is theirs."""
        return device.kind == "gpu"

    def space(self, variant: Variant, device: DeviceSpec) -> Space:
        """Return the parameters and constraints for a variant on a device."""
        return Space(self.name, parameters(), constraints(variant, device, self.thresholds))

    def default(self, variant: Variant, device: DeviceSpec) -> Config:
        """Return the largest of a few square shapes that the device runs.

        A shape that no constraint rules out is preferred to one that only some
        heuristic does, as on devices with unusual limits.

        Raises
        ------
        ValueError
            If the device runs none of them; the message says what stands against
            the smallest.
        """
        space = self.space(variant, device)
        candidates = [_square(*shape, variant, device) for shape in _DEFAULTS]
        violated = [space.violated(values) for values in candidates]
        for kinds in ({"heuristic", "hardware", "divisibility"}, {"hardware", "divisibility"}):
            for values, against in zip(candidates, violated, strict=True):
                if not any(constraint.kind in kinds for constraint in against):
                    return Config(self.name, values)
        reasons = "; ".join(constraint.reason for constraint in violated[-1])
        raise ValueError(f"device={device.name!r} runs no default of {self.name}: {reasons}")

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

    def launch(self, config: Config, m: int, n: int) -> Launch:
        """Return a grid in one dimension: the kernel folds it by its raster order.

        CUDA allows 2^31 - 1 blocks in the first dimension, but 65535 in the second.
        """
        blocks_m = -(-m // config.integer("block_m"))
        blocks_n = -(-n // config.integer("block_n"))
        threads = config.integer("threads_m") * config.integer("threads_n")
        return Launch(grid=(blocks_m * blocks_n, 1), block=(threads, 1))

    def source(self, config: Config, variant: Variant, dialect: Dialect) -> Source:
        """Return dialect, prelude and kernel as one text, with its macros."""
        parts = (
            f"prelude/dialect_{dialect}.h",
            f"prelude/{variant.precision.letter}.h",
            "portable/kernel.cl",
        )
        defines: dict[str, int | str] = {
            "TRANS_A": int(variant.trans_a.transposed),
            "CONJ_A": int(variant.trans_a.conjugated),
            "TRANS_B": int(variant.trans_b.transposed),
            "CONJ_B": int(variant.trans_b.conjugated),
        }
        defines |= {name.upper(): config[name] for name in config}
        return Source("\n".join(read_text(part) for part in parts), defines)


def _square(
    side: int, threads: int, block_k: int, variant: Variant, device: DeviceSpec
) -> dict[str, Value]:
    """Return a square block, read with the longest runs that one element a read allows."""
    number = threads * threads
    size = variant.precision.element_bytes
    # 16 bytes, the widest read of shared memory on every GPU.
    vector = max(1, 16 // size)
    while vector > 1 and (vector * size > device.vector_bytes or side % (threads * vector)):
        vector //= 2
    along_m = min(side, number)
    along_k = number // min(block_k, number)
    return {
        "block_m": side,
        "block_n": side,
        "block_k": block_k,
        "threads_m": threads,
        "threads_n": threads,
        "fragment_vector": vector,
        # With a single chunk a side both layouts are one, and the space keeps 0.
        "strided": int(side > threads * vector),
        "read_a_m": along_k if variant.trans_a.transposed else along_m,
        "read_b_n": along_m if variant.trans_b.transposed else along_k,
        "read_vector": 1,
        "pad": 1,
        "shared_buffers": 1,
        "prefetch": 1,
        "unroll_k": block_k,
        "raster_rows": 8,
    }
