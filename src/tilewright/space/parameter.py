"""Parameter: one thing about a kernel that can be chosen, and what it costs."""

from __future__ import annotations

import keyword
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.dataclass import dataclass
from tilewright.space.config import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Parameter"]

_INT64 = np.iinfo(np.int64)


@dataclass(frozen=True)
class Parameter:
    """A named choice between finitely many values.

    Parameters
    ----------
    name : str
        A valid identifier: constraints take it as an argument, kernels as a macro.
    values : tuple of int, or tuple of str
        The choices, all of one type, in the order in which neighbours are adjacent.
    meaning : str
        What the parameter sets, for a person.
    cost : str
        What raising it costs, for a person.
    unnamed : int or str, optional
        What a config means that does not name the parameter.  A parameter that came later
        than measurements which still hold has one: their configs keep their identity, and
        no config names this value.

    Raises
    ------
    ValueError
        If the name is no identifier, the values are none, repeated, of mixed
        type, or beyond 64 bits, or `unnamed` is none of them.
    """

    name: str
    values: tuple[int, ...] | tuple[str, ...]
    meaning: str
    cost: str
    unnamed: Value | None = None

    def __post_init__(self) -> None:
        if not str(self.name).isidentifier() or keyword.iskeyword(self.name):
            raise ValueError(
                f"name={self.name!r} is not an identifier; use letters, digits and underscores"
            )
        label = f"values={self.values!r} of parameter {self.name}"
        object.__setattr__(self, "values", tuple(self.values))
        if not self.values:
            raise ValueError(f"{label} is empty; give at least one value")
        if any(isinstance(value, bool) for value in self.values):
            raise ValueError(f"{label} holds a bool; use 0 and 1")
        kinds = {str if isinstance(value, str) else type(value) for value in self.values}
        if kinds not in ({int}, {str}):
            raise ValueError(f"{label} must be all int or all str; convert them")
        if len(set(self.values)) != len(self.values):
            raise ValueError(f"{label} repeats a value; give each once")
        if kinds == {int} and not all(_INT64.min <= int(v) <= _INT64.max for v in self.values):
            raise ValueError(f"{label} exceeds 64 bits; give smaller integers")
        if self.unnamed is not None:
            self.code(self.unnamed)

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def array(self) -> NDArray[Any]:
        """The values as predicates see them: int64, or NumPy strings."""
        return np.array(self.values, dtype=np.int64 if self.is_integer else np.str_)

    @cached_property
    def compact(self) -> NDArray[Any]:
        """The values in the smallest integer type that holds them all, or as strings."""
        if not self.is_integer:
            return self.array
        kind = np.result_type(
            np.min_scalar_type(int(self.array.min())), np.min_scalar_type(int(self.array.max()))
        )
        # A negative value beside one over 2**63 would give a float; int64 holds both.
        return self.array.astype(kind if kind.kind in "iu" else np.int64)

    @property
    def is_integer(self) -> bool:
        """Whether the values are integers rather than strings."""
        return not isinstance(self.values[0], str)

    @cached_property
    def _codes(self) -> dict[Value, int]:
        choices: tuple[Value, ...] = self.values
        return {value: code for code, value in enumerate(choices)}

    def code(self, value: object) -> int:
        """Return the position of a value in `values`.

        Raises
        ------
        ValueError
            If the parameter cannot take the value.
        """
        right_type = (
            isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            if self.is_integer
            else isinstance(value, str)
        )
        # Python takes 16.0 and True for equal to 16 and 1; a macro does not.
        if right_type and value in self._codes:
            return self._codes[value]
        raise ValueError(
            f"{self.name}={value!r} is not a choice; use one of "
            + ", ".join(repr(choice) for choice in self.values)
        )
