"""RecordedSpace: the points that a file has, with what strategies ask of a space."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.space import Config, Parameter, Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["RecordedSpace"]


class RecordedSpace:
    """A list of points; neighbours are those of them that differ in one parameter.

    Parameters
    ----------
    stencil_name : str
        What the configs belong to: a stencil, or any kernel's name.
    parameters : sequence of Parameter
        Those that take more than one value.
    codes : ndarray of int, shape (points, parameters)
        Position of each point's value in its parameter's values; no row twice.
    """

    def __init__(
        self, stencil_name: str, parameters: Sequence[Parameter], codes: NDArray[Any]
    ) -> None:
        self.stencil_name = stencil_name
        self.parameters = tuple(parameters)
        self.codes: NDArray[Any] = np.ascontiguousarray(codes, dtype=np.int32)

    @cached_property
    def configs(self) -> list[Config]:
        """All points, as the file has them."""
        names = [p.name for p in self.parameters]
        columns = [
            [p.values[code] for code in self.codes[:, i].tolist()]
            for i, p in enumerate(self.parameters)
        ]
        rows = zip(*columns, strict=True)
        return [Config(self.stencil_name, dict(zip(names, row, strict=True))) for row in rows]

    @cached_property
    def _rows(self) -> dict[tuple[int, ...], int]:
        return {tuple(row): at for at, row in enumerate(self.codes.tolist())}

    def _codes(self, values: Mapping[str, Value]) -> tuple[int, ...]:
        return tuple(p.code(values[p.name]) for p in self.parameters)

    def row(self, values: Mapping[str, Value]) -> int:
        """Return a point's place in the file.

        Raises
        ------
        KeyError
            If it is none of the recorded points.
        """
        return self._rows[self._codes(values)]

    def __contains__(self, values: object) -> bool:
        try:
            self.row(values)  # type: ignore[arg-type]  # anything else raises too
        except (KeyError, TypeError, ValueError):
            return False
        return True

    def contained(self, points: Sequence[Mapping[str, Value]]) -> list[bool]:
        """Return of each point whether it was recorded."""
        return [point in self for point in points]

    def count(self) -> int:
        """Return the number of points."""
        return len(self.codes)

    def enumerate(self) -> Iterator[Config]:
        """Yield every point, in the file's order."""
        return iter(self.configs)

    def sample(self, n: int, seed: int) -> list[Config]:
        """Return `n` points drawn uniformly without replacement, the same for the same seed."""
        drawn = np.random.default_rng(seed).choice(len(self.codes), min(n, len(self.codes)), False)
        return [self.configs[at] for at in drawn.tolist()]

    def neighbours(self, config: Mapping[str, Value]) -> list[Config]:
        """Return the points that differ from one in one parameter, nearest values first."""
        here = np.array(self._codes(config))
        apart = self.codes != here
        rows = np.flatnonzero(apart.sum(axis=1) == 1)
        which = apart[rows].argmax(axis=1)
        distance = np.abs(self.codes[rows, which] - here[which])
        order = np.lexsort((self.codes[rows, which], which, distance))
        return [self.configs[row] for row in rows[order].tolist()]
