"""LU factorisation with partial pivoting on a CUDA device, right-looking, with look-ahead.

Columns are factored some hundred at a time (a block), each block panel by panel.  Panels are on the
critical path and take few multiprocessors: those of a block run beside the updates by the one
before it, on multiprocessors of their own::

    panels    block 0 |         | part 0   |         | part 1   |        |         | part 0 ...
    whole             | first 0 |          | between |          | rest 0 | first 1 |
    beside                      | products |         | products |                  | products ...
    left                                                                 | rows 1

    first t: behind block t rows exchanged, U found, and the product in block t + 1's columns
    products, rest t: those in the columns behind them; rows t: rows exchanged left of block t
    between: what a part of block t + 1 leaves to do in the block's other parts

All launches of a stream between two others' are one plan (`tilewright.serve.plan`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from tilewright.portfolio.find import generation
from tilewright.precision import Precision
from tilewright.serve.arenas import enqueue
from tilewright.serve.calls import keep, kept
from tilewright.serve.kernels import kernel_of
from tilewright.serve.laid_out import A, B, C, Space
from tilewright.serve.lu.steps import Part, Steps
from tilewright.serve.lu.streams import Place, Streams, streams_of
from tilewright.serve.plan import Plan, call_of
from tilewright.stencil.lu import LUKernels, Way

__all__ = ["Factorisation", "factorisation"]

Begin = Callable[[Plan | None, int], None]
"""Enqueues launches, if there are any, on a stream."""

# Of memory besides the matrix, pieces are aligned as allocators do.
_ALIGNMENT = 256


class Block(NamedTuple):
    """Columns that are factored before all behind them are updated: from `first` to `last`."""

    first: int
    last: int


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
_WIDTHS = ((8500, 1024), (5000, 512), (2500, 256), (0, 128))
_FIRST_WIDTH = 512

# Columns of a block that are factored before all multiprocessors update those behind them.
_PART = 512

# Microseconds that a panel takes a column, and for each of its rows besides.
_COLUMN_US, _ROW_US = 1.6, 1.4e-4

# Multiply-adds of a multiprocessor in a microsecond, in a product.
_PACE = {"s": 0.2e6, "d": 0.2e6, "c": 0.05e6, "z": 0.05e6}


class Stage(NamedTuple):
    """Launches of a block: as in the module's picture, each where there is something to do.

    Attributes
    ----------
    place : Place
        Where panels are, and what is beside them.
    panels : list of Plan
        Its panels, a part of its columns after the other.
    between : list of Plan
        Ahead of each part but the first one, what updates its columns by those before it.
    first : Plan or None
        Rows exchanged and U found in all columns behind it, or in the next block's alone if the
        others' products all run beside panels; and the product of the next block's columns.
    beside : list of Plan or None
        The rest of U, and products that leave multiprocessors to the next block's panels, one for
        each part of it.
    rest : Plan or None
        Products of all columns behind those.
    left : Plan or None
        Rows exchanged left of it.
    """

    place: Place
    panels: list[Plan | None]
    between: list[Plan | None]
    first: Plan | None
    beside: list[Plan | None]
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
        levels = [max(1, (-(-(last - first) // width) - 1).bit_length()) for first, last in blocks]
        self._n, self._orders = n, [self._piece(4 * n * many) for many in levels]
        self._number = 0
        self.top = self._piece(width * width * self._size)
        self.inverses = self._matrix(-(-n // width) * width, width)
        most = max(last - first for first, last in blocks)
        self.rows_of_block = self._matrix(most, -(-most // width) * width)
        self.rows_behind = self._matrix(most, -(-n // width) * width)

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
        self._steps = Steps(live, precision)
        self._on = streams_of(live)
        self._blocks = blocks_of(n)
        self._memory = memory = _Memory(n, precision, self._blocks)
        self._a = Part(A, ld, precision.element_bytes)
        self.bytes, self.cleared_bytes = memory.bytes, memory.cleared_bytes
        self._pace = _PACE[precision.letter]
        self._parts: list[Plan | None] = []
        self.stages = []
        for number, block in enumerate(self._blocks):
            self.stages.append(self._stage(number, block))

    def _place_of(self, rows: int, *, beside: bool) -> Place:
        """Return where panels of so many rows are, if there is something `beside` them."""
        if not self._steps.kernels.cluster_holds(rows):
            return self._on.plain
        return self._on.apart if beside else self._on.alone

    def _stage(self, number: int, block: Block) -> Stage:
        n, (first, last), memory = self._n, block, self._memory
        memory.begin(number)
        # Panels keep to their own multiprocessors where the block before has a `rest` for all.
        self._place = self._place_of(n - first, beside=bool(self.stages and self.stages[-1].rest))
        self._parts = []
        self._columns(first, last, ())
        self._parts.append(self._planned("LU panels"))
        order = memory.order(0, first)
        after = self._blocks[number + 1].last if last < n else n
        following = self._place_of(n - last, beside=True)
        many = self._beside(number, following, n - after) if after < n else []
        # Where panels take longer than all products, they wait only for the U of the next block.
        until = n if sum(many) < n - after else after
        self._upper(block, (last, until), order, memory.rows_behind)
        self._product(block, (last, after))
        ahead = self._planned("LU first update")
        self._upper(block, (until, n), order, memory.rows_behind, following.others)
        beside: list[Plan | None] = []
        for columns in many:
            shares = not following.cluster
            self._product(block, (after, after + columns), following.others, shares=shares)
            beside.append(self._planned("LU update"))
            after += columns
        self._product(block, (after, n))
        rest = self._planned("LU update")
        self._steps.rows(Way.IN_PLACE, self._a.at(first), first, last - first, order)
        panels, between = self._parts[::2], self._parts[1::2]
        left = self._planned("LU rows")
        return Stage(self._place, panels, between, ahead, beside, rest, left)

    def _planned(self, name: str) -> Plan | None:
        made = self._steps.take()
        return Plan(self._live, made, Space(), name=name) if made else None

    def _columns(self, first: int, last: int, inside: tuple[int, ...]) -> int:
        """Factor columns, panel by panel; return the address of their rows' order.

        `inside`: the first columns of the wider ones that these are a part of, widest first.
        """
        steps, a, memory = self._steps, self._a, self._memory
        if last - first <= steps.kernels.width:
            self._panel(first, last, inside)
            return memory.own
        middle = self._middle(first, last)
        order = self._columns(first, middle, (*inside, first))
        done, behind = (first, middle), (middle, last)
        is_large = last - first > _PART
        if is_large:
            self._parts.append(self._planned("LU panels"))
        few = 0 if is_large else self._place.few
        self._upper(done, behind, order, memory.rows_of_block, few)
        self._product(done, behind, few)
        if is_large:
            self._parts.append(self._planned("LU block's update"))
        order = self._columns(middle, last, (*inside, first))
        steps.rows(Way.IN_PLACE, a.at(middle, first), middle - first, last - middle, order)
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
        place, every = self._place, self._live.spec.multiprocessors
        each = kernels.panel_rows(rows, place.cluster or place.few)
        kernel = kernel_of(self._live, kernels.panel(each, place.cluster))
        launch = kernels.panel_launch(rows, place.few, every, place.cluster)
        self._steps.made.append((kernel, launch, arguments))

    def _upper(
        self, source: tuple[int, int], columns: tuple[int, int], order: int, taken: Part,
        multiprocessors: int = 0,
    ) -> None:  # fmt: skip
        """Exchange rows in some columns as factored ones say, and find their part of U."""
        (first, last), (begin, end) = source, columns
        here = self._a.at(first, begin)
        self._steps.rows(Way.OUT, here, end - begin, last - first, order, taken)
        self._solve(source, columns, taken, multiprocessors)

    def _product(
        self, source: tuple[int, int], columns: tuple[int, int], multiprocessors: int = 0,
        *, shares: bool = False,
    ) -> None:  # fmt: skip
        """Subtract L U below the rows of U."""
        a, (first, last), (begin, end) = self._a, source, columns
        lower, u, below = a.at(last, first), a.at(first, begin), a.at(last, begin)
        sizes = self._n - last, end - begin, last - first
        self._steps.multiply(
            below, lower, u, sizes, adds=True, multiprocessors=multiprocessors, shares=shares
        )

    def _solve(
        self, rows: tuple[int, int], columns: tuple[int, int], taken: Part, multiprocessors: int
    ) -> None:
        """Solve for rows of U in halves: `taken` has what is left of them in A."""
        steps, a, (first, last), (begin, end) = self._steps, self._a, rows, columns
        many, on = end - begin, multiprocessors
        if last - first <= steps.kernels.width:
            size = last - first
            inverse = self._memory.inverses.at(first)
            sizes = size, many, size
            steps.multiply(a.at(first, begin), inverse, taken, sizes, multiprocessors=on)
            return
        middle = self._middle(first, last)
        half = middle - first
        self._solve((first, middle), columns, taken, on)
        lower, u, rest = a.at(middle, first), a.at(first, begin), taken.at(half)
        sizes = last - middle, many, half
        steps.multiply(rest, lower, u, sizes, adds=True, multiprocessors=on)
        self._solve((middle, last), columns, rest, on)

    def _beside(self, number: int, place: Place, columns: int) -> list[int]:
        """Return how many columns are multiplied beside each part of the next block's panels.

        `place`: where those are.
        """
        first, last = self._blocks[number]
        rows, unit, pace = self._n - last, self._steps.kernels.width, self._pace
        made: list[int] = []
        for begin, end in self._parts_of(*self._blocks[number + 1]):
            inside = rows * (end - begin) ** 2 / 2
            us = (end - begin) * (_COLUMN_US + rows * _ROW_US) + inside / place.few / pace
            many = us * pace * place.others / (rows * (last - first))
            made.append(min(columns - sum(made), -(-int(many) // unit) * unit))
        return made

    def _parts_of(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the parts of a block's columns between which all multiprocessors update it."""
        if last - first <= _PART:
            return [(first, last)]
        middle = self._middle(first, last)
        return [*self._parts_of(first, middle), *self._parts_of(middle, last)]

    def _middle(self, first: int, last: int) -> int:
        """Return where columns are split: behind as many panels as are a power of two."""
        half = self._steps.kernels.width
        while 2 * half < last - first:
            half *= 2
        return first + half

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
        live, on = self._live, self._on
        calls = {where: call_of(a, memory, pivots, 1, 0, where) for where in on.all}

        def begin(plan: Plan | None, where: int) -> None:
            if plan is not None:
                enqueue(live, plan, calls[where], where)

        with on.lock, live.current():
            for one in calls:
                on.after(one, stream)
            cleared = live.api.cuMemsetD8Async(memory, 0, self.cleared_bytes, on.whole)
            live.check(cleared, "clearing a workspace")
            try:
                self._begin_stages(on, begin)
            finally:  # also where a launch fails: the memory is the caller's again
                for one in calls:
                    on.after(stream, one)

    def _begin_stages(self, on: Streams, begin: Begin) -> None:
        """Enqueue the stages, each one's panels ahead of the updates of the one before it."""
        self._begin_panels(on, self.stages[0], [], begin)
        on.after(on.whole, self.stages[0].place.panels)
        for stage, following in zip_longest(self.stages, self.stages[1:]):
            on.after(on.left, on.whole)
            if following is not None:
                begin(stage.first, on.whole)
                self._begin_panels(on, following, stage.beside, begin)
                on.after(on.whole, following.place.beside)
                begin(stage.rest, on.whole)
                on.after(on.whole, following.place.panels)
            begin(stage.left, on.left)

    def _begin_panels(
        self, on: Streams, stage: Stage, products: list[Plan | None], begin: Begin
    ) -> None:
        """Enqueue a block's panels behind what takes all multiprocessors, and products beside.

        Where no products are left for all of them, panels take longest: what is between these goes
        first, and waits for no product, nor does any wait for it.
        """
        place = stage.place
        panels, beside, alone = place.panels, place.beside, place.cluster and place == on.alone
        every = zip_longest([None, *stage.between], stage.panels, products)
        for number, (between, plan, product) in enumerate(every):
            if between is not None:
                on.after(on.whole, panels)
                if not alone:
                    on.after(on.whole, beside)
                begin(between, on.whole)
            on.after(panels, on.whole)
            if not (alone and number):
                on.after(beside, on.whole)
            begin(product, beside)
            begin(plan, panels)


def factorisation(live: Any, precision: Precision, n: int, ld: int) -> Factorisation:
    """Return the launches for a kind of matrices, laid out if none are kept."""
    key = ("lu factor", live, precision, n, ld, generation())
    found: Factorisation | None = kept(key)
    if found is None:
        found = Factorisation(live, precision, n, ld)
        keep(key, found, large=True)
    return found
