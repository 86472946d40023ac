"""Plans of devices whose launches are enqueued from Python, one after the other: OpenCL's.

They are laid out as `tilewright.serve.plan` says.  A handle of memory is no address there, and
where in it an operand begins is an argument of its own, so that offsets are made up, too::

    made-up             at each call
    A               ->  the call's A: its handle
    OFFSETS[A] + 2  ->  elements before the first of the call's A, and 2 more
    2 OFFSETS[A]    ->  twice as many
    POOL + 4096     ->  the piece of that name of the queue's memory
    ALPHA           ->  the call's alpha
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.backend import Event, Kernel, Operand
from tilewright.precision import Precision
from tilewright.serve.arenas import workspace
from tilewright.serve.plan import ALPHA, BETA, REPORT, A, B, C, Space
from tilewright.serve.routes import Step
from tilewright.serve.scratch import TOPS, Scratch
from tilewright.stencil import Launch

__all__ = ["OrderedPlan", "Place", "made_up"]

Place = tuple[Any, int]
"""A handle of memory, and the elements in it before an operand's first."""

# More than any matrix has, and apart from each other by what kernels multiply offsets with; of
# each the first element is as aligned as the memory.
OFFSETS = {A: 1 << 50, B: 1 << 54, C: 1 << 58}

# Where a call's values stand that arguments are filled in from; pieces of memory come behind.
_HANDLES = {A: 0, B: 1, C: 2, REPORT: 3}
_ELEMENTS = {A: 4, B: 5, C: 6}
_SCALARS = {ALPHA.real: 7, ALPHA.imag: 8, BETA.real: 9, BETA.imag: 10}
_FIXED = 11


def made_up(base: int, begins: int, ld: int, of: Precision) -> Operand:
    """Return an operand to lay out with: so many bytes beyond what is aligned."""
    return Operand(base, OFFSETS[base] + begins // of.element_bytes, ld)


class _Hole(NamedTuple):
    """An argument that each call fills in: times `factor`, and `more`, of an offset."""

    argument: int
    value: int
    factor: int = 0
    more: int = 0


class _Laid(NamedTuple):
    kernel: Kernel
    launch: Launch
    arguments: tuple[Any, ...]
    holes: tuple[_Hole, ...]


class OrderedPlan:
    """Launches of one OpenCL device, ready to be enqueued with any memory and scalars.

    Parameters
    ----------
    precision : Precision
        Of the call, whose scalars they take.
    steps : sequence of Step
        Laid out at what `made_up` returns, `REPORT` and pieces of `space`, with `ALPHA` and `BETA`.
    space : Space
        Where its pieces come from.
    begins : tuple of int
        How many bytes beyond what is aligned A and B were laid out to begin.
    """

    def __init__(
        self, precision: Precision, steps: Sequence[Step], space: Space, begins: tuple[int, int]
    ) -> None:
        self._precision = precision
        size = precision.element_bytes
        self._begins = {A: begins[0] // size, B: begins[1] // size, C: 0}
        self._pieces = list(space.asked.values())
        at = {address: _FIXED + number for number, address in enumerate(space.asked)}
        self._handles = {**_HANDLES, **at}
        self._steps = [self._laid(*step) for step in steps]

    @property
    def bytes(self) -> int:
        """What it needs of the queue's memory."""
        return sum(size for _, size, _ in self._pieces)

    def _laid(self, kernel: Kernel, launch: Launch, arguments: tuple[Any, ...]) -> _Laid:
        found = (self._hole(at, value) for at, value in enumerate(arguments))
        return _Laid(kernel, launch, arguments, tuple(one for one in found if one is not None))

    def _hole(self, at: int, value: Any) -> _Hole | None:
        """Return how an argument is filled in; None where it stays."""
        if type(value) is np.int64:
            for base in (C, B, A):  # the largest first
                if value >= OFFSETS[base]:
                    factor, more = divmod(int(value), OFFSETS[base])
                    return _Hole(at, _ELEMENTS[base], factor, more - factor * self._begins[base])
        elif isinstance(value, np.generic):
            number = value["hi"] if isinstance(value, np.void) else value
            kind = _SCALARS.get(float(number))
            return None if kind is None else _Hole(at, kind)
        elif value:
            return _Hole(at, self._handles[value])
        return None

    def start(
        self,
        scratch: Scratch,
        places: tuple[Place, Place, Place],
        scalars: tuple[Any, Any],
        queue: Any = None,
        after: tuple[Any, ...] = (),
        report: Any = None,
    ) -> Event:
        """Enqueue all launches.

        Parameters
        ----------
        scratch : Scratch
            Of the queue.
        places : tuple of Place
            The kernels' A, B and C.
        scalars : tuple
            Alpha and beta.
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
        LaunchError
            If the device refuses.
        """
        (a, begin_a), (b, begin_b), (c, begin_c) = places
        of = self._precision.scalar
        values = [a, b, c, report, begin_a, begin_b, begin_c, *of(scalars[0]), *of(scalars[1])]
        with scratch.lock:
            if self._pieces:
                with workspace():
                    values += [
                        scratch.need(name, size, zeroed=zero) for name, size, zero in self._pieces
                    ]
            steps = [(one.kernel, one.launch, _filled(one, values)) for one in self._steps]
            with scratch.spoiled_by_failure(TOPS):
                return scratch.run(steps, queue, after)


def _filled(step: _Laid, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return a launch's arguments for one call."""
    made = list(step.arguments)
    for at, value, factor, more in step.holes:
        made[at] = np.int64(factor * values[value] + more) if factor else values[value]
    return tuple(made)
