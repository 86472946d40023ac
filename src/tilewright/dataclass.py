"""Frozen dataclasses that are quick to define, for what a first call imports.

The standard library compiles six functions for each frozen dataclass: 0.7 ms (Python 3.11, 2 GHz
Xeon), of which the classes of an SGEMM call added up to 23 ms.  Here ``__init__`` alone is
compiled, and the others are shared: 0.15 ms a class.  That ``__init__`` fills the instance's
``__dict__``, in half the time that `object.__setattr__` takes for each field.  Fields and what
works on them (`dataclasses.field`, `fields`, `replace`, `asdict`) are the standard library's.

Modules that no first call imports take the standard library's decorator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses
    from collections.abc import Callable, Iterator
    from operator import attrgetter

    def dataclass(*, frozen: bool, eq: bool = True) -> Callable[[type], type]:
        """Return a decorator that makes a class a dataclass, as `dataclasses.dataclass` does.

        Parameters
        ----------
        frozen : bool
            True: written down where a class is, because readers look for it there.
        eq : bool
            Whether instances with equal fields are equal, and hash alike.
        """
        assert frozen

        def made(cls: type) -> type:
            dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
            functions = {
                "__init__": _init(cls), "__repr__": _repr,
                "__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete,
            }  # fmt: skip
            if eq:
                functions |= _comparing(cls)
            for name, function in functions.items():
                if vars(cls).get(name) is None:  # __hash__ is None where a class has an __eq__
                    setattr(cls, name, function)
            return cls

        return made

    def _init(cls: type) -> Callable[..., None]:
        """Return the ``__init__`` of a class whose fields are known."""
        fields = dataclasses.fields(cls)
        positional = [_parameter(one) for one in fields if one.init and not one.kw_only]
        named = [_parameter(one) for one in fields if one.init and one.kw_only]
        parameters = ["self", *positional, *(["*", *named] if named else ())]
        lines = [f"def __init__({', '.join(parameters)}):", "_values = self.__dict__"]
        lines += [line for one in fields for line in _assigned(one)]
        if hasattr(cls, "__post_init__"):
            lines.append("self.__post_init__()")
        known = {"_MADE": _MADE, "__name__": cls.__module__}
        known |= {f"_default_{one.name}": one.default for one in fields}
        known |= {f"_make_{one.name}": one.default_factory for one in fields}
        exec("\n ".join(lines), known)  # noqa: S102  # of names of fields alone
        made: Callable[..., None] = known["__init__"]
        made.__qualname__ = f"{cls.__qualname__}.__init__"
        return made

    _MADE = type("made", (), {"__repr__": lambda _: "<made for each instance>"})()

    def _parameter(one: dataclasses.Field) -> str:
        """Return a field as a parameter."""
        if one.default_factory is not dataclasses.MISSING:
            return f"{one.name}=_MADE"
        return one.name if one.default is dataclasses.MISSING else f"{one.name}=_default_{one.name}"

    def _assigned(one: dataclasses.Field) -> Iterator[str]:
        """Yield the line that fills in a field, where ``__init__`` does."""
        name, is_made = one.name, one.default_factory is not dataclasses.MISSING
        given = f"_make_{name}()" if is_made else name
        if is_made and one.init:
            given += f" if {name} is _MADE else {name}"
        if is_made or one.init:
            yield f"_values[{name!r}] = {given}"

    def _repr(self: Any) -> str:
        fields = (one.name for one in dataclasses.fields(self) if one.repr)
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in fields)
        return f"{type(self).__qualname__}({shown})"

    def _comparing(cls: type) -> dict[str, Callable[..., Any]]:
        """Return ``__eq__`` and ``__hash__``."""
        names = [one.name for one in dataclasses.fields(cls) if one.compare]
        # A tuple of values; of one name alone the value itself, which serves as well.
        values_of = attrgetter(*names) if names else type

        def __eq__(self: Any, other: Any) -> Any:
            if other.__class__ is not self.__class__:
                return NotImplemented
            return values_of(self) == values_of(other)

        def __hash__(self: Any) -> int:
            return hash(values_of(self))

        return {"__eq__": __eq__, "__hash__": __hash__}

    def _refuse_to_set(self: Any, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def _refuse_to_delete(self: Any, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
