"""Which products are computed tile by tile, and how much memory they take."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright.backend import LiveDevice
from tilewright.backend import device as find_device
from tilewright.serve.accuracy import INVARIANT
from tilewright.serve.request import Placed, Request
from tilewright.serve.streamed.host import HostMatrix
from tilewright.serve.streamed.pages import made_ahead
from tilewright.serve.streamed.pipeline import multiply
from tilewright.serve.streamed.placed import PlacedMatrix
from tilewright.serve.streamed.tiling import Early, HostCuts, PlacedCuts, Tiling
from tilewright.serve.streamed.transport import InOrder, Transport

if TYPE_CHECKING:
    from tilewright.backend.cuda.events import CUDAEvent

__all__ = ["devices_of", "is_wanted", "serve", "serve_placed"]

# Smaller products are copied whole: pinned buffers, threads and streams are worth a millisecond.
_LEAST_BYTES = 32 << 20

# Multiply-adds a byte for which products take as long as copies: of an H100, 55 to 65 TFLOP/s in
# single and double precision, four times as many with "fp32", and a link of 50 GB/s.
_BALANCE, _FASTER = 600, 4

# Of "fp32": strips of which 512 x 8192 are 128 blocks of 128 x 256, and few slabs, as each is
# multiplied by itself.
_STRIPS_OF_PARTS, _OF_PARTS = 16, Early(3, False, 0.9, 0.3)

# Of what is free: the rest is for what products need besides.
_PART_OF_FREE = 0.9


def is_wanted(live: LiveDevice, request: Request) -> bool:
    """Whether a product of arrays in the host's memory passes through a device tile by tile.

    Pairs of doubles do not: copies are a small part of the time that they take.
    """
    if request.limits is not None:
        return True
    if request.precision.parts > 1:
        return False
    sizes = request.m * request.k + request.k * request.n + request.m * request.n
    large = sizes * request.precision.element_bytes >= _LEAST_BYTES
    return large and live.backend == "cuda" and request.report is None


def devices_of(device: Any) -> list[LiveDevice]:
    """Return the devices that a caller names, one or several.

    Raises
    ------
    ValueError
        If none is named, or one twice.
    """
    if not isinstance(device, list | tuple):
        return [find_device(device)]
    if not device:
        raise ValueError(f"device={device!r} names none; give ids such as ['cuda:0', 'cuda:1']")
    found = [find_device(one) for one in device]
    for at, one in enumerate(found):
        if one in found[:at]:
            raise ValueError(f"device names {one.id} twice; name each device once")
    return found


def serve(devices: Sequence[LiveDevice], request: Request) -> None:
    """Compute into ``request.c``, tile by tile through the memory of devices, and wait for it.

    Raises
    ------
    ValueError
        If the limits leave no room, or a report is asked for, which is of one product.
    BackendError
        If all devices fail; it says which tiles of C are whole.
    """
    matrices = [HostMatrix(x) for x in (request.a, request.b, request.c)]
    cuts = HostCuts(matrices[2].row_major, _BALANCE)
    if request.arithmetic == "fp32":
        cuts = cuts._replace(
            balance=_FASTER * _BALANCE, strips=_STRIPS_OF_PARTS, longer=_OF_PARTS, shorter=_OF_PARTS
        )
    elif request.precision.is_complex:
        cuts = cuts._replace(balance=_BALANCE / 4)  # of four real ones
    with made_ahead(request.c):
        _multiply(devices, request, matrices, cuts)


def serve_placed(
    devices: Sequence[LiveDevice],
    request: Request,
    operands: Sequence[tuple[Any, Placed]],
    stream_of: Callable[[int], int],
) -> None:
    """Do so with matrices on CUDA devices, behind what their streams have, and wait for it.

    Parameters
    ----------
    devices : sequence of LiveDevice
        What computes.
    request : Request
        The product, of matrices.
    operands : sequence of (CUDADevice, Placed)
        Where A, B and C are.
    stream_of : callable
        Returns the address of the caller's stream on a device.
    """
    for one in devices:
        if one.backend != "cuda":
            raise ValueError(f"device names {one.id}, and a, b and c are on CUDA devices; leave it")
    size, events = request.precision.element_bytes, []
    for live in {live.ordinal: live for live, _ in operands}.values():
        stream = stream_of(live.ordinal)
        if live.is_captured(stream):
            raise ValueError("several devices are not captured into a graph; name no device")
        events.append(live.between_events(lambda: None, stream))
    matrices = [
        PlacedMatrix(live, operand, row_major, size) for live, (operand, row_major) in operands
    ]
    _multiply(devices, request, matrices, PlacedCuts(matrices[2].row_major), events)


def _multiply(
    devices: Sequence[LiveDevice],
    request: Request,
    matrices: Sequence[HostMatrix | PlacedMatrix],
    cuts: HostCuts | PlacedCuts,
    after: Sequence[CUDAEvent] = (),
) -> None:
    """Cut a product and let devices compute it behind events."""
    if request.report is not None:
        raise ValueError(
            "report and certify are of one product, and tiles are many; leave them out, or limits"
        )
    if request.arithmetic == INVARIANT:
        raise ValueError("device is a list, and accuracy='batch_invariant' takes one; name one")
    if request.triangle is not None:
        raise ValueError("device is a list, for gemm; syrk and herk take one device: name one")
    if request.precision.parts > 1:
        raise ValueError(
            "products tile by tile, on a list of devices or within limits, are of float32 to"
            " complex128, and these are DoubleDouble; name one device and leave limits out"
        )
    device_limit, host_limit = request.limits or (None, None)
    transports = [_transport(one, host_limit, device_limit is None, after) for one in devices]
    size = request.precision.element_bytes
    split = all(one.splits(request) for one in transports)
    cut = partial(Tiling.of, request.m, request.n, request.k, size, cuts=cuts, split=split)
    if device_limit is None:
        whole = cut(sys.maxsize).device_bytes(size)
        device_limit = min(_room(one, whole) for one in devices)
    for one in devices:
        device_limit = min(device_limit, one.max_allocation or device_limit)
    tiling = cut(device_limit)
    multiply(request, tiling, transports, matrices)


def _transport(
    live: LiveDevice, host_limit: int | None, keeps: bool, after: Sequence[CUDAEvent]
) -> Transport:
    if live.backend != "cuda":
        return InOrder(live)
    from tilewright.serve.streamed.overlapped import Overlapped

    made = Overlapped(live, host_limit, keeps=keeps)
    made.follow(after)
    return made


def _room(live: Any, wanted: int) -> int:
    """Return how many bytes of a device a call may take that wants so many.

    A device is not asked where so many are kept.
    """
    if live.backend == "cuda":
        from tilewright.serve.streamed.buffers import kept_bytes

        kept = kept_bytes(live)
        return wanted if max(kept, default=0) >= wanted else int(
            _PART_OF_FREE * (live.free_memory + sum(kept))
        )  # fmt: skip
    return int(_PART_OF_FREE * (live.spec.memory_bytes or _LEAST_BYTES))
