"""The stencil fed by asynchronous copies: CUDA C++ for compute capability 8.0 and later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from tilewright.hardware import DeviceSpec
from tilewright.precision import Precision
from tilewright.problem import Problem
from tilewright.space import Config, Space
from tilewright.stencil.asynchronous.division import MOST_SHARES
from tilewright.stencil.asynchronous.resources import (
    BARRIER_BYTES,
    CHUNK_BYTES,
    room_to_stage,
    shared_bytes,
)
from tilewright.stencil.base import Call, Dialect, Launch, Resources, Source, Stencil, Variant
from tilewright.stencil.schedule import macros, schedule_of, unscheduled
from tilewright.stencil.simt_async.boxes import MOST_SIDE, MOST_STRIDE, box_words, maps
from tilewright.stencil.simt_async.constraints import constraints
from tilewright.stencil.simt_async.parameters import SECTOR_BYTES, parameters
from tilewright.stencil.simt_async.resources import longer, registers, threads
from tilewright.stencil.simt_async.starts import starts
from tilewright.stencil.slices import Slices
from tilewright.stencil.text import read_text

__all__ = ["STAGED_K", "SimtAsync", "layers", "stages_results"]

# Copies from device memory to shared memory came with this compute capability, times ten.
_ASYNCHRONOUS_COPIES_SINCE = 80

# Beyond so many steps along k results are stored as they are: on an H100 an element of C whose
# columns are not aligned costs 5 ps more, or 11 with lanes_m 4 (docs/hopper.md), an eighth at most
# of what 2048 multiply-adds take; and another text of a kernel may be a few per cent slower, by
# its registers.
STAGED_K = 2048

# Multiply-adds of a multiprocessor in a cycle, of floats, and of doubles on matrix units.
_A_CYCLE = 128

# Of the second kernel (sliced.cuh), for each block of the first; and their threads.  Where a
# multiprocessor had one of the first, it then has 1024 threads with two or three chunks each.
_SECOND_BLOCKS, _SECOND_THREADS = 4, 256


class SimtAsync(Stencil):
    """GEMM whose tiles are copied to shared memory while others are multiplied.

    Copies pass no register, so that threads have them for their part of C, and the loop
    holds little beside multiply-adds.  Small results share a tile of C among the blocks of
    a cluster (compute capability 9.0).
    """

    name: ClassVar[str] = "simt_async"
    version: ClassVar[int] = 2
    # What multiplies; kernel.cuh is the same for all.
    multiplier: ClassVar[str] = "simt_async/simt.cuh"
    # What copies an operand along k wherever its columns begin: here nothing but what does anyway.
    fitted_along_k: ClassVar[dict[str, int]] = {}
    # Of boxes: how wide one is whose lines the copy engine turns, and what a stage's barriers take.
    line_bytes: ClassVar[int] = 0
    barrier_bytes: ClassVar[int] = BARRIER_BYTES

    def suits(self, device: DeviceSpec) -> bool:
        """Whether the device runs CUDA and copies asynchronously."""
        capability = device.compute_capability
        return capability is not None and capability >= _ASYNCHRONOUS_COPIES_SINCE

    def computes(self, precision: Precision) -> bool:
        """Whether an element has at most 16 bytes, the most that is copied at once."""
        return precision.element_bytes <= CHUNK_BYTES

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
        return self.first_start(variant, device, "the portable stencil")

    def starts(self, variant: Variant, device: DeviceSpec) -> tuple[Config, ...]:
        """Return what is likely fast, the likeliest first."""
        return tuple(Config(self.name, values) for values in starts(variant))

    def resources(self, config: Config, variant: Variant) -> Resources:
        """Return threads and shared memory, exact, and an estimate of registers."""
        ring = ("block_m", "block_n", "block_k", "stages", "split_k")
        shared = shared_bytes(
            **{name: config.integer(name) for name in ring},
            stream_k=int(config.get("stream_k", 0)),
            warps_k=layers(config),
            tma=int(config.get("tma", 0)),
            barrier_bytes=self.barrier_bytes,
            precision=variant.precision,
            longer=self.longer(config, variant),
        )
        return Resources(self.threads(config), int(shared), self.registers(config, variant))

    def longer(self, config: Config, variant: Variant) -> int:
        """Return by how many elements rows of both tiles exceed the block's sides."""
        run_bytes = int(config.get("run_bytes", SECTOR_BYTES))
        block_k = config.integer("block_k")
        return int(longer(block_k, run_bytes, variant.precision, variant.k_fast))

    def registers(self, config: Config, variant: Variant) -> int:
        """Return the estimated registers of a thread."""
        return int(
            registers(
                tile_m=config.integer("tile_m"),
                tile_n=config.integer("tile_n"),
                tma=int(config.get("tma", 0)),
                precision=variant.precision,
                k_fast=variant.k_fast,
            )
        )

    def takes(self, config: Config, problem: Problem) -> bool:
        """Whether what comes in boxes has columns aligned to 16 bytes, and places they can name."""
        if not config.get("tma", 0):
            return True
        size = problem.precision.element_bytes
        chunk = max(1, CHUNK_BYTES // size)
        sides = max(problem.m, problem.n, problem.k) * box_words(problem.precision)
        strides = max(problem.lda, problem.ldb) * size
        aligned = problem.lda % chunk == problem.ldb % chunk == 0
        return aligned and sides < MOST_SIDE and strides < MOST_STRIDE

    def fitted(self, config: Config, problem: Problem) -> Config:
        """Return the config with copies of single elements where 16 bytes are not aligned.

        A kernel that copies 16 bytes at once checks each element where it cannot: everywhere, or
        where a side's last block begins earlier, so that it ends with the matrix.  One that
        copies single elements does not.  Neither does one that guards what lies outside of a
        matrix shorter than its blocks.  Where columns of C are not aligned, and sums are short
        or operands come in boxes, results are staged.  Else what comes in boxes is left as it is:
        `takes` says where it can be.
        """
        boxes = bool(config.get("tma", 0))
        chunk = max(1, CHUNK_BYTES // problem.precision.element_bytes)
        stages = stages_results(problem, boxes) and not config.get("sliced", 0)
        if stages and self._room_to_stage(config, problem):
            config = unscheduled(config).replace(staged=1)  # the scheduler refuses both at once
        if boxes:
            return config
        along = Variant.of(problem).k_fast
        sides = (problem.m, problem.lda), (problem.n, problem.ldb)
        operands = tuple(zip(sides, along, strict=True))
        changes: dict[str, int] = {}
        if any(side % chunk or ld % chunk for (side, ld), k_fast in operands if not k_fast):
            changes = {"narrow": 1}
        elif any(ld % chunk or problem.k % chunk for (_, ld), k_fast in operands if k_fast):
            changes = self.fitted_along_k
        changes = changes | self._guards(config, problem)
        return config.replace(**{n: v for n, v in changes.items() if config.get(n, 0) != v})

    def _guards(self, config: Config, problem: Problem) -> dict[str, int]:
        """Return what lets blocks that are longer than a side copy whole tiles.

        Pieces of 16 bytes along that side have to end with it; else they are single elements.
        """
        chunk = max(1, CHUNK_BYTES // problem.precision.element_bytes)
        sides = zip((problem.m, problem.n), "mn", Variant.of(problem).k_fast, strict=True)
        short = [(side, k) for side, of, k in sides if side < config.integer(f"block_{of}")]
        if not short:
            return {}
        ragged = any(side % chunk for side, k_fast in short if not k_fast)
        return {"guarded": 1} | ({"narrow": 1} if ragged else {})

    def _room_to_stage(self, config: Config, problem: Problem) -> bool:
        """Whether results may pass through the stage that is free while they are stored."""
        values = {name: config.integer(name) for name in ("block_m", "block_n", "block_k")}
        number = self.threads(config)
        return bool(room_to_stage(**values, threads=number, precision=problem.precision))

    def operand_alignment(self, config: Config) -> int:
        """Return the bytes that addresses and leading dimensions of A and B are multiples of."""
        return CHUNK_BYTES if config.get("tma", 0) else 1

    def common_arguments(self, config: Config) -> bool:
        """Whether there are no tensor maps among them."""
        return not config.get("tma", 0)

    def arguments(self, config: Config, variant: Variant, call: Call) -> tuple[Any, ...]:
        """Return the common arguments, and tensor maps of operands that come in boxes.

        Raises
        ------
        ValueError
            If columns of one of these are not aligned to 16 bytes.
        """
        found = call.arguments()
        if not config.get("tma", 0):
            return found
        return (*found, *maps(config, variant, call, self.line_bytes))

    def launch(self, config: Config, m: int, n: int, k: int = 0) -> Launch:
        """Return a grid in one dimension, blocks of a cluster side by side.

        Blocks that stay are cut to what fits; where they share tiles with all others, there
        are at most `MOST_SHARES` for a tile.
        """
        blocks_m = -(-m // config.integer("block_m"))
        blocks_n = -(-n // config.integer("block_n"))
        blocks = blocks_m * blocks_n * config.integer("split_k")
        launch = Launch(grid=(blocks, 1), block=(self.threads(config), 1))
        if config.get("sliced", 0):
            return replace(
                launch,
                slices=self._slices(config, k),
                second_blocks=_SECOND_BLOCKS,
                second_threads=_SECOND_THREADS,
            )
        if not config.get("persistent", 0):
            return launch
        shares = MOST_SHARES if config.get("stream_k", 0) else 1
        return replace(launch, grid=(blocks * shares, 1), resident=config.integer("resident"))

    def _slices(self, config: Config, k: int) -> Slices:
        """Return how a launch may be cut along k."""
        area, depth = config.integer("block_m") * config.integer("block_n"), "block_k"
        resident = config.integer("resident")
        step = area * config.integer(depth) * resident / _A_CYCLE
        # Bytes of floats; what larger elements take besides, their multiply-adds take, too.
        return Slices(-(-k // config.integer(depth)), step, 4 * area, resident)

    def threads(self, config: Config) -> int:
        """Return the threads of a block."""
        sides = {name: config.integer(name) for name in ("block_m", "block_n", "tile_m", "tile_n")}
        return int(threads(**sides, warps_k=layers(config)))

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
            self.multiplier,
            "simt_async/kernel.cuh",
        )
        defines: dict[str, int | str] = {**variant.macros}
        # A config need not name these.
        grid = ("PERSISTENT", "STREAM_K", "TREE", "SLICED")
        ways = ("NARROW", "GUARDED", "STAGED", "WAYS_APART", "TMA")
        defines |= dict.fromkeys((*grid, *ways), 0) | {"WARPS_K": 1}
        if config.get("sliced", 0):
            defines |= {"SECOND_BLOCKS": _SECOND_BLOCKS, "SECOND_THREADS": _SECOND_THREADS}
        defines |= macros(config)
        shared = self.resources(config, variant).shared_bytes
        part = config.integer("block_m") * config.integer("block_n")
        leaves = config.get("stream_k", 0) or config.get("sliced", 0)
        part *= variant.precision.element_bytes if leaves else 0
        text = "\n".join(read_text(name) for name in parts)
        return Source(
            text,
            defines,
            dynamic_shared_bytes=shared,
            part_bytes=part,
            second="add_parts_of_slices" if config.get("sliced", 0) else "",
            schedule=schedule_of(config),
        )


def layers(config: Config) -> int:
    """Return how many layers of warps multiply a block's tile; an old config names none."""
    return int(config.get("warps_k", 1))


def stages_results(problem: Problem, boxes: bool = False) -> bool:
    """Return whether results should be staged: some columns of C, or their ends, are not aligned.

    Where C begins is not known here, and is aligned in nearly all arrays.  `boxes`: operands come
    in boxes, whose loop keeps its registers whatever comes behind it, so that long sums lose
    nothing.
    """
    chunk = CHUNK_BYTES // problem.precision.element_bytes
    if chunk <= 1 or (problem.k > STAGED_K and not boxes):
        return False
    return problem.ldc % chunk > 0 or problem.m % chunk > 0
