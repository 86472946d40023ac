"""The rungs: each a small kernel source of its own and its constants.

A rung is a stencil whose parameters have one value each, so that everything which compiles,
launches, checks and inspects stencils does so with rungs.  The kernels are written for row-major
matrices; `tilewright.problem.Problem` is column-major.  The row-major product of m x n x k is the
column-major problem of n x m x k with the operands exchanged, and ``block_m`` counts rows of the
row-major C.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from tilewright.hardware import DeviceSpec
from tilewright.space import Config, Parameter, Space
from tilewright.stencil import (
    STATIC_SHARED_BYTES,
    Dialect,
    Geometry,
    Mode,
    Resources,
    Source,
    Stencil,
    Variant,
    register,
)
from tilewright.stencil.geometry import PLAIN
from tilewright.stencil.source_files import read_source

__all__ = ["RUNGS", "Rung", "frozen", "register_rungs", "rung_text"]

_PACKAGE = "tilewright.bench.ladder"

# What a rung may fix, and what more of it costs.
_MEANINGS = {
    "block_m": ("rows of the row-major C a thread block computes", "registers or threads"),
    "block_n": ("columns of the row-major C a thread block computes", "registers or threads"),
    "block_k": ("steps in k between two barriers", "shared memory"),
    "tile_m": ("rows of C a thread computes", "registers"),
    "tile_n": ("columns of C a thread computes", "registers"),
    "warp_m": ("rows of C a warp computes", "registers"),
    "warp_n": ("columns of C a warp computes", "registers"),
    "stages": ("tiles of each operand in shared memory", "shared memory"),
    "band": ("block rows that the grid walks together", "too many: B is read anew"),
}
# 32-bit registers for pointers, counters and addresses, as in stencil/portable/resources.py.
_OTHER_REGISTERS = 32


class Rung(Stencil):
    """One step of the ladder: a kernel source with fixed constants.

    Attributes
    ----------
    title : str
        What is new, in a few words.
    idea : str
        Why that should help, in one sentence.
    threads : int
        Threads of a block.
    constants : Mapping
        The values of the only config.
    buffers, pad : int
        Tiles of each operand in shared memory, and elements behind A's columns there.
    ahead : bool
        Whether threads hold their share of the next tiles in registers.
    dialects : tuple of str
        What the source compiles as.
    suffix : str
        Of the source's file, whose name is the rung's.
    """

    version: ClassVar[int] = 1
    title: ClassVar[str]
    idea: ClassVar[str]
    threads: ClassVar[int]
    constants: ClassVar[Mapping[str, int]]
    buffers: ClassVar[int] = 0
    pad: ClassVar[int] = 0
    ahead: ClassVar[bool] = False
    dialects: ClassVar[tuple[Dialect, ...]] = ("opencl", "cuda")
    suffix: ClassVar[str] = "cl"

    @property
    def config(self) -> Config:
        """The only config."""
        return Config(self.name, self.constants)

    def suits(self, device: DeviceSpec) -> bool:
        """No: rungs are for learning, never what a tuner or `gemm` should choose."""
        return False

    def space(self, variant: Variant, device: DeviceSpec) -> Space:
        """Return the space of one point."""
        parameters = [
            Parameter(name, (value,), *_MEANINGS[name]) for name, value in self.constants.items()
        ]
        return Space(self.name, parameters)

    def default(self, variant: Variant, device: DeviceSpec) -> Config:
        """Return the only config."""
        return self.config

    def resources(self, config: Config, variant: Variant) -> Resources:
        """Return threads and shared memory, exact, and an estimate of registers."""
        of = self.constants
        tile_m, tile_n = of.get("tile_m", 1), of.get("tile_n", 1)
        tiles = of["block_k"] * (of["block_m"] + of["block_n"])
        held = tiles // self.threads if self.ahead else 0
        return Resources(
            threads=self.threads,
            shared_bytes=4 * self.buffers * (tiles + of["block_k"] * self.pad),
            registers=tile_m * tile_n + tile_m + tile_n + held + _OTHER_REGISTERS,
        )

    def geometry(self, config: Config) -> Geometry:
        """Return a line of blocks that covers a column-major m x n, a row-major n x m, result."""
        sides = self.constants["block_n"], self.constants["block_m"]
        return Geometry(*sides, (self.threads, 1))

    def source(
        self, config: Config, variant: Variant, dialect: Dialect, mode: Mode = PLAIN
    ) -> Source:
        """Return dialect, what rungs share, and the rung as one source, with its macros.

        Raises
        ------
        ValueError
            If the rung has no such variant or dialect.
        """
        if str(variant) != "snn":
            raise ValueError(f"variant={variant} has no {self.name}; rungs compute SGEMM NN only")
        if dialect not in self.dialects:
            raise ValueError(f"dialect={dialect!r} has no {self.name}; it is CUDA only")
        source = rung_text(dialect, "rung.h", f"{self.name}.{self.suffix}")
        defines: dict[str, int | str] = {n.upper(): v for n, v in self.constants.items()}
        shared = self.resources(config, variant).shared_bytes
        dynamic = shared if dialect == "cuda" and shared > STATIC_SHARED_BYTES else 0
        return Source(source, defines | {"THREADS": self.threads}, dynamic_shared_bytes=dynamic)


def rung_text(dialect: Dialect, *names: str) -> str:
    """Return a dialect and some files of the ladder's kernels as one text."""
    files = [read_source(f"kernels/{name}", _PACKAGE) for name in names]
    return "\n".join([read_source(f"prelude/dialect_{dialect}.h"), *files])


def frozen(**values: int) -> Mapping[str, int]:
    """Return constants by name, which nothing may change."""
    return MappingProxyType(values)


class Naive(Rung):
    """Rung 1."""

    name = "v1_naive"
    title = "naive"
    idea = "One thread computes one element of C, straight from device memory."
    threads = 256
    # 16 x 16 threads, which every OpenCL device can run; block_k is the step of its loop.
    constants = frozen(block_m=16, block_n=16, block_k=1, band=1)


class Shared(Rung):
    """Rung 2."""

    name = "v2_shared"
    title = "shared-memory tile"
    idea = "A block brings tiles of A and B into shared memory and uses each element 32 times."
    # The most threads that CUDA allows in a block: a tile is as large as its threads are many.
    threads = 1024
    constants = frozen(block_m=32, block_n=32, block_k=32, band=1)
    buffers = 1


class ThreadTile(Rung):
    """Rung 3."""

    name = "v3_thread_tile"
    title = "thread tile, unrolled"
    idea = "A thread keeps 8 x 8 elements of C in registers: 64 multiply-adds for 16 loads."
    threads = 256
    constants = frozen(block_m=128, block_n=128, block_k=8, tile_m=8, tile_n=8, band=1)
    buffers = 1


class DoubleBuffer(Rung):
    """Rung 4."""

    name = "v4_double_buffer"
    title = "double buffering"
    idea = "The next tile is on its way while this one is multiplied, with one barrier a step."
    threads = 256
    constants = ThreadTile.constants
    buffers, ahead = 2, True


class Vectors(Rung):
    """Rung 5."""

    name = "v5_vectors"
    title = "vector loads without bank conflicts"
    idea = "Loads of four elements, laid out so that a warp's lanes meet each bank once."
    threads = 256
    constants = ThreadTile.constants
    buffers, pad, ahead = 2, 4, True  # a vector behind A's columns


class WarpTile(Vectors):
    """Rung 6: rung 5's tiles in shared memory, other threads."""

    name = "v6_warp_tile"
    title = "warp tile, instruction parallelism"
    idea = "Lanes of a warp share operands, and load the next ones while they multiply."
    threads = 128
    constants = frozen(
        block_m=128, block_n=128, block_k=16, warp_m=64, warp_n=64, tile_m=16, tile_n=8, band=8
    )


class Async(Rung):
    """Rung 7."""

    name = "v7_async"
    title = "asynchronous copies, multi-stage pipeline"
    idea = "The hardware copies tiles into a ring in shared memory, several ahead of their use."
    threads = 128
    constants = frozen(
        block_m=128, block_n=128, block_k=16, warp_m=64, warp_n=64, tile_m=16, tile_n=8, stages=4,
        band=8,
    )  # fmt: skip
    buffers, pad = 4, 4  # the ring
    dialects = ("cuda",)
    suffix = "cu"


RUNGS: tuple[Rung, ...] = (
    Naive(), Shared(), ThreadTile(), DoubleBuffer(), Vectors(), WarpTile(), Async(),
)  # fmt: skip


def register_rungs() -> None:
    """Make rungs known by name, so that ``tilewright inspect --stencil v5_vectors`` finds them."""
    for one in RUNGS:
        register(one)
