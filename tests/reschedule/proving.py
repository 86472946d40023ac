"""Whether a rescheduled kernel gives its baseline's bits: many launches, quiet and disturbed.

A stale operand shows as a wrong bit in one element of a million, in one launch of many, so C is
compared on the device, word by word, after every launch::

    once           plain kernel -> C -> reference
    every launch   fill C with a pattern -> rescheduled kernel -> C;  counts += C differs reference

The pattern stands for what was in C before: an element that is not written shows, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.backend import GemmCall, Kernel, LiveDevice, Operand
from tilewright.backend.cuda.functions import NON_BLOCKING
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Launch, Source, Stencil, Variant
from tilewright.stencil.source_files import read_source
from tilewright.timeline import span
from tilewright.tuning.matrices import normal
from tilewright.tuning.verify import WrongResultError

__all__ = ["PROBLEMS", "Launched", "Pair", "disturbed", "many_launches", "quiet"]

# Inner and edge blocks, a remainder of k, leading dimensions that forbid wide copies, few blocks
# with a long loop, and enough blocks for several waves.
PROBLEMS = (
    (4096, 4096, 512), (1024, 1280, 96), (1000, 1028, 540), (997, 1013, 531), (264, 132, 8192),
)  # fmt: skip

# alpha, beta; the second reads the pattern that C is filled with, which is 1.0f in single
# precision and a small number in double.
_SCALARS = ((1.0, 0.0), (-1.5, 0.5))
_PATTERN = 0x3F800000

_BATCH = 8  # launches between two looks at the counts: so long the other streams are kept busy

_COPY_BYTES = 128 << 20  # larger than an H100's L2 cache: copies go through device memory
_COPIES = 6  # for each launch: some hundred microseconds
_BESIDE = 512  # side of the product that runs beside: a few thread blocks


@dataclass(frozen=True)
class Pair:
    """Two kernels of one config.

    Parameters
    ----------
    stencil, config : Stencil, Config
        What both launch alike.
    plain, made : Kernel
        The compiler's own, and the rescheduled one.
    """

    stencil: Stencil
    config: Config
    plain: Kernel
    made: Kernel


@dataclass(frozen=True)
class Launched:
    """What was compared: launches of the rescheduled kernel, and elements of C in all."""

    launches: int = 0
    elements: int = 0

    def __add__(self, other: Launched) -> Launched:
        return Launched(self.launches + other.launches, self.elements + other.elements)


class _Comparer:
    """The kernels that fill and compare, and the counts."""

    def __init__(self, live: LiveDevice) -> None:
        cpu = live.spec.kind == "cpu"
        block, blocks = (1, 64) if cpu else (256, 8 * live.spec.multiprocessors)
        self._live, self._launch = live, Launch((blocks, 1), (block, 1))
        own = Path(__file__).with_name("differing.cl").read_text(encoding="utf-8")
        text = read_source(f"prelude/dialect_{live.dialect}.h") + own
        macros = {"BLOCK_THREADS": block, "GRID_THREADS": block * blocks}
        self._fill = live.compile(Source(text, macros, "fill"))
        self._differing = live.compile(Source(text, macros, "differing"))
        self._counts = live.upload(np.zeros(block * blocks, np.uint32))
        self._size = block * blocks

    def fill(self, memory: Any, words: int) -> None:
        arguments = (memory, np.int64(words), np.uint32(_PATTERN))
        self._live.launch(self._fill, self._launch, arguments)

    def compare(self, one: Any, other: Any, words: int) -> None:
        arguments = (one, other, self._counts, np.int64(words))
        self._live.launch(self._differing, self._launch, arguments)

    def total(self) -> int:
        """Return the words that have differed since the start; waits."""
        counts = np.zeros(self._size, np.uint32)
        self._live.download(self._counts, counts)
        return int(counts.sum(dtype=np.int64))

    def close(self) -> None:
        self._live.free(self._counts)


class _Product:
    """One problem's matrices on a device, a reference for C, and the launches."""

    def __init__(self, live: LiveDevice, problem: Problem, seed: int) -> None:
        self.live, self.problem = live, problem
        columns = {
            "a": problem.m if problem.trans_a.transposed else problem.k,
            "b": problem.k if problem.trans_b.transposed else problem.n,
            "c": problem.n,
        }
        leading = {"a": problem.lda, "b": problem.ldb, "c": problem.ldc}
        rng = np.random.default_rng(seed)
        number = problem.precision
        elements = {name: leading[name] * columns[name] for name in columns}
        self.memory = {name: live.upload(normal(rng, (elements[name],), number)) for name in "ab"}
        size = elements["c"] * number.element_bytes
        self.words = size // 4
        self.memory |= {name: live.allocate(size) for name in ("c", "reference")}
        self._leading = leading

    def launch(self, pair: Pair, kernel: Kernel, to: str, scalars: tuple[float, float]) -> None:
        """Enqueue a product."""
        ld, problem = self._leading, self.problem
        a, b = (Operand(self.memory[name], 0, ld[name]) for name in "ab")
        c = Operand(self.memory[to], 0, ld["c"])
        call = GemmCall(
            problem.precision, problem.m, problem.n, problem.k, scalars[0], a, b, scalars[1], c
        )
        launch = pair.stencil.launch(pair.config, problem.m, problem.n, problem.k)
        arguments = pair.stencil.arguments(pair.config, Variant.of(problem), call)
        self.live.launch(kernel, launch, arguments)

    def close(self) -> None:
        for memory in self.memory.values():
            self.live.free(memory)


def quiet() -> None:
    """Disturb nothing."""


@contextmanager
def disturbed(live: Any, beside: Pair, trans: str, precision: str) -> Iterator[Callable[[], None]]:
    """Yield what keeps other streams of a CUDA device busy for one launch.

    One stream copies through device memory, the other multiplies small matrices: thread blocks of
    both share multiprocessors, L2 and memory with what is proved.

    Parameters
    ----------
    live : CUDADevice
        The device.
    beside : Pair
        Whose plain kernel runs beside.
    trans, precision : str
        What it computes.
    """
    with live.current():
        streams = [
            live.check(live.api.cuStreamCreate(NON_BLOCKING), "making a stream") for _ in "ab"
        ]
    memory = [live.allocate(_COPY_BYTES) for _ in "ab"]
    side = _BESIDE
    product = _Product(live, Problem(side, side, side, precision, *trans), seed=7)  # type: ignore[arg-type]
    a, b, c = (Operand(product.memory[x], 0, side) for x in "abc")
    call = GemmCall(product.problem.precision, side, side, side, 1, a, b, 0, c)
    grid = beside.stencil.launch(beside.config, side, side, side)
    arguments = beside.stencil.arguments(beside.config, Variant.of(product.problem), call)
    prepared = live.prepare(beside.plain, grid, arguments)

    def feed() -> None:
        with live.current():
            for _ in range(_COPIES):
                copy = live.api.cuMemcpyDtoDAsync(memory[0], memory[1], _COPY_BYTES, streams[0])
                live.check(copy, "copying beside")
                prepared.enqueue(int(streams[1]))

    try:
        yield feed
    finally:
        live.finish()
        product.close()
        for one in memory:
            live.free(one)
        with live.current():
            for stream in streams:
                live.check(live.api.cuStreamDestroy(stream), "ending a stream")


def many_launches(
    live: LiveDevice,
    pair: Pair,
    problem: Problem,
    launches: int,
    *,
    feed: Callable[[], None] = quiet,
) -> Launched:
    """Launch a rescheduled kernel many times; every word of C must be its baseline's.

    Parameters
    ----------
    live : LiveDevice
        Where.
    pair : Pair
        Both kernels.
    problem : Problem
        What they compute, of random numbers.
    launches : int
        For each pair of scalars; a batch more at most.
    feed : callable
        Called before each launch; see `disturbed`.

    Raises
    ------
    WrongResultError
        With the number of words that differ.
    """
    done = Launched()
    comparer, product = _Comparer(live), _Product(live, problem, seed=0)
    try:
        with span("many launches", {"problem": str(problem)}):
            for scalars in _SCALARS:
                comparer.fill(product.memory["reference"], product.words)
                product.launch(pair, pair.plain, "reference", scalars)
                for _ in range(0, launches, _BATCH):
                    done += _batch(live, pair, product, comparer, scalars, feed)
    finally:
        comparer.close()
        product.close()
    return done


def _batch(
    live: LiveDevice,
    pair: Pair,
    product: _Product,
    comparer: _Comparer,
    scalars: tuple[float, float],
    feed: Callable[[], None],
) -> Launched:
    """Launch and compare some times, then look at the counts."""
    for _ in range(_BATCH):
        feed()
        comparer.fill(product.memory["c"], product.words)
        product.launch(pair, pair.made, "c", scalars)
        comparer.compare(product.memory["c"], product.memory["reference"], product.words)
    live.finish()
    wrong = comparer.total()
    if wrong:
        raise WrongResultError(
            f"{wrong} words of C differ from the compiler's own code's in {_BATCH} launches"
            f" ({product.problem}, alpha={scalars[0]} beta={scalars[1]})"
        )
    return Launched(_BATCH, _BATCH * product.problem.m * product.problem.n)
