"""Products of arrays that give and take parts, where the device's memory is the host's."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.serve.request import Request
from tilewright.serve.streamed.host import HostMatrix
from tilewright.serve.streamed.progress import said_of, tell
from tilewright.serve.streamed.tiling import Place, Tiling

__all__ = ["serve"]


def serve(live: LiveDevice, request: Request, run: Callable[[Request, LiveDevice], None]) -> None:
    """Compute into ``request.c``, part by part.

    Parameters
    ----------
    live : LiveDevice
        Whose memory is the host's.
    request : Request
        Of arrays that give and take parts.
    run : callable
        Computes a request of NumPy arrays in place.

    Raises
    ------
    ValueError
        If the limit leaves no room.
    """
    limit = (request.limits or (None, None))[1] or _host_memory() // 4
    if not any(request.precision.scalar(request.alpha)):
        request = replace(request, k=0)  # no part of A or B is read
    size = request.precision.element_bytes
    tiling = Tiling.of(request.m, request.n, request.k, size, limit, name="max_host_memory")
    matrices = HostMatrix(request.a), HostMatrix(request.b), HostMatrix(request.c)
    done: list[Place] = []
    try:
        for place in tiling.places():
            tell(len(done), len(tiling.places()))
            _compute(request, tiling, place, matrices, lambda part: run(part, live))
            done.append(place)
    except BaseException as error:
        error.add_note(said_of(done, tiling))
        raise


def _compute(
    request: Request, tiling: Tiling, place: Place, matrices: tuple[HostMatrix, ...],
    run: Callable[[Request], None],
) -> None:  # fmt: skip
    """Compute a tile, and put it where it belongs."""
    (a, b, c), rows, columns = matrices, tiling.m[place[0]], tiling.n[place[1]]
    shape = rows[1] - rows[0], columns[1] - columns[0]
    reads = any(request.precision.scalar(request.beta))
    tile = np.array(c.part(rows, columns)) if reads else np.empty(shape, request.c.dtype)
    for number, terms in enumerate(tiling.k):
        x, y = request.trans_a.transposed, request.trans_b.transposed
        run(replace(
            request,
            m=shape[0], n=shape[1], k=terms[1] - terms[0],
            a=a.part(*((terms, rows) if x else (rows, terms))),
            b=b.part(*((columns, terms) if y else (terms, columns))),
            c=tile, beta=1 if number else request.beta, limits=None,
        ))  # fmt: skip
    c.put(rows, columns, tile)


def _host_memory() -> int:
    """Return the bytes of the host's memory that are free, as far as the system tells."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return 4 << 30
