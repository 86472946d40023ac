"""DGEMM on matrix units (DMMA), and some on the ordinary arithmetic units (DFMA)."""

from __future__ import annotations

from tilewright.space import Config

from . import matrix_units
from .ordinary_units import ordinary

SHAPES = (
    (128, 64, 8, 8, 8, 1), (64, 64, 8, 8, 8, 2), (64, 128, 8, 8, 4, 1), (128, 128, 8, 8, 8, 1),
    (64, 64, 4, 8, 8, 2),
)  # fmt: skip
DEPTHS = ((16, 8, 2), (8, 8, 3), (16, 16, 2))


def candidates(trans: str) -> list[Config]:
    """Return points of the space, the likeliest first."""
    return matrix_units.with_few("d", trans, ordinary("d", trans, SHAPES, (2, 4), DEPTHS))
