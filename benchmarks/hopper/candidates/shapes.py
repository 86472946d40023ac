"""Products of choices, kept where a stencil's space has them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.space import Config
from tilewright.stencil import stencil

from ..cases import variant_of

ARCH = "sm_90a"


class Points:
    """Points of one stencil's space for one case.

    Parameters
    ----------
    name : str
        Of the stencil.
    letter, trans : str
        Precision and case.
    fixed : Mapping
        Values of parameters that are not varied.
    """

    def __init__(self, name: str, letter: str, trans: str, fixed: Mapping[str, Any]) -> None:
        self.name, self.fixed = name, fixed
        self.space = stencil(name).space(variant_of(letter, trans), architecture_spec(ARCH))

    def of(
        self, names: Sequence[str], shapes: Iterable[Sequence[int]], **choices: Iterable[Any]
    ) -> Iterator[Config]:
        """Yield the points of all shapes and choices; the last choice varies fastest but shapes.

        Parameters
        ----------
        names : sequence of str
            What each number of a shape is.
        shapes : iterable
            Shapes.
        **choices : iterable
            Values by parameter; of ``depth`` the values are triples of block_k, unroll_k and
            stages, and ``turn`` says how far from the usual order a tile is walked.
        """
        shapes = tuple(shapes)
        for chosen in itertools.product(*choices.values()):
            point = {**self.fixed, **dict(zip(choices, chosen, strict=True))}
            if "depth" in point:
                depth = zip(("block_k", "unroll_k", "stages"), point.pop("depth"), strict=True)
                point |= dict(depth)
            points = [walked({**point, **dict(zip(names, one, strict=True))}) for one in shapes]
            for values, kept in zip(points, self.space.contained(points), strict=True):
                if kept:
                    yield Config(self.name, values)


def walked(values: dict[str, Any]) -> dict[str, Any]:
    """Return values with the order of a thread's multiply-adds in the place of its turn.

    Along the shorter side of a thread's tile, unless it is the other one's turn.
    """
    if "turn" in values:
        turn = values.pop("turn")
        tall = values["tile_m"] > values["tile_n"]
        values["walk"] = (tall ^ (turn % 2)) + turn // 2 * 2
    return values


def mixed(*lists: Iterable[Config]) -> list[Config]:
    """Return the first of each list, then the second of each, and so on."""
    turns = itertools.zip_longest(*lists)
    return [one for turn in turns for one in turn if one is not None]
