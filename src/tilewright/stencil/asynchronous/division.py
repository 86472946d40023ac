"""How persistent blocks divide the steps along k of all tiles: what division.cuh computes."""

from __future__ import annotations

from tilewright.dataclass import dataclass
from tilewright.space import Config

__all__ = ["LEAST_SHARE", "MOST_IN_TREE", "MOST_SINGLE", "Division", "divide"]

# A share has at least so many steps of k, as LEAST_STEPS of simt_async/persistent.cuh says.
LEAST_SHARE = 64

# In single precision: an owner adds parts up one after another, 2 us each on an H100, where 50
# shares of one tile of 128 x 128, k 3126, took 94 us.  By costs as once fitted to such shapes the
# best number grows with the root of k, from 7 at 1024 to 20 at 8192; with 12 none of these is
# slower than with its own by more than a seventh.
MOST_SINGLE = 12

# The same where parts are added up by halves: an owner then waits for five parts one after another.
MOST_IN_TREE = 32

# Kernels count steps of shared tiles in 32 bits; where these are too few, all tiles are whole.
_MOST_STEPS = 2**32 - 1


@dataclass(frozen=True)
class Division:
    """Who computes what, in tiles of block_k along k.

    Parameters
    ----------
    blocks : int
        That stay.
    steps : int
        Of one tile of C.
    whole : int
        Tiles that one block computes each.
    shared : int
        Tiles behind them that are divided among the workers.
    workers : int
        Blocks with a share of these.
    """

    blocks: int
    steps: int
    whole: int
    shared: int
    workers: int

    def share_at(self, worker: int) -> int:
        """Return where a worker's share begins, in steps of all shared tiles."""
        return self.shared * self.steps * worker // self.workers


def divide(
    config: Config,
    sizes: tuple[int, int, int],
    blocks: int,
    least: int | None = None,
    most: int | None = None,
) -> Division:
    """Return the division of a problem among so many blocks.

    Parameters
    ----------
    config : Config
        One whose blocks stay.
    sizes : tuple of int
        m, n and k.
    blocks : int
        Of the launch on a device.
    least : int, optional
        Steps of a tile of block_k that a share has at least; 64 of k, where it is left out.
    most : int, optional
        Shares of a tile at most, where the kernel limits them: in single precision `MOST_SINGLE`,
        or `MOST_IN_TREE`.
    """
    m, n, k = (-(-x // config.integer(f"block_{s}")) for x, s in zip(sizes, "mnk", strict=True))
    tiles, stream_k = m * n, int(config.get("stream_k", 0))
    rest = tiles % blocks
    shared = 0
    if stream_k and rest and k:
        shared = rest + (blocks if stream_k > 1 and tiles > blocks else 0)
    if shared * k > _MOST_STEPS:
        shared = 0
    least = least or LEAST_SHARE // config.integer("block_k")
    each = max(1, k // least)
    if most:
        each = min(each, most)
    return Division(blocks, k, tiles - shared, shared, min(blocks, shared * each))
