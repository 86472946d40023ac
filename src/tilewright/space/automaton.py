"""One constraint, read one parameter at a time.

A constraint on few values is tabulated once and turned into its minimal
deterministic automaton: after some parameters are bound, all that matters of
them is a state, and two bindings that allow the same continuations share one.
State 0 is dead: no continuation satisfies the constraint, so a prefix is dropped
at the first parameter that dooms it rather than at the last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.space.constraint import Constraint
from tilewright.space.parameter import Parameter

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Automaton", "factorise", "tabulate"]

# Broadcasting evaluates a predicate on this many points in milliseconds, and the
# table of booleans is this many bytes.
TABLE_POINTS = 2**20

_KEY = 2**62  # keys below this leave an int64 one bit to spare


def tabulate(constraint: Constraint, parameters: Sequence[Parameter]) -> NDArray[np.bool_] | None:
    """Return the constraint's truth over all values of its parameters.

    Parameters
    ----------
    constraint : Constraint
        What to tabulate.
    parameters : sequence of Parameter
        The constraint's own parameters; one axis of the table each, in order.

    Returns
    -------
    ndarray of bool, or None
        None where the table would have more than `TABLE_POINTS` entries.
    """
    if math.prod(len(p) for p in parameters) > TABLE_POINTS:
        return None
    axes = np.ix_(*(np.arange(len(p)) for p in parameters))
    table = constraint.holds(
        {p.name: p.array[axis] for p, axis in zip(parameters, axes, strict=True)}
    )
    return np.ascontiguousarray(table)


def factorise(
    columns: Sequence[NDArray[Any]], sizes: Sequence[int]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Give numbers to the distinct rows of some columns.

    Parameters
    ----------
    columns : sequence of ndarray of int, one shape (rows,)
        Column i holds integers in ``range(sizes[i])``.
    sizes : sequence of int
        How many values each column can hold.

    Returns
    -------
    ids : ndarray of int, shape (rows,)
        Equal for equal rows, in ``range(distinct)``; rows count in
        lexicographic order.
    example : ndarray of int, shape (distinct,)
        A row that has each id.
    """
    rows = len(columns[0])
    key = np.zeros(rows, dtype=np.int64)
    span = 1
    for column, size in zip(columns, sizes, strict=True):
        if span * size >= _KEY:
            key, example = _distinct(key, span)
            span = len(example)
        if size > 1:
            key *= size
            key += column
            span *= size
    return _distinct(key, span)


def _distinct(key: NDArray[np.int64], span: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return ``np.unique``'s inverse and an index of each distinct key."""
    if span > 4 * len(key) + 4096:
        _, example, ids = np.unique(key, return_index=True, return_inverse=True)
        return ids, example
    # A table over all possible keys costs less than sorting the keys there are.
    where = np.full(span, -1, dtype=np.intp)
    where[key] = np.arange(len(key))
    present = np.flatnonzero(where >= 0)
    example = where[present]
    where[present] = np.arange(len(present))
    return where[key], example


class Automaton:
    """The minimal automaton of a tabulated constraint.

    Parameters
    ----------
    table : ndarray of bool
        From `tabulate`; axis i belongs to the i-th parameter to be bound.

    Attributes
    ----------
    steps : list of ndarray of int32
        ``steps[i][state, code]`` is the state after the i-th parameter takes
        its value number `code`; row 0 is dead and stays so.
    alive : list of ndarray of bool
        Where `steps` is not dead.
    start : int
        The state before any parameter is bound: 1, or 0 if nothing satisfies
        the constraint.
    """

    def __init__(self, table: NDArray[np.bool_]) -> None:
        states: NDArray[Any] = table.reshape(-1)
        count = 2
        self.steps: list[NDArray[np.int32]] = []
        for size in reversed(table.shape):
            rows = states.reshape(-1, size)
            # A dead row in front gets id 0, as the least of all rows.
            rows = np.concatenate([np.zeros((1, size), rows.dtype), rows])
            ids, example = factorise(list(rows.T), [count] * size)
            self.steps.append(rows[example].astype(np.int32))
            states = ids[1:]
            count = len(example)
        self.steps.reverse()
        self.alive = [step != 0 for step in self.steps]
        self.start = int(states[0])

    def states(self, step: int) -> int:
        """Return how many states there are before a step, the dead one included."""
        return len(self.steps[step]) if step < len(self.steps) else 2
