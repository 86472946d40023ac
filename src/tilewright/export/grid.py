"""How a stencil's grid grows with the result, as two numbers that a table can hold."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.space import Config
from tilewright.stencil import Stencil

__all__ = ["Grid", "grid_of"]

# Sides that end before, on and behind the edges of blocks, and grids of many.
_SIDES = (1, 2, 31, 64, 127, 128, 129, 255, 256, 257, 1000, 4096, 10007)


@dataclass(frozen=True)
class Grid:
    """A grid that covers C with blocks.

    Parameters
    ----------
    block_m, block_n : int
        Elements of C in a block.
    factor : int
        Thread blocks that share a block of C, side by side in x.
    folded : bool
        Whether all blocks lie in x, or those along n in y.
    threads : tuple of int
        Threads of a block, in x and y.
    """

    block_m: int
    block_n: int
    factor: int
    folded: bool
    threads: tuple[int, int]

    def cover(self, m: int, n: int) -> tuple[int, int]:
        """Return the grid for an m x n result."""
        along_m, along_n = -(-m // self.block_m), -(-n // self.block_n)
        if self.folded:
            return along_m * along_n * self.factor, 1
        return along_m * self.factor, along_n


def grid_of(family: Stencil, config: Config) -> Grid:
    """Return the rule of a stencil's launches.

    It is tried on results of many shapes: a stencil whose launches follow another rule is
    refused rather than exported wrongly.

    Raises
    ------
    ValueError
        If no such rule describes the launches.
    """
    one = family.launch(config, 1, 1)
    told = not one.resident and one.slices is None and family.common_arguments(config)
    if told and {"block_m", "block_n"} <= set(config) and one.grid[1] == 1:
        block_m, block_n = config.integer("block_m"), config.integer("block_n")
        for folded in (True, False):
            rule = Grid(block_m, block_n, one.grid[0], folded, one.block)
            if all(_agrees(rule, family, config, m, n) for m in _SIDES for n in _SIDES):
                return rule
    raise ValueError(
        f"stencil={family.name!r} launches {config.id} in a way that a table cannot tell;"
        " export with --defaults, or tune another stencil"
    )


def _agrees(rule: Grid, family: Stencil, config: Config, m: int, n: int) -> bool:
    launch = family.launch(config, m, n)
    return (launch.grid, launch.block) == (rule.cover(m, n), rule.threads)
