"""Config: one frozen point of a stencil's space; its hash is its identity."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from tilewright.space.aliases import RETIRED, current, oldest

__all__ = ["Config", "Value"]

Value = int | str


class Config(Mapping[str, Value]):
    """An immutable mapping of parameter names to values, with an identity.

    Parameters
    ----------
    stencil : str
        Name of the stencil the values belong to.
    values : Mapping
        A value for each of the stencil's parameters, by today's name or one that it had
        (`tilewright.space.aliases`).
    """

    __slots__ = ("_id", "_values", "stencil")

    def __init__(self, stencil: str, values: Mapping[str, Value]) -> None:
        self.stencil = stencil
        # int() turns NumPy integers into plain ones, so that equal points hash alike.
        plain = {
            name: values[name] if isinstance(values[name], str) else int(values[name])
            for name in values
        }
        self._values = dict(sorted(current(stencil, plain).items()))
        self._id = ""

    @property
    def id(self) -> str:
        """First 12 hexadecimal digits of a SHA-256 over the stencil's name and the sorted values.

        By their first names, retired ones among them: the same point has the same id in every
        process and version.
        """
        if not self._id:  # most configs that are read from a file are never asked for it
            whole = oldest(self.stencil, {**RETIRED.get(self.stencil, {}), **self._values})
            canonical = json.dumps([self.stencil, whole], sort_keys=True, separators=(",", ":"))
            self._id = hashlib.sha256(canonical.encode()).hexdigest()[:12]
        return self._id

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(self.id)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Config):
            return NotImplemented
        return self.stencil == other.stencil and self._values == other._values

    def integer(self, name: str, missing: int | None = None) -> int:
        """Return a value that is known to be an integer; `missing` where a config has none.

        Raises
        ------
        KeyError
            If there is neither.
        """
        if missing is not None:
            return int(self._values.get(name, missing))
        return int(self._values[name])

    def replace(self, **changes: Value) -> Config:
        """Return a config with some values changed."""
        return Config(self.stencil, {**self._values, **current(self.stencil, changes)})

    def without(self, *names: str) -> Config:
        """Return a config that does not name some parameters."""
        kept = {name: value for name, value in self._values.items() if name not in names}
        return Config(self.stencil, kept)

    def __repr__(self) -> str:
        inner = ", ".join(f"{k}={v!r}" for k, v in self._values.items())
        return f"Config({self.stencil}: {inner})"
