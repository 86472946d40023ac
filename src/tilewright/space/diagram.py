"""A decision diagram: all points of a set of constraints, prefixes shared.

Layer i binds variable i.  A node stands for all prefixes that allow the same
continuations as far as the constraints' states tell; an edge is a value that the
next variable can take there.  Each point is one path, so points are counted,
ranked and listed without being stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.space.automaton import Automaton, factorise
from tilewright.space.constraint import Constraint
from tilewright.space.parameter import Parameter

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Diagram", "Rules", "TooWide"]

# Candidate edges, and paths, handled at once: their temporaries stay within a core's cache.
_SLICE = 2**14


class TooWide(Exception):
    """A diagram needs more edges than it may have."""


@dataclass(frozen=True)
class Rules:
    """The constraints of a component, ready to be followed variable by variable.

    Parameters
    ----------
    parameters : tuple of Parameter
        In the order in which they are bound.
    automata : tuple of (Automaton, tuple of int)
        Tabulated constraints and the layers that they read, ascending.
    direct : tuple of (Constraint, tuple of int)
        Constraints too large for a table, evaluated at the last of their layers.
    """

    parameters: tuple[Parameter, ...]
    automata: tuple[tuple[Automaton, tuple[int, ...]], ...]
    direct: tuple[tuple[Constraint, tuple[int, ...]], ...]


@dataclass(frozen=True, eq=False)
class _Layer:
    """Edges in order of parent and code: ``first[node]`` is a node's first edge."""

    first: NDArray[np.int64]
    code: NDArray[Any]
    target: NDArray[np.int32]
    before: NDArray[Any]  # completions of all earlier edges; one entry more than edges


class Diagram:
    """All points of a component whose codes lie in given ranges.

    Parameters
    ----------
    rules : Rules
        Variables and constraints.
    ranges : sequence of (int, int)
        First code, and the one after the last, of each variable.
    most_edges : int
        Edges the diagram may have before it gives up: this bounds its memory.

    Attributes
    ----------
    size : int
        Number of points, exact at any size.

    Raises
    ------
    TooWide
        If `most_edges` do not suffice.
    """

    def __init__(self, rules: Rules, ranges: Sequence[tuple[int, int]], most_edges: int) -> None:
        self._rules = rules
        frontier = _Frontier(rules, 1, {}, {})
        edges: list[tuple[NDArray[Any], ...]] = []
        room = most_edges
        for level, (low, high) in enumerate(ranges):
            first, code, target, frontier = frontier.advance(level, low, high, room)
            room -= len(code)
            edges.append((first, code, target))
        self._layers = self._close(edges, ranges)
        self.size = int(self._layers[0].before[-1])

    @staticmethod
    def _close(
        edges: list[tuple[NDArray[Any], ...]], ranges: Sequence[tuple[int, int]]
    ) -> list[_Layer]:
        """Count completions from the last layer up, dropping edges that have none."""
        # Every node lies on a path from the root, so no sum exceeds the number of points.
        most = math.prod(high - low for low, high in ranges)
        kind: Any = np.int64 if most < 2**62 else object
        completions: NDArray[Any] = np.ones(1, dtype=kind)
        layers: list[_Layer] = []
        while edges:
            first, code, target = edges.pop()
            below = completions[target]
            useful = below > 0
            if not useful.all():
                kept = np.concatenate([[0], np.cumsum(useful)])
                first, code = kept[first], code[useful]
                target, below = target[useful], below[useful]
            before = np.zeros(len(below) + 1, dtype=kind)
            np.cumsum(below, out=before[1:])
            layers.append(_Layer(first, code, target, before))
            completions = before[first[1:]] - before[first[:-1]]
        layers.reverse()
        return layers

    def codes(self, ranks: NDArray[Any]) -> list[NDArray[Any]]:
        """Return the codes of the points with these ranks.

        Parameters
        ----------
        ranks : ndarray of int, shape (points,)
            In ``range(size)``; points rank lexicographically by their codes.

        Returns
        -------
        list of ndarray, each of shape (points,)
            A column for each variable, in the order they are bound.
        """
        rest = ranks.astype(self._layers[0].before.dtype)
        node: NDArray[Any] = np.zeros(len(ranks), dtype=np.int64)
        columns = []
        for layer in self._layers:
            sought = layer.before[layer.first[node]] + rest
            edge = np.searchsorted(layer.before, sought, side="right") - 1
            rest = sought - layer.before[edge]
            node = layer.target[edge]
            columns.append(layer.code[edge])
        return columns

    def fill(self, columns: Sequence[NDArray[Any]], tables: Sequence[NDArray[Any]]) -> None:
        """Write every point, in order of rank, through a table of values a variable.

        Parameters
        ----------
        columns : sequence of ndarray, each of shape (size,)
            Where variable i's values go.
        tables : sequence of ndarray
            ``tables[i][code]`` is the value to write.
        """
        pending: list[tuple[int, NDArray[Any], int]] = []
        if self.size:
            pending.append((0, np.zeros(1, dtype=np.int32), 0))
        while pending:
            level, node, row = pending.pop()
            layer = self._layers[level]
            degree = layer.first[node + 1] - layer.first[node]
            edge = np.repeat(layer.first[node] - np.cumsum(degree) + degree, degree)
            edge += np.arange(len(edge))
            repeats = (layer.before[edge + 1] - layer.before[edge]).astype(np.int64)
            ends = row + np.cumsum(repeats)
            columns[level][row : ends[-1]] = np.repeat(tables[level][layer.code[edge]], repeats)
            if level + 1 < len(self._layers):
                node = layer.target[edge]
                for start in range(0, len(node), _SLICE):
                    begin = int(ends[start] - repeats[start])
                    pending.append((level + 1, node[start : start + _SLICE], begin))


class _Frontier:
    """The nodes before one layer: what the constraints know of their prefixes.

    Parameters
    ----------
    rules : Rules
        Variables and constraints.
    count : int
        Number of nodes.
    states : dict of int to ndarray of int32, shape (count,)
        The state of each automaton that has begun and not ended.
    codes : dict of int to ndarray, shape (count,)
        The codes of each layer that a direct constraint has yet to see.
    """

    def __init__(
        self,
        rules: Rules,
        count: int,
        states: dict[int, NDArray[Any]],
        codes: dict[int, NDArray[Any]],
    ) -> None:
        self._rules = rules
        self._count = count
        self._states = states
        self._codes = codes

    def advance(
        self, level: int, low: int, high: int, room: int
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], _Frontier]:
        """Bind one variable: return first, code and target of its edges, and what follows."""
        for i, (automaton, layers) in enumerate(self._rules.automata):
            if layers[0] == level:
                self._states[i] = np.full(self._count, automaton.start, np.int32)
        kind = np.min_scalar_type(high - 1)
        parents, codes, total = [np.zeros(0, np.int32)], [np.zeros(0, kind)], 0
        step = max(1, _SLICE // (high - low))
        for start in range(0, self._count, step):
            parent, code = self._survivors(level, low, high, start, min(start + step, self._count))
            total += len(parent)
            if total > room:
                raise TooWide
            parents.append(parent.astype(np.int32))
            codes.append(code.astype(kind))
        parent, code = np.concatenate(parents), np.concatenate(codes)
        first = np.zeros(self._count + 1, np.int64)
        np.cumsum(np.bincount(parent, minlength=self._count), out=first[1:])
        target, after = self._follow(level, parent, code)
        return first, code, target, after

    def _survivors(
        self, level: int, low: int, high: int, start: int, stop: int
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return parent and code of the edges that leave some of the nodes."""
        alive = np.ones((stop - start, high - low), dtype=np.bool_)
        for i, (automaton, layers) in enumerate(self._rules.automata):
            if level in layers:
                alive &= automaton.alive[layers.index(level)][self._states[i][start:stop], low:high]
        parent, code = np.nonzero(alive)
        parent += start
        code += low
        for constraint, layers in self._rules.direct:
            if layers[-1] == level:
                values = {
                    self._rules.parameters[i].name: self._rules.parameters[i].array[
                        code if i == level else self._codes[i][parent]
                    ]
                    for i in layers
                }
                kept = constraint.holds(values)
                parent, code = parent[kept], code[kept]
        return parent, code

    def _follow(
        self, level: int, parent: NDArray[Any], code: NDArray[Any]
    ) -> tuple[NDArray[np.int32], _Frontier]:
        """Return the edges' targets and the nodes these are, equal ones merged."""
        states: dict[int, NDArray[Any]] = {}
        sizes = []
        for i, (automaton, layers) in enumerate(self._rules.automata):
            if layers[0] <= level < layers[-1]:
                known = self._states[i][parent]
                done = sum(layer <= level for layer in layers)
                moved = level in layers
                states[i] = automaton.steps[done - 1][known, code] if moved else known
                sizes.append(automaton.states(done))
        codes: dict[int, NDArray[Any]] = {}
        for _, layers in self._rules.direct:
            for i in layers:
                if i <= level < layers[-1] and i not in codes:
                    codes[i] = code if i == level else self._codes[i][parent]
        sizes += [len(self._rules.parameters[i]) for i in codes]
        columns = [*states.values(), *codes.values()]
        if not columns:
            target = np.zeros(len(parent), np.int32)
            return target, _Frontier(self._rules, min(1, len(parent)), {}, {})
        ids, example = factorise(columns, sizes)
        states = {i: column[example] for i, column in states.items()}
        codes = {i: column[example] for i, column in codes.items()}
        return ids.astype(np.int32), _Frontier(self._rules, len(example), states, codes)
