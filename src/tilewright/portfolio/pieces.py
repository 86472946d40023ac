"""Into how many pieces of k a product is cut, so that its sums err no more than other libraries'.

Errors of a sum of random numbers grow with the root of how many are added one after the other.
Where a result has few tiles, libraries divide k among multiprocessors; a kernel that takes less
time need not.  Such products are cut, and the pieces added in C::

    C <- A[:, 0:k1] B[0:k1] + beta C,    C <- A[:, k1:k2] B[k1:k2] + C,    ...
"""

from __future__ import annotations

from tilewright.portfolio.choose import choose
from tilewright.portfolio.held import Served, held_rows
from tilewright.problem import Problem
from tilewright.stencil import Variant

__all__ = ["pieces_of_k"]

# Products that one sum adds up, at most, the fewest that cost no more than is worth it; and tiles,
# of the size of large kernels' and for each multiprocessor, of results whose sums others divide.
_LONGEST, _TILE, _TILES = (4096, 8192), 128, 3

# Pieces begin at multiples of so many elements, as k did, and take so many times as long at most.
_UNIT, _MORE = 64, 1.07

# What each piece but the first takes besides, in nanoseconds, and more for each element of C: waves
# that end, and C that is read (38 products in S, D, C and Z on an H100).
_PIECE, _ELEMENT = 25e3, 0.015


def pieces_of_k(device: Served, problem: Problem, aligned: bool = True) -> list[tuple[int, int]]:
    """Return where pieces of k begin, and where they end; one where it is not cut.

    Parameters
    ----------
    device : Served
        Where it runs.
    problem : Problem
        One product, as kernels see it.
    aligned : bool
        As of `choose`.
    """
    p, many = problem, device.spec.multiprocessors
    whole = [(0, p.k)]
    tiles = -(-p.m // _TILE) * -(-p.n // _TILE)
    if p.k <= _LONGEST[0] or tiles > _TILES * many or p.precision.is_short or p.precision.parts > 1:
        return whole
    chosen = choose(device, p, aligned)
    table = held_rows(device, Variant.of(p))
    if table.model is None or chosen.kernel is None or chosen.ns is None:
        return whole
    at = next(at for at, one in enumerate(table.kernels) if one is chosen.kernel)
    chain = int(table.model.chains(p, many)[at])
    for longest in _LONGEST:
        count = max(1, -(-chain // longest))
        each = -(-p.k // (count * _UNIT)) * _UNIT
        if (count - 1) * (_PIECE + _ELEMENT * p.m * p.n) <= (_MORE - 1) * chosen.ns:
            return [(first, min(p.k, first + each)) for first in range(0, p.k, each)]
    return whole
