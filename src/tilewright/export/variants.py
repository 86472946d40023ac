"""Which precisions and transposes somebody asks for."""

from __future__ import annotations

from tilewright.export.target import LETTERS
from tilewright.precision import precision
from tilewright.problem import pair_of, transposes_of
from tilewright.stencil import Variant

__all__ = ["variants_of"]


def variants_of(precisions: str, trans: str) -> list[Variant]:
    """Return the variants that two options name, each once.

    Parameters
    ----------
    precisions : str
        Letters with commas, such as ``"s,bf16"``, or ``"all"``: those of the C library.
    trans : str
        Pairs with commas, such as ``"NN,NT"``, or ``"all"``: 4 on real elements, 9 on
        complex ones, of 8-bit elements TN alone, of TF32 TN, NN and TT.  On real elements C
        means T.

    Raises
    ------
    ValueError
        If a letter or pair is unknown, or no kernel is of that pair.
    """
    letters = LETTERS if precisions.lower() == "all" else _parts(precisions, "precision")
    found: dict[Variant, None] = {}
    for letter in letters:
        of = precision(letter)
        every = trans.lower() == "all"
        for a, b in transposes_of(of) if every else map(pair_of, _parts(trans, "trans")):
            variant = Variant(of, a.on(of), b.on(of))
            if not of.reads(variant.k_fast):
                if every:
                    continue
                raise ValueError(
                    f"trans={a}{b} has no kernels of {of.letter}, whose operands do not lie in"
                    " that order; use TN, of copies where they do not lie so"
                )
            found[variant] = None
    return list(found)


def _parts(text: str, name: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ValueError(f"{name}={text!r} has an empty part; write letters with commas, or all")
    return parts
