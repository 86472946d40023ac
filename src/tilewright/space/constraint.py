"""Constraint: a named condition on parameters, with a reason for a person."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from tilewright.dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Constraint", "Kind", "composed"]

Kind = Literal["hardware", "divisibility", "heuristic", "proof", "learned"]


@dataclass(frozen=True)
class Constraint:
    """A condition that every point of a space meets.

    Parameters
    ----------
    name : str
        Short name, shown in the funnel.
    predicate : callable
        A function or lambda whose parameter names are parameters of the space.
        It is called with NumPy arrays (int64, or strings) that broadcast against
        each other and returns a boolean array, so it is written elementwise:
        ``&`` and ``np.minimum``, not ``and`` and ``min``.  Integer division by
        zero gives 0, as in NumPy.  An argument with a default is a constant of
        the predicate, not a parameter of the space.
    reason : str
        Why a point that fails is not worth compiling: a sentence for a person.
    kind : {"hardware", "divisibility", "heuristic", "proof"}
        The three sorts of pruning of ASTRA (Kurzak et al. 2012, section 5): the
        device cannot, the shapes do not fit, or it is unlikely to be fast; and what
        nobody has shown to be right on such a device.

    Attributes
    ----------
    variables : tuple of str
        The parameters the predicate looks at, from its signature.

    Raises
    ------
    ValueError
        If the kind is unknown, or the signature names no parameter.
    """

    name: str
    predicate: Callable[..., Any]
    reason: str
    kind: Kind
    variables: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError(
                f"kind={self.kind!r} of constraint {self.name!r} is unknown; use one of "
                + ", ".join(get_args(Kind))
            )
        object.__setattr__(self, "variables", _variables(self.name, self.predicate))

    def holds(self, values: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
        """Evaluate the predicate on arrays that broadcast against each other.

        Parameters
        ----------
        values : Mapping
            An array for each of `variables`; others are ignored.

        Returns
        -------
        ndarray of bool
            In the broadcast shape of the arrays.

        Raises
        ------
        ValueError
            If the predicate fails on arrays or does not return booleans of
            their shape; the message names the constraint.
        """
        arrays = {name: values[name] for name in self.variables}
        shape = np.broadcast_shapes(*(array.shape for array in arrays.values()))
        try:
            # A table holds points that an earlier constraint rules out, such as 0 threads.
            with np.errstate(divide="ignore", invalid="ignore"):
                answer = np.asarray(self.predicate(**arrays))
            if answer.dtype != np.bool_:
                raise TypeError(f"it returned {answer.dtype}")
            return np.broadcast_to(answer, shape)
        except Exception as error:
            raise ValueError(
                f"constraint {self.name!r} failed on arrays ({error}); write its predicate "
                "elementwise, with & and | for and and or, returning booleans"
            ) from error


def composed(predicate: Callable[..., Any], **quantities: Callable[..., Any]) -> Callable[..., Any]:
    """Return a predicate of what is computed from parameters first.

    With an f of x and y, ``composed(lambda used, z: used < z, used=f)`` is a predicate of x, y
    and z.

    Parameters
    ----------
    predicate : callable
        Of quantities and of parameters, by name.
    **quantities : callable
        Of parameters, by the name that the predicate has for each; arguments with a default are
        constants here, too.  One that it does not name is left out.
    """
    named = _variables("composed", predicate)
    read = {name: _variables(name, quantities[name]) for name in named if name in quantities}
    own = [name for name in named if name not in read]

    def made(**values: Any) -> Any:
        found = {
            name: quantities[name](**{one: values[one] for one in ones})
            for name, ones in read.items()
        }
        return predicate(**found, **{name: values[name] for name in own})

    names = dict.fromkeys(itertools.chain(own, *read.values()))
    keyword = inspect.Parameter.KEYWORD_ONLY
    made.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, keyword) for name in names]
    )
    return made


def _variables(name: str, predicate: Callable[..., Any]) -> tuple[str, ...]:
    """Return the parameters without a default in the predicate's signature."""
    try:
        parameters = inspect.signature(predicate).parameters.values()
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"predicate={predicate!r} of constraint {name!r} has no signature; wrap it in a lambda"
        ) from error
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for parameter in parameters:
        if parameter.kind not in by_name:
            raise ValueError(
                f"predicate of constraint {name!r} takes {parameter}; name each parameter it uses"
            )
    found = tuple(p.name for p in parameters if p.default is inspect.Parameter.empty)
    if not found:
        raise ValueError(f"predicate of constraint {name!r} takes no parameter; name at least one")
    return found
