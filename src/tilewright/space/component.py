"""A component: variables that constraints tie together, apart from all others."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.space.automaton import Automaton, tabulate
from tilewright.space.constraint import Constraint
from tilewright.space.diagram import Diagram, Rules, TooWide
from tilewright.space.parameter import Parameter

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MOST_EDGES", "Component", "connected"]

# Edges of one diagram: at about 20 bytes each, some 100 MB at the very most.
MOST_EDGES = 2**22


def connected(
    parameters: Sequence[Parameter], constraints: Sequence[Constraint]
) -> list[tuple[tuple[Parameter, ...], tuple[Constraint, ...]]]:
    """Part parameters into groups that no constraint connects.

    Returns
    -------
    list of (parameters, constraints)
        In declared order of each group's first parameter, and within a group.
    """
    group = {p.name: {p.name} for p in parameters}
    for constraint in constraints:
        merged = set().union(*(group[name] for name in constraint.variables))
        for name in merged:
            group[name] = merged
    found = []
    for names in {min(names): names for names in group.values()}.values():
        members = tuple(p for p in parameters if p.name in names)
        ties = tuple(c for c in constraints if c.variables[0] in names)
        found.append((members, ties))
    return found


class Component:
    """All points of one group of parameters, in blocks of bounded memory.

    A block is a decision diagram.  Where one diagram for the whole would be too
    wide, the values of the first undecided variable are divided in two, and so
    on; blocks follow each other in order of rank.

    Parameters
    ----------
    parameters : tuple of Parameter
        The variables.
    constraints : tuple of Constraint
        The constraints on them.

    Attributes
    ----------
    parameters : tuple of Parameter
        In the order in which they are bound: ranks are lexicographic in it.
    """

    def __init__(
        self, parameters: tuple[Parameter, ...], constraints: tuple[Constraint, ...]
    ) -> None:
        self._rules = _rules(parameters, constraints)
        self.parameters = self._rules.parameters
        # A single point needs an edge a variable, whatever the bound.
        self._most_edges = max(MOST_EDGES, len(parameters))
        self._undecided = [tuple((0, len(p)) for p in self.parameters)]
        self._ranges: list[tuple[tuple[int, int], ...]] = []
        self._starts = [0]
        self._latest: tuple[int, Diagram] | None = None

    @property
    def size(self) -> int:
        """Number of points, exact."""
        while self._discover():
            pass
        return self._starts[-1]

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Yield first rank, and the one after the last, of each block.

        Blocks are found as they are asked for, and then remembered.
        """
        for i in itertools.count():
            if i == len(self._ranges) and not self._discover():
                return
            yield self._starts[i], self._starts[i + 1]

    def _discover(self) -> bool:
        """Find the next block that has points; return whether there is one."""
        while self._undecided:
            ranges = self._undecided.pop()
            try:
                diagram = Diagram(self._rules, ranges, self._most_edges)
            except TooWide:
                self._undecided += _halves(ranges)
                continue
            if diagram.size:
                self._latest = len(self._ranges), diagram
                self._ranges.append(ranges)
                self._starts.append(self._starts[-1] + diagram.size)
                return True
        return False

    def _diagram(self, block: int) -> Diagram:
        """Return a block's diagram; only the latest one is kept."""
        if self._latest is None or self._latest[0] != block:
            self._latest = block, Diagram(self._rules, self._ranges[block], self._most_edges)
        return self._latest[1]

    def codes(self, ranks: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the codes of the points with these ranks, a column a parameter.

        Parameters
        ----------
        ranks : ndarray of int, shape (points,)
            Ranks below ``size``, in any order, repeats allowed.
        """
        columns = {
            p.name: np.zeros(len(ranks), np.min_scalar_type(len(p))) for p in self.parameters
        }
        if not len(ranks):
            return columns
        greatest = ranks.max()
        for _, stop in self.blocks():
            if stop > greatest:
                break
        owner = np.array([bisect_right(self._starts, rank) - 1 for rank in ranks.tolist()])
        for block in np.unique(owner).tolist():
            mine = owner == block
            found = self._diagram(block).codes(ranks[mine] - self._starts[block])
            for name, column in zip(columns, found, strict=True):
                columns[name][mine] = column
        return columns

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return every point in order of rank: values in compact columns."""
        size = self.size
        columns = {p.name: np.empty(size, p.compact.dtype) for p in self.parameters}
        tables = [p.compact for p in self.parameters]
        for block, (start, stop) in enumerate(self.blocks()):
            parts = [column[start:stop] for column in columns.values()]
            self._diagram(block).fill(parts, tables)
        return columns


def _halves(ranges: tuple[tuple[int, int], ...]) -> list[tuple[tuple[int, int], ...]]:
    """Divide the first variable that has a choice; the half to be done first comes last."""
    i = next(i for i, (low, high) in enumerate(ranges) if high - low > 1)
    low, high = ranges[i]
    middle = (low + high) // 2
    return [(*ranges[:i], half, *ranges[i + 1 :]) for half in ((middle, high), (low, middle))]


def _rules(parameters: tuple[Parameter, ...], constraints: tuple[Constraint, ...]) -> Rules:
    """Order the variables and prepare each constraint for that order."""
    place = {p.name: i for i, p in enumerate(parameters)}
    scopes = [sorted(place[name] for name in c.variables) for c in constraints]
    tables = [
        tabulate(c, [parameters[i] for i in scope])
        for c, scope in zip(constraints, scopes, strict=True)
    ]
    selectivity = [1.0 if table is None else float(table.mean()) for table in tables]
    sequence = _order([len(p) for p in parameters], scopes, selectivity)
    layer = {variable: i for i, variable in enumerate(sequence)}
    automata, direct = [], []
    for constraint, scope, table in zip(constraints, scopes, tables, strict=True):
        layers = tuple(sorted(layer[variable] for variable in scope))
        if table is None:
            direct.append((constraint, layers))
        else:
            axes = sorted(range(len(scope)), key=lambda axis: layer[scope[axis]])
            automata.append((Automaton(table.transpose(axes)), layers))
    return Rules(tuple(parameters[i] for i in sequence), tuple(automata), tuple(direct))


def _order(
    sizes: Sequence[int], scopes: Sequence[Sequence[int]], selectivity: Sequence[float]
) -> list[int]:
    """Choose the order in which the variables of a component are bound.

    The next constraint to complete is the one that lets the number of prefixes
    grow least: the values of its unbound variables, times the part that the
    constraints so completed let through.

    Parameters
    ----------
    sizes : sequence of int
        Values of each variable.
    scopes : sequence of sequences of int
        Variables of each constraint.
    selectivity : sequence of float
        Part of the points that each constraint lets through.

    Returns
    -------
    list of int
        Every variable once; ties go to the one declared first.
    """
    bound: list[int] = []
    pending = {i: frozenset(scope) for i, scope in enumerate(scopes)}
    while pending:
        growth = {}
        for i, scope in pending.items():
            after = scope.union(bound)
            passed = [selectivity[j] for j, other in pending.items() if other <= after]
            factors = [float(sizes[v]) for v in after.difference(bound)] + passed
            # A constraint that nothing meets still needs a logarithm.
            growth[i] = sum(math.log(max(factor, 1e-12)) for factor in factors)
        best = min(pending, key=lambda i: (growth[i], i))
        bound += sorted(pending[best].difference(bound), key=lambda v: (sizes[v], v))
        pending = {i: scope for i, scope in pending.items() if not scope <= frozenset(bound)}
    return bound + [v for v in range(len(sizes)) if v not in bound]
