"""Which precisions and transposes somebody asks for."""

from __future__ import annotations

from tilewright.export.target import LETTERS
from tilewright.precision import precision
from tilewright.problem import Trans, transposes_of
from tilewright.stencil import Variant

__all__ = ["variants_of"]


def variants_of(precisions: str, trans: str) -> list[Variant]:
    """Return the variants that two options name, each once.

    Parameters
    ----------
    precisions : str
        BLAS's letters with commas, such as ``"s,d"``, or ``"all"``.
    trans : str
        Pairs with commas, such as ``"NN,NT"``, or ``"all"``: 4 on real elements, 9 on
        complex ones.  On real elements C means T.

    Raises
    ------
    ValueError
        If a letter or pair is unknown.
    """
    letters = LETTERS if precisions.lower() == "all" else _parts(precisions, "precision")
    found: dict[Variant, None] = {}
    for letter in letters:
        if letter.lower() not in LETTERS:
            raise ValueError(f"precision={letter!r} is not exported; use {', '.join(LETTERS)}")
        of = precision(letter)
        for a, b in transposes_of(of) if trans.lower() == "all" else _pairs(trans):
            found[Variant(of, a.on(of), b.on(of))] = None
    return list(found)


def _parts(text: str, name: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ValueError(f"{name}={text!r} has an empty part; write letters with commas, or all")
    return parts


def _pairs(text: str) -> list[tuple[Trans, Trans]]:
    pairs = _parts(text, "trans")
    for pair in pairs:
        if len(pair) != 2 or any(letter not in "NTC" for letter in pair.upper()):
            raise ValueError(f"trans={pair!r} is no pair of N, T and C; write NN, NT or all")
    return [(Trans.parse(pair[0]), Trans.parse(pair[1])) for pair in pairs]
