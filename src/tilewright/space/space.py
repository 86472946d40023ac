"""Space: parameters and constraints, counted, listed, sampled and checked."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.space.aliases import current
from tilewright.space.config import Config, Value
from tilewright.space.constraint import Constraint, Kind
from tilewright.space.parameter import Parameter

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilewright.space.component import Component
    from tilewright.space.funnel import Funnel

__all__ = ["Space"]

# columns() beyond this many rows is a mistake: a byte a parameter alone fills memory.
_MOST_ROWS = 2**30

# Configs decoded at once while iterating.
_CHUNK = 4096


class Space:
    """All points of some parameters that meet some constraints.

    Nothing is computed before it is asked for.  Parameters that no constraint
    connects are kept apart, and each group's valid points are held as a decision
    diagram with shared prefixes, so counting and sampling take time and memory
    by the constraints' complexity rather than by the number of points.

    Valid points have an order: lexicographic by position in each parameter's
    values, parameters taken as in `order`.  Enumeration and columns follow it.
    It depends on the parameters and constraints alone.

    Parameters
    ----------
    stencil_name : str
        The stencil the configs belong to.
    parameters : sequence of Parameter
        At least one, with distinct names.
    constraints : sequence of Constraint
        In the order in which the funnel reports them.

    Raises
    ------
    ValueError
        If there is no parameter, a name is used twice, or a constraint looks at
        a parameter that is not there.
    """

    def __init__(
        self,
        stencil_name: str,
        parameters: Sequence[Parameter],
        constraints: Sequence[Constraint] = (),
    ) -> None:
        self.stencil_name = stencil_name
        self.parameters = tuple(parameters)
        self.constraints = tuple(constraints)
        self._by_name = {p.name: p for p in self.parameters}
        # What goes without saying, which no config names.
        self._silent = {p.name: p.unnamed for p in self.parameters if p.unnamed is not None}
        if not self.parameters:
            raise ValueError("parameters=() is empty; give at least one Parameter")
        for label, items in (("parameters", self.parameters), ("constraints", self.constraints)):
            names = [item.name for item in items]
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"{label} has two named {name!r}; rename one")
        for constraint in self.constraints:
            for name in constraint.variables:
                if name not in self._by_name:
                    raise ValueError(
                        f"constraint {constraint.name!r} looks at {name!r}, which is no parameter; "
                        f"use {', '.join(self._by_name)}"
                    )

    @property
    def raw_size(self) -> int:
        """Number of points before any constraint, exact."""
        return math.prod(len(p) for p in self.parameters)

    @cached_property
    def _components(self) -> list[Component]:
        """Groups of parameters; the largest varies slowest, so its blocks are met once each."""
        from tilewright.space.component import Component, connected  # to check points takes none

        groups = connected(self.parameters, self.constraints)
        groups.sort(key=lambda group: math.prod(len(p) for p in group[0]), reverse=True)
        return [Component(*group) for group in groups]

    @property
    def order(self) -> tuple[str, ...]:
        """Parameter names from the one that varies slowest to the fastest."""
        return tuple(p.name for component in self._components for p in component.parameters)

    def count(self) -> int:
        """Return the number of valid points, exact at any size."""
        return math.prod(component.size for component in self._components)

    def funnel(self) -> Funnel:
        """Return how many raw points survive constraints 1 to i, for each i."""
        from tilewright.space.component import Component, connected
        from tilewright.space.funnel import Funnel, Stage

        # Most groups are as in the stage before.
        sizes: dict[tuple[Constraint | Parameter, ...], int] = {}
        stages = []
        before = self.raw_size
        for i, constraint in enumerate(self.constraints, start=1):
            after = 1
            for members, ties in connected(self.parameters, self.constraints[:i]):
                key = ties or members
                if key not in sizes:
                    sizes[key] = Component(members, ties).size if ties else len(members[0])
                after *= sizes[key]
            stages.append(
                Stage(constraint.name, constraint.kind, constraint.reason, after, before - after)
            )
            before = after
        return Funnel(self.raw_size, tuple(stages))

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return all valid points at once.

        Returns
        -------
        dict of str to ndarray, each of shape (count(),)
            Values of each parameter, in declared order of the parameters and in
            the smallest dtype that holds them.

        Raises
        ------
        ValueError
            If there are more points than memory is likely to hold.
        """
        sizes = [component.size for component in self._components]
        rows = math.prod(sizes)
        if rows > _MOST_ROWS:
            raise ValueError(
                f"columns() of {rows} points would not fit in memory; use enumerate() or sample()"
            )
        found: dict[str, NDArray[Any]] = {}
        outer, inner = 1, rows
        for component, size in zip(self._components, sizes, strict=True):
            inner = inner // size if size else 0
            for name, column in component.columns().items():
                spread = column
                if (outer, inner) != (1, 1):
                    shape = (outer, size, inner)
                    spread = np.broadcast_to(column[None, :, None], shape).reshape(-1)
                found[name] = spread
            outer *= size
        return {p.name: found[p.name] for p in self.parameters}

    def _decode(self, ranks: NDArray[Any]) -> Iterator[Config]:
        """Yield the configs of these ranks; the last component's digit is the lowest."""
        columns: dict[str, NDArray[Any]] = {}
        for i, component in reversed(list(enumerate(self._components))):
            digits = ranks
            if i:
                ranks, digits = ranks // component.size, ranks % component.size
            columns |= component.codes(digits)
        names = [(p.name, p.values, columns[p.name].tolist()) for p in self.parameters]
        for row in range(len(ranks)):
            yield self._named({name: values[codes[row]] for name, values, codes in names})

    def _named(self, values: Mapping[str, Value]) -> Config:
        """Return the config of some values, which names none that go without saying."""
        silent = self._silent
        kept = {name: x for name, x in values.items() if name not in silent or x != silent[name]}
        return Config(self.stencil_name, kept)

    def _whole(self, values: Mapping[str, Value]) -> dict[str, Value]:
        """Return values of all parameters: those given, and what goes without saying."""
        return {**self._silent, **current(self.stencil_name, values)}

    def enumerate(self, chunk: int = _CHUNK) -> Iterator[Config]:
        """Yield every valid config, in the order described above.

        Parameters
        ----------
        chunk : int
            Configs decoded at once; results do not depend on it.

        Raises
        ------
        ValueError
            If `chunk` is not positive.
        """
        if chunk < 1:
            raise ValueError(f"chunk={chunk} is not positive; give 1 or more")
        return self._enumerate(chunk)

    def _enumerate(self, chunk: int) -> Iterator[Config]:
        first, *others = self._components
        inner = math.prod(component.size for component in others)
        for start, stop in first.blocks() if inner else ():
            for low in range(start * inner, stop * inner, chunk):
                yield from self._decode(_ranks(range(low, min(low + chunk, stop * inner))))

    def __iter__(self) -> Iterator[Config]:
        return self.enumerate()

    def sample(self, count: int, seed: int) -> list[Config]:
        """Draw valid configs, each set of `count` being equally likely.

        Distinct ranks are drawn by Floyd's method from the exact number of
        points and decoded through the diagrams, so nothing is rejected and no
        point is visited that is not drawn.  The order is random too.

        Parameters
        ----------
        count : int
            How many, without replacement.
        seed : int
            The same seed gives the same configs.

        Raises
        ------
        ValueError
            If `count` is negative or exceeds the number of valid points.
        """
        total = self.count()
        if not 0 <= count <= total:
            raise ValueError(f"count={count} of {total} valid points; ask for 0 to {total}")
        draw = random.Random(seed)  # noqa: S311  # sampling, not cryptography
        chosen: dict[int, None] = {}
        for last in range(total - count, total):
            rank = draw.randrange(last + 1)
            chosen[last if rank in chosen else rank] = None
        ranks = list(chosen)
        draw.shuffle(ranks)
        return [
            config
            for low in range(0, count, _CHUNK)
            for config in self._decode(_ranks(ranks[low : low + _CHUNK]))
        ]

    def _point(self, values: Mapping[str, Value]) -> dict[str, int]:
        """Return the code of each parameter, checking names and values."""
        values = self._whole(values)
        for name in values:
            if name not in self._by_name:
                raise ValueError(
                    f"{name}={values[name]!r} is no parameter of {self.stencil_name}; "
                    f"leave it out or use one of {', '.join(self._by_name)}"
                )
        for parameter in self.parameters:
            if parameter.name not in values:
                choices = ", ".join(repr(value) for value in parameter.values)
                raise ValueError(f"{parameter.name} is missing; give one of {choices}")
        return {p.name: p.code(values[p.name]) for p in self.parameters}

    def violated(self, values: Mapping[str, Value]) -> list[Constraint]:
        """Return the constraints that one point fails, in declared order.

        Raises
        ------
        ValueError
            If a name is unknown or missing, or a value is none of its
            parameter's; the message names it and what to use.
        """
        codes = self._point(values)
        point = {p.name: p.array[[codes[p.name]]] for p in self.parameters}
        return [c for c in self.constraints if not c.holds(point).all()]

    def config(
        self, values: Mapping[str, Value], *, kinds: Collection[Kind] | None = None
    ) -> Config:
        """Return the config of one point, checked.

        Parameters
        ----------
        values : Mapping
            A value for each parameter.
        kinds : collection of str, optional
            Kinds of constraint that must hold; all by default.

        Raises
        ------
        ValueError
            As `violated`; or if the values are another stencil's config, or
            fail a constraint: the message names the first and its reason.
        """
        if isinstance(values, Config) and values.stencil != self.stencil_name:
            raise ValueError(
                f"config {values.id} belongs to {values.stencil!r}; "
                f"give one of {self.stencil_name!r}"
            )
        whole = self._whole(values)
        for constraint in self.violated(whole):
            if kinds is not None and constraint.kind not in kinds:
                continue
            used = ", ".join(f"{name}={whole[name]!r}" for name in constraint.variables)
            raise ValueError(
                f"{used} fails constraint {constraint.name!r} ({constraint.kind}): "
                f"{constraint.reason}; change one of them"
            )
        return self._named(values)

    def without(self, kind: str, more: Sequence[Constraint] = ()) -> Space:
        """Return the space without its constraints of a kind, and with some more.

        Parameters
        ----------
        kind : str
            As of `Constraint.kind`.
        more : sequence of Constraint
            What points have to meet besides.
        """
        rules = [rule for rule in self.constraints if rule.kind != kind]
        return Space(self.stencil_name, self.parameters, (*rules, *more))

    def __contains__(self, values: object) -> bool:
        if not isinstance(values, Mapping):
            return False
        try:
            self.config(values)
        except ValueError:
            return False
        return True

    def contained(self, points: Sequence[Mapping[str, Value]]) -> list[bool]:
        """Return of each point whether it is in the space, as ``in`` does, of all at once.

        Parameters
        ----------
        points : sequence of Mapping
            A value for each parameter.
        """
        found = [False] * len(points)
        codes: dict[int, list[int]] = {}
        for place, values in enumerate(points):
            if isinstance(values, Config) and values.stencil != self.stencil_name:
                continue
            with contextlib.suppress(ValueError):
                codes[place] = list(self._point(values).values())
        if codes:
            columns = zip(self.parameters, np.array(list(codes.values())).T, strict=True)
            held = self._hold({p.name: p.array[column] for p, column in columns})
            for place, kept in zip(codes, held.tolist(), strict=True):
                found[place] = kept
        return found

    def _hold(self, values: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Return for which points all constraints hold."""
        length = len(next(iter(values.values())))
        valid = np.ones(length, dtype=np.bool_)
        for constraint in self.constraints:
            valid &= constraint.holds(values)
        return valid

    def neighbours(self, config: Mapping[str, Value]) -> list[Config]:
        """Return the valid points that differ from a point in one parameter.

        Parameters
        ----------
        config : Config or Mapping
            The point; it need not meet the constraints itself.

        Returns
        -------
        list of Config
            Nearest values first: by distance in the parameter's values, then in
            declared order of the parameters, then the lower value.

        Raises
        ------
        ValueError
            If a name is unknown or missing, or a value is none of its
            parameter's.
        """
        codes = self._point(config)
        moves = sorted(
            (abs(code - codes[p.name]), i, code)
            for i, p in enumerate(self.parameters)
            for code in range(len(p))
            if code != codes[p.name]
        )
        if not moves:
            return []
        points = {p.name: np.full(len(moves), codes[p.name]) for p in self.parameters}
        for row, (_, i, code) in enumerate(moves):
            points[self.parameters[i].name][row] = code
        values = {p.name: p.array[points[p.name]] for p in self.parameters}
        valid = self._hold(values)
        base = dict(config)
        return [
            self._named({**base, self.parameters[i].name: self.parameters[i].values[code]})
            for (_, i, code), kept in zip(moves, valid.tolist(), strict=True)
            if kept
        ]


def _ranks(ranks: Sequence[int]) -> NDArray[Any]:
    """Return ranks as int64 where they fit, else as Python integers."""
    fits = max(ranks, default=0) < 2**62
    return np.array(ranks, dtype=np.int64 if fits else object)
