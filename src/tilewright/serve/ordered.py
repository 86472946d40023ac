"""Plans of devices whose launches are enqueued from Python, one after the other: OpenCL's.

They are laid out as `tilewright.serve.plan` says.  A handle of memory is no address there, and
where in it an operand begins is an argument of its own, so that offsets are made up, too::

    made-up             at each call
    A               ->  the call's A: its handle
    OFFSETS[A] + 2  ->  elements before the first of the call's A, and 2 more
    2 OFFSETS[A]    ->  twice as many
    POOL + 4096     ->  the piece of that name of the queue's memory
    ALPHA           ->  the call's alpha

What lies within a piece, and tensor maps, are made of these anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from operator import itemgetter
from typing import Any

import numpy as np

from tilewright.backend import Event, LiveDevice, Operand, OutOfMemoryError
from tilewright.precision import Precision
from tilewright.serve.arenas import workspace
from tilewright.serve.arrange import Repeat
from tilewright.serve.laid_out import ALPHA, BETA, REPORT, A, B, C, Space
from tilewright.serve.plan import WorkspaceError
from tilewright.serve.scratch import TOPS, scratch_of
from tilewright.serve.steps import Step
from tilewright.stencil import TensorMap

__all__ = ["OrderedPlan", "Places", "made_up"]

Place = tuple[Any, int]
"""A handle of memory, and the elements in it before an operand's first."""

Places = tuple[Place, Place, Place]

Values = Sequence[Any]

# More than any matrix has, and apart from each other by what kernels multiply offsets with; of
# each the first element is as aligned as the memory.
OFFSETS = {A: 1 << 50, B: 1 << 54, C: 1 << 58}

# Where a call's own values stand.  Behind them: pieces of memory, what is the same at each call,
# and offsets.
_HANDLES = {A: 0, B: 1, C: 2, REPORT: 3}
_SCALARS = {ALPHA.real: 4, ALPHA.imag: 5, BETA.real: 6, BETA.imag: 7}
_OWN = 8


def made_up(base: int, begins: int, ld: int, of: Precision) -> Operand:
    """Return an operand to lay out with: so many bytes beyond what is aligned."""
    return Operand(base, OFFSETS[base] + begins // of.element_bytes, ld)


class OrderedPlan:
    """Launches of one OpenCL device, ready to be enqueued with any memory and scalars.

    Parameters
    ----------
    live : LiveDevice
        Where they run.
    precision : Precision
        Of the call, whose scalars they take.
    steps : sequence of Step
        Laid out at what `made_up` returns, `REPORT` and pieces of `space`, with `ALPHA` and `BETA`.
    space : Space
        Where its pieces come from.
    begins : tuple of int
        How many bytes beyond what is aligned A and B were laid out to begin.
    repeats : sequence of Repeat
        Of a batch: how all launches are repeated, in elements, the slowest first.
    """

    def __init__(
        self,
        live: LiveDevice,
        precision: Precision,
        steps: Sequence[Step],
        space: Space,
        begins: tuple[int, int],
        repeats: Sequence[Repeat] = (),
    ) -> None:
        self._live, self._repeats = live, repeats
        self._scalar = precision.scalar
        self._pieces = list(space.asked.values())
        laid = _Arguments(space, [one // precision.element_bytes for one in begins])
        self._steps = [
            (kernel, launch, itemgetter(*map(laid.position, arguments)))
            for kernel, launch, arguments in steps
        ]
        self._always, self._offsets, self._made = laid.always, laid.offsets, laid.made
        self._first = [np.int64(more) for _, _, more in laid.offsets]  # of arrays by themselves

    @property
    def bytes(self) -> int:
        """What it needs of the queue's memory."""
        return sum(size for _, size, _ in self._pieces)

    def start(
        self,
        places: Places,
        alpha: Any,
        beta: Any,
        queue: Any = None,
        after: tuple[Any, ...] = (),
        report: Any = None,
    ) -> Event:
        """Enqueue all launches.

        Parameters
        ----------
        places : Places
            The kernels' A, B and C.
        alpha, beta : number
            Scalars.
        queue, after
            As of `LiveDevice.launch`.
        report : object, optional
            Memory where a decision is written.

        Returns
        -------
        Event
            Of the last one.

        Raises
        ------
        WorkspaceError
            If there is too little memory; nothing was enqueued.
        OutOfMemoryError
            If there is too little memory for another product of a batch than the first.
        LaunchError
            If the device refuses.
        """
        event: Any = None
        for each in _products(places, self._repeats):
            before = after if event is None else (event.raw,)
            try:
                event = self._start(each, alpha, beta, queue, before, report)
            except WorkspaceError as error:
                if event is None:
                    raise
                # Whoever begins again would scale C of the first ones twice.
                raise OutOfMemoryError(
                    f"{error}; a part of the batch is computed", error.detail
                ) from None
        return event  # type: ignore[no-any-return]

    def _start(
        self, places: Places, alpha: Any, beta: Any, queue: Any, after: tuple[Any, ...], report: Any
    ) -> Event:
        """Enqueue all launches of one product."""
        (a, begin_a), (b, begin_b), (c, begin_c) = places
        own = a, b, c, report, *self._scalar(alpha), *self._scalar(beta)
        if begin_a == begin_b == begin_c == 0:
            offsets = self._first
        else:
            begins = begin_a, begin_b, begin_c
            offsets = [np.int64(times * begins[of] + more) for of, times, more in self._offsets]
        live = self._live
        if len(self._steps) == 1 and not self._pieces and not self._made:
            kernel, launch, arguments = self._steps[0]
            values = *own, *self._always, *offsets
            return live.launch(kernel, launch, arguments(values), queue, after)
        scratch = scratch_of(live, queue)
        with scratch.lock:
            with workspace():
                pieces = [
                    scratch.need(name, size, zeroed=zero) for name, size, zero in self._pieces
                ]
            held = [*own, *pieces, *self._always, *offsets]
            for at, make in self._made:
                held[at] = make(held)
            steps = [(kernel, launch, arguments(held)) for kernel, launch, arguments in self._steps]
            with scratch.spoiled_by_failure(TOPS):
                return scratch.run(steps, queue, after)


def _products(places: Places, repeats: Sequence[Repeat]) -> Iterator[Places]:
    """Yield where each product of a batch has its matrices."""
    for at in product(*(range(count) for count, *_ in repeats)):
        a, b, c = (
            (memory, first + sum(x * one[which] for x, one in zip(at, repeats, strict=True)))
            for which, (memory, first) in enumerate(places, 1)
        )
        yield a, b, c


class _Arguments:
    """Where in a call's values a plan's arguments are.

    Attributes
    ----------
    always : list
        What is the same at each call; None where something is made.
    made : list of tuple
        Where, and a function of all other values.
    offsets : list of tuple
        Whose offset (0 for A), how many times, and what is added; they stand at the end.
    """

    def __init__(self, space: Space, begins: Sequence[int]) -> None:
        self.always: list[Any] = []
        self.made: list[tuple[int, Callable[[Values], Any]]] = []
        self.offsets: list[tuple[int, int, int]] = []
        self._handles = _HANDLES | {at: _OWN + number for number, at in enumerate(space.asked)}
        self._before = _OWN + len(space.asked)
        self._begins = (*begins, 0)

    def position(self, value: Any) -> int:
        """Return where an argument is that was laid out as a value."""
        if isinstance(value, TensorMap):
            return self._make(self._tensor_map(value))
        if type(value) is np.int64:
            found = self._offset(int(value))
        elif type(value) is np.uint32:  # no scalar has this type
            found = None
        elif isinstance(value, np.generic):
            number = value["hi"] if isinstance(value, np.void) else value
            found = _SCALARS.get(float(number))
        elif value in self._handles:
            return self._handles[value]
        else:
            return self._make(self._within(value)) if value else self._keep(value)
        return self._keep(value) if found is None else found

    def _keep(self, value: Any) -> int:
        self.always.append(value)
        return self._before + len(self.always) - 1

    def _make(self, make: Callable[[Values], Any]) -> int:
        self.made.append((self._keep(None), make))
        return self.made[-1][0]

    def _within(self, address: int) -> Callable[[Values], Any]:
        """Return what is so far within the memory that begins last before an address.

        An operand's offset in bytes may be added to it.
        """
        bytes_before = address // OFFSETS[A] * OFFSETS[A]  # all memory is made up below these
        offset = self._offset(bytes_before)
        begin = max(one for one in self._handles if one <= address - bytes_before)
        at, beyond = self._handles[begin], address - bytes_before - begin
        if offset is not None:
            return lambda values: values[at] + (beyond + int(values[offset]))
        return lambda values: values[at] + beyond if beyond else values[at]

    def _tensor_map(self, one: TensorMap) -> Callable[[Values], Any]:
        memory, offset = self._within(one.memory), self._offset(one.offset)
        if offset is None:
            return lambda values: replace(one, memory=memory(values))
        return lambda values: replace(one, memory=memory(values), offset=int(values[offset]))

    def _offset(self, value: int) -> int | None:
        """Return where an offset is, from the end on; None of any other number."""
        for of, base in reversed(list(enumerate(OFFSETS.values()))):  # the largest first
            if value >= base:
                times, beyond = divmod(value, base)
                self.offsets.insert(0, (of, times, beyond - times * self._begins[of]))
                return -len(self.offsets)
        return None
