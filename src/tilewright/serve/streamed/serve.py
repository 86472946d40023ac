"""Which products are computed tile by tile, and how much memory they take."""

from __future__ import annotations

from typing import Any

from tilewright.backend import LiveDevice
from tilewright.serve.gemm import Request
from tilewright.serve.streamed.pipeline import multiply
from tilewright.serve.streamed.tiling import IEEE, PARTS, Tiling
from tilewright.serve.streamed.transport import InOrder, Transport

__all__ = ["is_wanted", "serve"]

# Smaller products are copied whole: pinned buffers, threads and streams are worth a millisecond.
_LEAST_BYTES = 32 << 20

# Of what is free: the rest is for what products need besides.
_PART_OF_FREE = 0.9


def is_wanted(live: LiveDevice, request: Request) -> bool:
    """Whether a product of arrays in the host's memory passes through a device tile by tile."""
    if request.limits is not None:
        return True
    sizes = request.m * request.k + request.k * request.n + request.m * request.n
    large = sizes * request.precision.element_bytes >= _LEAST_BYTES
    return large and live.backend == "cuda" and request.report is None


def serve(live: LiveDevice, request: Request) -> None:
    """Compute into ``request.c``, tile by tile through a device's memory, and wait for it.

    Raises
    ------
    ValueError
        If the limits leave no room, or a report is asked for, which is of one product.
    BackendError
        If the device fails; it says which tiles of C are whole.
    """
    if request.report is not None:
        raise ValueError("report is of one product, and tiles are many; leave it out, or limits")
    device_limit, host_limit = request.limits or (None, None)
    if device_limit is None:
        device_limit = int(_PART_OF_FREE * _free(live))
    if live.max_allocation is not None:
        device_limit = min(device_limit, live.max_allocation)
    size = request.precision.element_bytes
    pieces = PARTS if request.arithmetic else IEEE
    tiling = Tiling.of(request.m, request.n, request.k, size, device_limit, pieces)
    if live.backend == "cuda":
        from tilewright.serve.streamed.overlapped import Overlapped

        transport: Transport = Overlapped(live, host_limit)
    else:
        transport = InOrder(live)
    multiply(request, tiling, transport)


def _free(live: Any) -> int:
    """Return the free bytes of a device, or all of them where it does not tell."""
    return int(getattr(live, "free_memory", None) or live.spec.memory_bytes or _LEAST_BYTES)
