"""ZGEMM on matrix units (DMMA), and some on the ordinary arithmetic units (DFMA)."""

from __future__ import annotations

from tilewright.space import Config

from . import matrix_units
from .ordinary_units import ordinary

SHAPES = (
    (64, 64, 4, 8, 8, 1), (32, 64, 4, 8, 8, 4), (64, 64, 4, 4, 8, 1), (32, 32, 4, 4, 4, 2),
)  # fmt: skip
DEPTHS = ((8, 8, 2), (8, 8, 3), (16, 8, 2))


def candidates(trans: str) -> list[Config]:
    """Return points of the space, the likeliest first."""
    others = ordinary("z", trans, SHAPES, (2, 1), DEPTHS)
    return [*matrix_units.best_complex(trans), *matrix_units.with_few("z", trans, others)]
