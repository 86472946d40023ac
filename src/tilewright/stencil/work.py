"""What launches have to do: counted from kernels' geometries, all kernels at once as arrays.

For the busiest multiprocessor and for the device (`TERMS`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.problem import Problem
from tilewright.stencil.geometry import (
    MOST_SHARES,
    PART_BYTES_A_CYCLE,
    STAGED_BYTES,
    WAVE_CYCLES,
    Geometry,
    elements_of_chunk,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["LEAST_SHARE", "MOST_IN_TREE", "MOST_SINGLE", "TERMS", "Work"]

TERMS = (
    "launch",  # 1
    "vector steps",  # of k, of all tiles of the busiest multiprocessor, 16 bytes copied at once
    "scalar steps",  # the same where single elements are copied
    "tiles",  # that the busiest multiprocessor stores, or parts of them
    "latencies",  # of copies, one after another
    "memory",  # MB of A, B and C; of a streamed operand for each tile of the short side
    "L2",  # MB read from the L2, and parts of shared tiles
    "ragged C",  # millions of elements of C whose columns are not aligned to 16 bytes
    "parts",  # of a tile that are added up one after another; 1 where threads share them
    "split-K",  # MB of parts that a reduction kernel adds up
    "waves",  # tiles that a persistent block takes, one after another
)

# Blocks of a cluster are neighbours on the chip, so that some of its corners stay empty: of 132
# multiprocessors clusters of 4 reach 124 and clusters of 8 reach 120.
_REACHED = {4: 124 / 132, 8: 120 / 132}

# Kernels count steps of shared tiles in 32 bits; where these are too few, all tiles are whole.
_MOST_STEPS = 2**32 - 1

# Shares of k that persistent blocks take (division.cuh).  A share has at least so many steps, as
# LEAST_STEPS of simt_async/persistent.cuh says.
LEAST_SHARE = 64

# In single precision: an owner adds parts up one after another, 2 us each on an H100, where 50
# shares of one tile of 128 x 128, k 3126, took 94 us.  By costs as once fitted to such shapes the
# best number grows with the root of k, from 7 at 1024 to 20 at 8192; with 12 none of these is
# slower than with its own by more than a seventh.
MOST_SINGLE = 12

# The same where parts are added up by halves: an owner then waits for five parts one after another.
MOST_IN_TREE = 32


def _up(x: Ints | int, by: Ints | int) -> Ints:
    """Return quotients rounded up."""
    return -(-np.asarray(x, np.int64) // by)


class Work:
    """What launches of some kernels have to do.

    Parameters
    ----------
    geometries : sequence of Geometry
        Of the kernels.
    """

    def __init__(self, geometries: Sequence[Geometry]) -> None:
        def of(name: str) -> Ints:
            return np.array([int(getattr(one, name)) for one in geometries], np.int64)

        self._tile_m, self._tile_n, self._tile_k = of("tile_m"), of("tile_n"), of("tile_k")
        self._cluster_m, self._cluster_n = of("cluster_m"), of("cluster_n")
        self._cluster_k, self._stages = of("cluster_k"), of("stages")
        self._resident = np.maximum(1, of("resident"))
        self._persistent, self._stream_k = of("persistent") > 0, of("stream_k")
        self._tree, self._along_k = of("tree") > 0, of("vector_along_k") > 0
        self._tma = of("tma") > 0
        self._area = self._tile_m * self._tile_n
        self._split = np.array([one.split_k is not None for one in geometries])
        self._splits = np.flatnonzero(self._split)
        cuts = [one.split_k for one in geometries if one.split_k is not None]
        self._step_cycles = np.array([[one.step_cycles] for one in cuts])
        self._part_bytes = np.array([[one.part_bytes] for one in cuts])
        most = [one.most_parts for one in cuts]
        self._most_parts = np.array([[each] for each in most], np.int64)
        self._reduction_cycles = np.array([[one.reduction_cycles] for one in cuts])
        self._direct = np.zeros(len(geometries), np.bool_)
        self._direct[self._splits] = [one.reduction_cycles > 0 for one in cuts]
        self._numbers = np.arange(1, max(most, default=1) + 1, dtype=np.int64)
        reached = [_REACHED.get(one.cluster_k, 1.0) for one in geometries]
        self._reached = np.array(reached)
        self._stages_k, self._streamed = of("stages_k"), of("streamed")
        self._plain = (self._streamed > 0) | (of("any_alignment") > 0)
        # Bytes of a stage for each that a thread stores its results through.
        stage = self._tile_k * (self._tile_m + self._tile_n)
        threads = np.array([max(1, one.threads[0]) for one in geometries])
        self._stage = stage / (threads * STAGED_BYTES)

    def work(self, problem: Problem, multiprocessors: int) -> Floats:
        """Return what a launch of each kernel has to do: a column for each of `TERMS`."""
        p, size = problem, problem.precision.element_bytes
        rows = _up(p.m, self._tile_m * self._cluster_m) * self._cluster_m
        columns = _up(p.n, self._tile_n * self._cluster_n) * self._cluster_n
        tiles, steps = rows * columns * p.batch, _up(p.k, self._tile_k)
        # Batches are of whole tiles.
        parts = self._parts(steps, tiles, multiprocessors) if p.batch == 1 else np.ones_like(tiles)
        reached = np.maximum(1, np.rint(multiprocessors * self._reached)).astype(np.int64)
        # Data-parallel: whole blocks, one after another.
        blocks = tiles * self._cluster_k * parts
        each = _up(blocks, reached)
        # In units of k: a kernel steps through whole tiles of it.
        long = each * _up(steps, parts) * self._tile_k / self._cluster_k
        stored, added, waves, left = each, np.zeros_like(each), np.zeros_like(each), 0 * each
        if self._persistent.any():
            held = self._shared(p, tiles, steps, multiprocessors)
            stays = self._persistent
            long = np.where(stays, held[0] * self._tile_k, long)
            stored, added, waves, left = (
                np.where(stays, mine, other)
                for mine, other in zip(held[1:], (stored, added, waves, left), strict=True)
            )
        together = np.clip(each, 1, self._resident)
        waits = long / self._tile_k / together / np.maximum(1, self._stages - 1)
        passed = p.k * (_up(p.n, self._tile_n) * p.m + _up(p.m, self._tile_m) * p.n) * p.batch
        area = p.m * p.n * p.batch
        scalar = self._scalar(p)
        ragged = p.ldc % elements_of_chunk(p) != 0
        reduced = self._split & ((parts > 1) | ~self._direct) & (p.batch == 1)
        added = np.where(reduced, np.where(self._streamed > 0, 1, parts), added)
        # A streamed operand is read anew for each tile of the short side.
        read = (
            p.m * p.k * np.where(self._streamed == 1, columns, 1)
            + p.k * p.n * np.where(self._streamed == 2, rows, 1)
        ) * p.batch  # fmt: skip
        does = np.empty((len(tiles), len(TERMS)))
        columns_of_work: tuple[Any, ...] = (
            1.0,
            np.where(scalar, 0, long),
            np.where(scalar, long, 0),
            stored,
            waits,
            size * (read + area) * 1e-6,
            size * (passed + 2 * left * self._area) * 1e-6,
            np.where(ragged & (self._streamed == 0) & ~reduced, area * 1e-6, 0.0),
            added,
            np.where(reduced, size * blocks * self._area * 1e-6, 0.0),
            waves,
        )
        for term, value in enumerate(columns_of_work):
            does[:, term] = value
        return does

    def _scalar(self, p: Problem) -> NDArray[np.bool_]:
        """Whether some operand is copied by single elements where it could be by 16 bytes."""
        chunk = elements_of_chunk(p)
        found = np.zeros(len(self._tma), np.bool_)
        for which, side, ld, along_k in (
            (1, p.m, p.lda, p.trans_a.transposed),
            (2, p.n, p.ldb, not p.trans_b.transposed),
        ):
            inner = p.k if along_k else side
            if inner % chunk or ld % chunk:
                found |= (self._along_k if along_k else np.True_) & (self._streamed == 0)
            if ld % chunk:
                found |= self._streamed == which
        return found & ~self._tma

    def _parts(self, steps: Ints, tiles: Ints, multiprocessors: int) -> Ints:
        """Return the parts of parallel split-K, as `SplitK.parts`; 1 for other kernels."""
        found = np.ones_like(tiles)
        if not len(self._splits):
            return found
        at = self._splits
        steps_, tiles_ = steps[at, None], tiles[at, None]
        at_once = (self._resident[at] * multiprocessors)[:, None]
        numbers = self._numbers
        waves = _up(tiles_ * numbers, at_once)
        wave = _up(steps_, numbers) * self._step_cycles + WAVE_CYCLES
        cycles = waves * wave + numbers * tiles_ * self._part_bytes / PART_BYTES_A_CYCLE
        cycles = cycles + np.where(numbers > 1, self._reduction_cycles, 0.0)
        cycles[np.maximum(1, np.minimum(steps_, self._most_parts)) < numbers] = np.inf
        found[at] = np.argmin(cycles, axis=1) + 1
        return found

    def chains(self, problem: Problem, multiprocessors: int) -> Ints:
        """Return how many products each kernel adds to one sum, one after the other, at most.

        0 where threads have sums of their own along k, which are short.
        """
        p = problem
        tiles = _up(p.m, self._tile_m) * _up(p.n, self._tile_n)
        steps = _up(p.k, self._tile_k)
        found = _up(steps, self._parts(steps, tiles, multiprocessors) * self._cluster_k)
        if self._persistent.any():
            _, shared, workers = self._division(p, tiles, steps, multiprocessors)
            shares = _up(shared * steps, np.maximum(1, workers))
            found = np.where(self._persistent & (shared == tiles), shares, found)
        return np.where(self._streamed > 0, 0, found * self._tile_k)

    def modes(self, problem: Problem) -> Ints:
        """Return the launch mode of each kernel: a number, its place in `MODES`."""
        p, chunk = problem, elements_of_chunk(problem)
        ragged = p.ldc % chunk > 0 or p.m % chunk > 0
        room = self._stage * p.precision.element_bytes >= 1
        staged = (self._stages_k > 0) & (self._stages_k >= p.k) & room & ragged
        clamped = ((p.m < self._tile_m) | (p.n < self._tile_n)) & ~self._tma
        found: Ints = self._scalar(p) + 2 * clamped + 4 * staged
        found[self._plain] = 0
        return found

    def _shared(
        self, p: Problem, tiles: Ints, steps: Ints, multiprocessors: int
    ) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """Return, where blocks are persistent, what the busiest multiprocessor does.

        Steps of tile_k, tiles stored, parts added up, waves, and parts left in the L2.
        """
        blocks, shared, workers = self._division(p, tiles, steps, multiprocessors)
        whole = tiles - shared
        some = np.maximum(1, workers)
        longest = np.where(shared > 0, _up(shared * steps, some), 0)
        waves, over = whole // blocks, whole % blocks
        mine = waves * _up(blocks, multiprocessors) + _up(over, multiprocessors)
        of_shares = np.where(shared > 0, _up(workers, multiprocessors), 0)
        split = (shared > 0) & (workers != shared)
        added = np.where(split, np.maximum(1, _up(steps, np.maximum(1, longest))), 0)
        by_halves = np.ceil(1.5 * np.log2(added + 1.0)).astype(np.int64)
        added = np.where(self._tree, by_halves, added)
        common = np.maximum(1, np.gcd(workers, shared))
        begun = _up(workers, np.maximum(1, common * steps))
        left = np.where(shared > 0, workers - common * begun, 0)
        more = ((over > 0) | (shared > 0)).astype(np.int64)
        return mine * steps + of_shares * longest, mine + of_shares, added, waves + more, left

    def _division(
        self, p: Problem, tiles: Ints, steps: Ints, multiprocessors: int
    ) -> tuple[Ints, Ints, Ints]:
        """Return persistent blocks, the tiles that they share along k, and how many share these."""
        shares = np.where(self._stream_k > 0, MOST_SHARES, 1)
        blocks = np.minimum(tiles * shares, self._resident * multiprocessors)
        rest = tiles % blocks
        last = np.where((self._stream_k > 1) & (tiles > blocks), blocks, 0)
        shared = np.where((self._stream_k > 0) & (rest > 0) & (steps > 0), rest + last, 0)
        shared = np.where(shared * steps > _MOST_STEPS, 0, shared)
        most: Any = MOST_SHARES
        if p.precision.letter == "s":
            most = np.where(self._tree, MOST_IN_TREE, MOST_SINGLE)
        pieces = np.clip(steps // np.maximum(1, LEAST_SHARE // self._tile_k), 1, most)
        return blocks, shared, np.minimum(blocks, shared * pieces)
