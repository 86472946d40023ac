"""How a kernel's launches follow from a problem: data that a portfolio stores and C code reads.

::

         n ->
      +------+------+------+     a thread block computes tile_m x tile_n of C, tile_k steps of k
    m | tile | tile | tile |     at a time; a cluster of cluster_m x cluster_n such tiles is
    | +------+------+------+     launched whole, and cluster_k blocks may share one tile
    v | tile | tile | tile |
      +------+------+------+

A data-parallel launch has a block for each tile.  A persistent one has as many blocks as the device
holds, which take one tile after another; with stream-K they also share tiles along k.  Parallel
split-K launches a block for each part of k of each tile, and a reduction kernel behind them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

from tilewright.dataclass import dataclass
from tilewright.precision import Precision
from tilewright.problem import Problem

__all__ = [
    "LEAST_STREAMED",
    "MODES",
    "MOST_PARTS",
    "MOST_PLACES",
    "MOST_SHARES",
    "MOST_STRIDE",
    "PART_BYTES_A_CYCLE",
    "PLAIN",
    "STAGED_BYTES",
    "WAVE_CYCLES",
    "Geometry",
    "Launch",
    "Mode",
    "SplitK",
    "elements_of_chunk",
    "with_aligned_operands",
]

# Adding up more parts of a tile than this takes longer than computing them (stream-K).
MOST_SHARES = 64

# Parts of a tile in parallel split-K, where a stencil says nothing else: one for each of an H100's
# multiprocessors.  Of 64, 132, 264 and 528 it took the least time for single tiles on an H100.
MOST_PARTS = 132

# Estimates for an H100, in cycles.  What a wave of blocks takes beside its steps along k, 4 us; and
# bytes of parts that are written, and read again by the reduction kernel, in a cycle.
WAVE_CYCLES, PART_BYTES_A_CYCLE = 8000, 1500

# What the copy instructions and the copy engine take at once, where columns are aligned to it.
_CHUNK_BYTES = 16

# Of shared memory for each thread that stores through it: two places of a chunk (staged.cuh).
STAGED_BYTES = 2 * _CHUNK_BYTES

# cuTensorMapEncodeTiled: a box's place is told in signed 32-bit numbers; strides are below 2^40.
MOST_PLACES, MOST_STRIDE = 2**31, 2**40

# Bytes of elements that threads copy one by one, where kernels with TMA do not take them.
_COPIED_BYTES = 4

# Rows of an operand of 16 bits that is streamed across k: a lane has as many.  With fewer, copies
# along k take less (H100, 2026-11-27).
LEAST_STREAMED = 8


@dataclass(frozen=True)
class Mode:
    """What a kernel is compiled in besides its config: a problem's alignment asks for it.

    Any kernel is right for any problem in each of its modes.

    Parameters
    ----------
    scalar : bool
        Copies of single elements: columns of A or B are not aligned to 16 bytes.
    clamped : bool
        Loads that stay inside the matrix where a tile is longer than its side.
    staged : bool
        Results stored through shared memory: columns of C are not aligned to 16 bytes.
    """

    scalar: bool = False
    clamped: bool = False
    staged: bool = False

    def __str__(self) -> str:
        return "+".join(self.names) or "plain"

    @property
    def names(self) -> tuple[str, ...]:
        """What it has."""
        return tuple(one.name for one in fields(self) if getattr(self, one.name))

    @property
    def number(self) -> int:
        """Its place in `MODES`."""
        return self.scalar + 2 * self.clamped + 4 * self.staged

    def __or__(self, other: Mode) -> Mode:
        """Return what has all of both."""
        return Mode(**dict.fromkeys((*self.names, *other.names), True))

    @classmethod
    def parse(cls, text: str) -> Mode:
        """Return the mode that `str` writes so.

        Raises
        ------
        ValueError
            If a word is unknown.
        """
        words = [] if text == "plain" else text.split("+")
        try:
            return cls(**dict.fromkeys(words, True))
        except TypeError:
            known = sorted(one.name for one in fields(cls))
            unknown = next(word for word in words if word not in known)
            raise ValueError(
                f"mode={text!r}: {unknown!r} is unknown; use plain, or {', '.join(known)}, "
                "several joined by +"
            ) from None


PLAIN = Mode()
MODES = tuple(Mode(bool(x & 1), bool(x & 2), bool(x & 4)) for x in range(8))


@dataclass(frozen=True)
class SplitK:
    """Parallel split-K: into how many parts the steps along k of each tile are cut.

    Parameters
    ----------
    step_cycles : float
        That a multiprocessor takes for a step (tile_k of k) of all its blocks.
    part_bytes : int
        Of the sums that a block leaves.
    reduction_blocks, reduction_threads : int
        Of the reduction kernel: blocks for each block of the first, and threads of each.
    most_parts : int
        Of a tile.
    reduction_cycles : float
        That the reduction kernel takes beside its bytes.  Where a tile is one part, the block that
        computes it stores it and there is no reduction kernel; 0, in portfolios made before blocks
        did so: there always is one.
    """

    step_cycles: float
    part_bytes: int
    reduction_blocks: int
    reduction_threads: int
    most_parts: int = MOST_PARTS
    reduction_cycles: float = 0.0

    def reduces(self, parts: int) -> bool:
        """Whether the reduction kernel runs behind so many parts of a tile."""
        return parts > 1 or not self.reduction_cycles

    def parts(self, steps: int, tiles: int, at_once: int) -> int:
        """Return the number of parts that is expected to take the shortest time.

        Parameters
        ----------
        steps : int
            Along k, of a tile: at most so many parts.
        tiles : int
            Of C.
        at_once : int
            Blocks that the device holds.
        """
        best, least = 1, math.inf
        for parts in range(1, max(1, min(self.most_parts, steps)) + 1):
            moved = parts * tiles * self.part_bytes / PART_BYTES_A_CYCLE
            if moved >= least:
                break  # more parts move more
            waves = -(-tiles * parts // at_once)
            wave = -(-steps // parts) * self.step_cycles + WAVE_CYCLES
            cycles = waves * wave + moved + (self.reduction_cycles if parts > 1 else 0.0)
            if cycles < least:
                best, least = parts, cycles
        return best


@dataclass(frozen=True)
class Launch:
    """Thread blocks in the grid and threads in a block, two dimensions each.

    Parameters
    ----------
    grid, block : tuple of int
        Sizes in x and y.
    resident : int
        Where it is not 0, blocks are persistent: `on` cuts the grid, which has a block for each
        piece of work, to so many a multiprocessor.
    cluster : int
        Blocks of a cluster, which are launched whole.
    early : bool
        Whether blocks may begin before the launch before it on the stream has ended, where a
        device can: the kernel waits for that by itself, before it touches memory.
    split_k : SplitK or None
        How `on` cuts the work of the grid, which has a block for each tile of C; None: not at all.
    steps : int
        Along k, of a tile, that `split_k` cuts.
    held : int
        Blocks that a multiprocessor holds at a time, where `split_k` cuts.
    second_blocks, second_threads : int
        Of the source's second function, for each block of the first, and threads of each; without
        blocks it is not launched.
    batch : int
        Blocks in z: matrices of a batched kernel, problems of one for groups.
    """

    grid: tuple[int, int]
    block: tuple[int, int]
    resident: int = 0
    cluster: int = 1
    early: bool = False
    split_k: SplitK | None = None
    steps: int = 0
    held: int = 1
    second_blocks: int = 0
    second_threads: int = 0
    batch: int = 1

    @cached_property
    def threads(self) -> tuple[int, ...]:
        """Threads of the whole grid in x and y, and in z where it has more than one."""
        plane = tuple(g * b for g, b in zip(self.grid, self.block, strict=True))
        return (*plane, self.batch) if self.batch > 1 else plane

    def on(self, multiprocessors: int) -> Launch:
        """Return the launch as a device with so many multiprocessors runs it."""
        if self.split_k is not None:
            tiles = self.grid[0]
            parts = self.split_k.parts(self.steps, tiles, self.held * multiprocessors)
            behind = self.second_blocks if self.split_k.reduces(parts) else 0
            return replace(self, grid=(tiles * parts, 1), split_k=None, second_blocks=behind)
        if not self.resident:
            return self
        most = self.resident * multiprocessors // self.cluster * self.cluster
        return replace(self, grid=(min(self.grid[0], max(self.cluster, most)), 1))

    @property
    def second(self) -> Launch | None:
        """How the second function is launched, if it is; it may begin early."""
        if not self.second_blocks:
            return None
        blocks = self.grid[0] * self.second_blocks, self.grid[1]
        threads = (self.second_threads, 1)
        return Launch(blocks, threads, early=True)


@dataclass(frozen=True)
class Geometry:
    """How a kernel's launches cover a result.

    Parameters
    ----------
    tile_m, tile_n : int
        Elements of C that a thread block computes.
    threads : tuple of int
        Of a block, in x and y.
    tile_k : int
        Steps along k between two barriers; 1 where a kernel has no such tiles.
    stages : int
        Tiles of each operand in shared memory.
    resident : int
        Blocks that a multiprocessor holds at a time; 0 where only the compiler knows.
    folded : bool
        Whether all blocks lie in x; else those along n lie in y.
    cluster_m, cluster_n : int
        Blocks of a cluster along each side of C, launched whole.
    cluster_k : int
        Blocks of a cluster that share the steps along k of one tile.
    persistent : bool
        Whether blocks are persistent: as many as fit take one tile after another.
    stream_k : int
        Tiles that all blocks share along k: 0: none, 1: those of the last wave where it is not
        full, 2: of the last full wave, too.
    tree : bool
        Whether the parts of a shared tile are added up by halves.
    split_k : SplitK, optional
        Parallel split-K.
    tma : bool
        Whether the copy engine brings operands, whose columns are aligned to 16 bytes then.
    tma_line_bytes : int
        With `tma`: what sides of operands contiguous along m or n are multiples of; 0: anything.
        A side that is no whole lines is brought line by line, which took ZGEMM 1.1 to 1.4 times
        as long.
    vector_along_k : bool
        Whether operands contiguous along k are copied 16 bytes at once, too; else element by
        element, wherever their columns begin.
    stages_k : int
        Results are staged, where there is room, for sums of at most so many steps; 0: never.
    most_k : int
        Sums of so many steps at most are what the kernel is for; 0: of any length.
    streamed : int
        Which operand is read once, straight to registers, while the other one is short: 1: A,
        2: B; 0: neither.  Such a kernel sees by itself how that operand is aligned: one instance
        serves every mode.  Of 16 and 8 bits it is for products whose other side is no longer,
        and across k for sides of `LEAST_STREAMED` and more.
    any_alignment : bool
        Whether threads see by themselves how operands are aligned, shift what they copy into
        place, or copy single elements, so that one instance serves every mode.
    early : bool
        Whether blocks may begin before the launch before it has ended, as of `Launch`.
    products : int
        Of a batch, that a block computes.
    """

    tile_m: int
    tile_n: int
    threads: tuple[int, int]
    tile_k: int = 1
    stages: int = 1
    resident: int = 0
    folded: bool = True
    cluster_m: int = 1
    cluster_n: int = 1
    cluster_k: int = 1
    persistent: bool = False
    stream_k: int = 0
    tree: bool = False
    split_k: SplitK | None = None
    tma: bool = False
    tma_line_bytes: int = 0
    vector_along_k: bool = False
    stages_k: int = 0
    most_k: int = 0
    streamed: int = 0
    any_alignment: bool = False
    early: bool = False
    products: int = 1

    def tiles(self, m: int, n: int) -> tuple[int, int]:
        """Return the tiles of an m x n result along each side, of whole clusters."""
        rows = -(-m // (self.tile_m * self.cluster_m)) * self.cluster_m
        return rows, -(-n // (self.tile_n * self.cluster_n)) * self.cluster_n

    @property
    def batches(self) -> bool:
        """Whether a launch may compute many products, each by blocks of its own.

        Blocks that take tile after tile, or share a workspace, are of one product; so are tensor
        maps, but for those that say otherwise.  A streaming kernel stores whole tiles where the
        launch has a block for each.
        """
        whole = self.split_k is None or self.streamed > 0
        return whole and self.folded and not (self.tma or self.persistent or self.stream_k)

    def batched(self, m: int, n: int, batch: int) -> Launch:
        """Return the launch for m x n results of so many products, where a kernel `batches`.

        Products have blocks of their own in z, but persistent ones take the tiles of all.
        """
        whole = replace(self, split_k=None, stream_k=0).launch(m, n)
        if self.persistent:
            return replace(whole, grid=(whole.grid[0] * batch, 1))
        return replace(whole, batch=-(-batch // self.products))

    def grouped(self, sizes: Sequence[tuple[int, int]]) -> Launch:
        """Return the launch for m x n results, where a kernel is one for groups."""
        most = max(math.prod(self.tiles(*size)) for size in sizes)
        return Launch((most, 1), self.threads, batch=len(sizes))

    def launch(self, m: int, n: int, k: int = 0) -> Launch:
        """Return the launch for an m x n result of sums of k."""
        along_m, along_n = self.tiles(m, n)
        if not self.folded:
            return Launch((along_m * self.cluster_k, along_n), self.threads, early=self.early)
        blocks = along_m * along_n * self.cluster_k
        if self.split_k is not None:
            cut = self.split_k
            return Launch(
                (blocks, 1),
                self.threads,
                early=self.early,
                split_k=cut,
                steps=-(-k // self.tile_k),
                held=max(1, self.resident),
                second_blocks=cut.reduction_blocks,
                second_threads=cut.reduction_threads,
            )
        if self.stream_k:
            blocks *= MOST_SHARES
        cluster = self.cluster_m * self.cluster_n * self.cluster_k
        resident = self.resident if self.persistent else 0
        return Launch((blocks, 1), self.threads, resident, cluster, self.early)

    @property
    def takes_all(self) -> bool:
        """Whether the kernel takes any problem, however its operands lie."""
        return not (self.tma or self.most_k or self.streamed)

    @property
    def reads_unaligned(self) -> bool:
        """Whether the kernel stands in for those with TMA where columns are not aligned."""
        return self.any_alignment and self.takes_all

    def is_for(self, problem: Problem) -> bool:
        """Whether the kernel is for a problem of such sides, however its operands lie."""
        p = problem
        if self.most_k and p.k > self.most_k:
            return False
        if not self.streamed or p.precision.element_bytes > 2:
            return True
        other, side, along_k = p.m, p.n, not p.trans_b.transposed
        if self.streamed == 1:
            other, side, along_k = p.n, p.m, p.trans_a.transposed
        return other <= side and (along_k or side >= LEAST_STREAMED)

    def takes(self, problem: Problem, aligned: bool = True) -> bool:
        """Whether the kernel is for a problem, and reads its operands as they lie.

        Elements of 32 bits that threads copy one by one take as long where they are aligned:
        kernels with TMA are for those, and for batches of all that is aligned.

        Parameters
        ----------
        problem : Problem
            Sizes and leading dimensions.
        aligned : bool
            Whether A and B begin at multiples of 16 bytes.
        """
        if not self.is_for(problem):
            return False
        p, size, chunk = problem, problem.precision.element_bytes, elements_of_chunk(problem)
        unaligned = self.reads_unaligned and (size == _COPIED_BYTES or p.batch > 1)
        if not (self.tma or unaligned):
            return True
        line = max(1, self.tma_line_bytes // size)
        lines = (p.trans_a.transposed or p.m % line == 0) and (
            not p.trans_b.transposed or p.n % line == 0
        )
        # A map's elements have 8 bytes at most.
        places = max(p.m, p.n, p.k) * max(1, size // 8) < MOST_PLACES
        reach = max(p.lda, p.ldb) * size < MOST_STRIDE
        whole = aligned and places and reach and p.lda % chunk == p.ldb % chunk == 0
        return whole and lines if self.tma else not whole

    def may_stage(self, precision: Precision) -> bool:
        """Whether results may pass through the stage that is free while they are stored."""
        stage = self.tile_k * (self.tile_m + self.tile_n) * precision.element_bytes
        return self.stages_k > 0 and self.threads[0] * STAGED_BYTES <= stage

    def mode(self, problem: Problem) -> Mode:
        """Return the launch mode that suits a problem's sizes and leading dimensions.

        A kernel that copies 16 bytes at once checks each element where it cannot: everywhere, or
        where a side's last tile begins earlier, so that it ends with the matrix.  With scalar
        copies it does not; neither does it with clamped loads where a side is shorter than the
        tile.
        """
        if self.streamed or self.any_alignment:
            return PLAIN
        p, chunk = problem, elements_of_chunk(problem)
        staged = self.may_stage(p.precision) and p.k <= self.stages_k
        staged = staged and (p.ldc % chunk > 0 or p.m % chunk > 0)
        if self.tma:
            return Mode(staged=staged)
        sides = (p.m, p.lda, self.tile_m, p.trans_a.transposed), (
            p.n, p.ldb, self.tile_n, not p.trans_b.transposed
        )  # fmt: skip
        scalar = clamped = False
        for side, ld, tile, along_k in sides:
            short = side < tile
            clamped |= short
            if along_k:
                scalar |= self.vector_along_k and (ld % chunk > 0 or p.k % chunk > 0)
            else:
                scalar |= side % chunk > 0 or ld % chunk > 0
        return Mode(scalar, clamped, staged)


def elements_of_chunk(problem: Problem) -> int:
    """Return how many elements are copied or stored at once where they are aligned."""
    return max(1, _CHUNK_BYTES // problem.precision.element_bytes)


def with_aligned_operands(problem: Problem) -> Problem:
    """Return a problem with columns of A and B at multiples of 16 bytes, as their copies have.

    Matrices of a batch that are not all one lie behind each other.
    """
    chunk = elements_of_chunk(problem)
    lda, ldb = (-(-ld // chunk) * chunk for ld in (problem.lda, problem.ldb))
    steps: Any = {name: None for name in ("step_a", "step_b") if getattr(problem, name)}
    return replace(problem, lda=lda, ldb=ldb, **steps)
