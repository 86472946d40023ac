"""LU factorisation with partial pivoting on a CUDA device, right-looking, with look-ahead.

Columns are factored some hundred at a time (a block), each block panel by panel.  Blocks are on
the critical path and take few multiprocessors, so that they are on a stream of their own, ahead of
the updates by one::

    block stream     block 0 | next 0, block 1 | next 1, block 2     | next 2, block 3
    update stream            | rest 0          | rest 1              | rest 2
    left stream                       | rows 1           | rows 2           | rows 3

    next t: rows exchanged in the columns of block t + 1, their part of U, and the product with L
    rest t: the same of all columns behind them; rows t: rows exchanged left of block t

An update's blocks stay until it ends; while a block is factored they leave it some multiprocessors.
All launches of a stage are one plan (`tilewright.serve.plan`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.portfolio.find import generation
from tilewright.precision import Precision
from tilewright.serve.arenas import enqueue
from tilewright.serve.calls import keep, kept
from tilewright.serve.kernels import kernel_of
from tilewright.serve.lu.steps import Part, Steps
from tilewright.serve.lu.streams import Streams, streams_of
from tilewright.serve.plan import A, B, C, Plan, Space, call_of
from tilewright.stencil.lu import TOP, LUKernels, Way

__all__ = ["Factorisation", "factorisation"]

# Of memory besides the matrix, pieces are aligned as allocators do.
_ALIGNMENT = 256


@dataclass(frozen=True)
class Block:
    """Columns that are factored before all behind them are updated: from `first` to `last`."""

    first: int
    last: int

    @property
    def width(self) -> int:
        """Columns."""
        return self.last - self.first


def blocks_of(n: int) -> list[Block]:
    """Return the blocks of n columns, whose products' sums are as long as a block is wide.

    The last ones are narrow: there is little left behind them that they could run beside.  So is
    the first one, which runs beside nothing, and the next ones are up to twice as wide each.
    """
    made: list[Block] = []
    first, most = 0, _FIRST_WIDTH
    while first < n:
        width = min(most, next(width for least, width in _WIDTHS if n - first > least))
        made.append(Block(first, min(n, first + width)))
        first, most = made[-1].last, 2 * width
    return made


# From how many rows and columns on that are left, how wide blocks are.
_WIDTHS = ((11500, TOP), (8500, 1024), (4000, 512), (0, 256))
_FIRST_WIDTH = 512

# Thread blocks of a panel's kernel, each of which has a multiprocessor: a quarter of them at most.
_PANEL_BLOCKS = 32

# Microseconds that a panel takes a column.
_COLUMN_US = 3.0

# Multiply-adds of a multiprocessor in a microsecond, in a product.
_PACE = {"s": 0.2e6, "d": 0.2e6, "c": 0.05e6, "z": 0.05e6}


class Stage(NamedTuple):
    """Launches of a block: as in the module's picture.

    Attributes
    ----------
    block : Plan
        The update of its columns by the block before it, and its panels.
    rest : Plan or None
        The update of all columns behind the next block.
    left : Plan or None
        Rows exchanged left of it.
    """

    block: Plan
    rest: Plan | None
    left: Plan | None


class _Memory:
    """What a factorisation needs besides the matrix, at made-up addresses behind `B`."""

    def __init__(self, n: int, precision: Precision, blocks: list[Block]) -> None:
        self.bytes = 0
        self._size = precision.element_bytes
        kernels = LUKernels(precision)
        width = kernels.width
        # What is zero at the beginning comes first.
        self.zero = self._piece(4)
        self.counters = self._piece(4 * -(-n // width))
        self.messages = self._piece(kernels.message_bytes)
        self.cleared_bytes = self.bytes
        self.own = self._piece(4 * n)
        levels = [max(1, (-(-one.width // width) - 1).bit_length()) for one in blocks]
        self._n, self._orders = n, [self._piece(4 * n * many) for many in levels]
        self._number = 0
        self.top = self._piece(width * width * self._size)
        self.inverses = self._matrix(-(-n // width) * width, width)
        most = max(one.width for one in blocks)
        self.rows_of_block = self._matrix(most, -(-most // width) * width)
        self.rows_of_rest = self._matrix(most, -(-n // width) * width)

    def begin(self, number: int) -> None:
        """Let orders be those of a block."""
        self._number = number

    def order(self, level: int, first: int) -> int:
        """Return where the order of rows from `first` on is, of columns so many times halved."""
        return self._orders[self._number] + 4 * (level * self._n + first)

    def _piece(self, size: int) -> int:
        at = B + self.bytes
        self.bytes += -(-size // _ALIGNMENT) * _ALIGNMENT
        return at

    def _matrix(self, rows: int, columns: int) -> Part:
        return Part(self._piece(rows * columns * self._size), columns, self._size)


class Factorisation:
    """The launches that factor n x n matrices whose rows are `ld` elements apart.

    Parameters
    ----------
    live : CUDADevice
        Where the matrices are.
    precision : Precision
        Of the matrices.
    n, ld : int
        Sizes.

    Attributes
    ----------
    stages : list of Stage
        What is launched, block by block.
    bytes : int
        What it needs besides matrix and pivots.

    Raises
    ------
    ValueError
        If there are more rows than the panel's kernel takes.
    BackendError
        If no kernel can be had.
    """

    def __init__(self, live: Any, precision: Precision, n: int, ld: int) -> None:
        self._live, self._n = live, n
        self._few = max(1, min(_PANEL_BLOCKS, live.spec.multiprocessors // 4))
        self._blocks = blocks_of(n)
        self._memory = memory = _Memory(n, precision, self._blocks)
        self._a = Part(A, ld, precision.element_bytes)
        self._steps = Steps(live, precision)
        self.bytes, self.cleared_bytes = memory.bytes, memory.cleared_bytes
        self.panel_width = self._steps.kernels.width
        self.stages = []
        before, order = (0, 0), 0
        for number, block in enumerate(self._blocks):
            whole = block.first, block.last
            if number:
                self._apply(before, whole, order, memory.rows_of_block)
            memory.begin(number)
            self._columns(*whole, ())
            before, order = whole, memory.order(0, block.first)
            factored = self._planned("LU block")
            behind = self._blocks[number + 1].last if number + 1 < len(self._blocks) else n
            early = self._early(number, n - behind) if behind < n else 0
            self._apply(whole, (behind, n), order, memory.rows_of_rest, early)
            rest = self._planned("LU update") if behind < n else None
            self._steps.rows(Way.IN_PLACE, self._a.at(block.first), block.first, block.width, order)
            left = self._planned("LU rows") if block.first else None
            self.stages.append(Stage(factored, rest, left))

    def _planned(self, name: str) -> Plan:
        return Plan(self._live, self._steps.take(), Space(), name=name)

    def _columns(self, first: int, last: int, inside: tuple[int, ...]) -> int:
        """Factor columns, panel by panel; return the address of their rows' order.

        `inside`: the first columns of the wider ones that these are a part of, widest first.
        """
        steps, a, memory = self._steps, self._a, self._memory
        half = steps.kernels.width
        if last - first <= half:
            self._panel(first, last, inside)
            return memory.own
        while 2 * half < last - first:
            half *= 2
        middle = first + half
        order = self._columns(first, middle, (*inside, first))
        self._apply((first, middle), (middle, last), order, memory.rows_of_block)
        order = self._columns(middle, last, (*inside, first))
        steps.rows(Way.IN_PLACE, a.at(middle, first), half, last - middle, order)
        return memory.order(len(inside), first)

    def _panel(self, first: int, last: int, inside: tuple[int, ...]) -> None:
        """Factor few columns in one launch."""
        memory, kernels = self._memory, self._steps.kernels
        inside = inside or (first,)
        rows, here = self._n - first, self._a.at(first, first)
        number = first // kernels.width
        begun = sum((one < first) << level for level, one in enumerate(inside))
        arguments = (
            np.int64(rows), np.int32(last - first), here.address, np.int64(here.ld), memory.top,
            memory.inverses.at(first).address, memory.own, memory.order(0, first),
            np.int64(self._n), np.int32(len(inside)), np.int32(begun), C + 4 * first,
            np.int32(first), memory.messages, memory.counters + 4 * number, np.uint32(number + 1),
            memory.zero,
        )  # fmt: skip
        kernel = kernel_of(self._live, kernels.panel(kernels.panel_rows(rows, self._few)))
        launch = kernels.panel_launch(rows, self._few, self._live.spec.multiprocessors)
        self._steps.made.append((kernel, launch, arguments))

    def _apply(
        self, source: tuple[int, int], columns: tuple[int, int], order: int, taken: Part,
        early: int = 0,
    ) -> None:  # fmt: skip
        """Update columns with factored ones: exchange rows, find U, and subtract L U below.

        The first `early` columns' products leave multiprocessors to a block's panels.
        """
        steps, a, (first, last), (begin, end) = self._steps, self._a, source, columns
        if begin == end:
            return
        steps.rows(Way.OUT, a.at(first, begin), end - begin, last - first, order, taken)
        self._find_upper(source, columns, taken)
        few = self._live.spec.multiprocessors - self._few
        for left, right, limit in ((begin, begin + early, few), (begin + early, end, 0)):
            sizes = self._n - last, right - left, last - first
            lower, u, below = a.at(last, first), a.at(first, left), a.at(last, left)
            steps.multiply(below, lower, u, sizes, adds=True, multiprocessors=limit)

    def _find_upper(self, rows: tuple[int, int], columns: tuple[int, int], taken: Part) -> None:
        """Solve for rows of U in halves: `taken` has what is left of them in A."""
        steps, a, (first, last), (begin, end) = self._steps, self._a, rows, columns
        half, many = steps.kernels.width, end - begin
        if last - first <= half:
            size = last - first
            inverse = self._memory.inverses.at(first)
            steps.multiply(a.at(first, begin), inverse, taken, (size, many, size))
            return
        while 2 * half < last - first:
            half *= 2
        middle = first + half
        self._find_upper((first, middle), columns, taken)
        lower, u, rest = a.at(middle, first), a.at(first, begin), taken.at(half)
        steps.multiply(rest, lower, u, (last - middle, many, half), adds=True)
        self._find_upper((middle, last), columns, rest)

    def _early(self, number: int, columns: int) -> int:
        """Return how many columns of an update are multiplied while the next block is factored."""
        following, width = self._blocks[number + 1], self._blocks[number].width
        rows, few = self._n - following.first, self._few
        pace, every = _PACE[self._steps.precision.letter], self._live.spec.multiprocessors
        # Its update, its panels, and their products.
        inner = following.width**2 / 2
        products = rows * following.width * width / every + rows * inner / few
        us = following.width * _COLUMN_US + products / pace
        many = us * pace * (every - few) / (rows * width)
        unit = self._steps.kernels.width
        return min(columns, -(-int(many) // unit) * unit)

    def start(self, a: int, pivots: int, memory: int, stream: int) -> None:
        """Enqueue all behind what is on a stream, which then waits for it.

        Parameters
        ----------
        a, pivots : int
            Addresses of the matrix, and of n ints for pivots.
        memory : int
            Address of `bytes`; its first int is the first pivot that is zero, counted from 1, or 0.
        stream : int
            The caller's.
        """
        live = self._live
        with streams_of(live) as on:
            on.after(on.block, stream)
            on.after(on.update, stream)
            on.after(on.left, stream)
            cleared = live.api.cuMemsetD8Async(memory, 0, self.cleared_bytes, on.block)
            live.check(cleared, "clearing a workspace")

            def begin(plan: Plan | None, where: int) -> None:
                if plan is not None:
                    enqueue(live, plan, call_of(a, memory, pivots, 1, 0, where), where)

            try:
                self._begin_stages(on, begin)
            finally:  # also where a launch fails: the memory is the caller's again
                for one in (on.block, on.update, on.left):
                    on.after(stream, one)

    def _begin_stages(self, on: Streams, begin: Callable[[Plan | None, int], None]) -> None:
        """Enqueue the stages, each one's block ahead of the updates of the one before it."""
        begin(self.stages[0].block, on.block)
        for number, stage in enumerate(self.stages):
            on.mark("factored", on.block)
            if number:
                on.wait("updated", on.block)
                on.wait("updated", on.left)
            on.wait("factored", on.update)
            on.wait("factored", on.left)
            if stage is not self.stages[-1]:
                begin(self.stages[number + 1].block, on.block)
            begin(stage.rest, on.update)
            on.mark("updated", on.update)
            begin(stage.left, on.left)


def factorisation(live: Any, precision: Precision, n: int, ld: int) -> Factorisation:
    """Return the launches for a kind of matrices, laid out if none are kept."""
    key = ("lu factor", live, precision, n, ld, generation())
    found: Factorisation | None = kept(key)
    if found is None:
        found = Factorisation(live, precision, n, ld)
        keep(key, found, large=True)
    return found
