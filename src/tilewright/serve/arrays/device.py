"""Arrays on a CUDA device, whoever made them: in place, without a copy, without waiting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.backend import Operand
from tilewright.backend.cuda.device import device_at
from tilewright.dataclass import dataclass
from tilewright.portfolio.find import generation
from tilewright.problem import Trans
from tilewright.serve import warm
from tilewright.serve.accuracy import INVARIANT
from tilewright.serve.arenas import Memory
from tilewright.serve.calls import Planned, start, wanted_of
from tilewright.serve.overlap import overlap, overlaps_itself, refuse_overlap, span
from tilewright.serve.request import Placed, strided
from tilewright.serve.unproved import unproved_are_served

if TYPE_CHECKING:
    from tilewright.serve.request import Device, Request

__all__ = ["View", "one_device", "operand_of", "run"]

# Bytes at whose multiples elements begin that are as long or longer: complex pairs have 32.
_ALIGNED = 16


@dataclass(frozen=True)
class View:
    """What there is to know of an array on a device.

    Parameters
    ----------
    array : object
        The caller's array.
    address : int
        Of its first element.
    shape, strides : tuple of int
        Strides in bytes.
    dtype : numpy.dtype
        Of its elements.
    ordinal : int
        CUDA's number of its device.
    conjugated : bool
        Whether the array's elements are the conjugates of what lies in memory.
    made_here : bool
        Whether it is a result that the caller has not seen yet.
    keep : object
        What must live until the kernel is enqueued.
    span : tuple of int
        Addresses of the first byte and of the one behind the last.
    """

    array: Any
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    ordinal: int
    conjugated: bool = False
    made_here: bool = False
    keep: Any = None
    span: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        # Not found on demand: every call looks at it several times.
        found = span(self.address, self.shape, self.strides, self.dtype)
        self.__dict__["span"] = found

    @property
    def extent(self) -> int:
        """Bytes from the first element to the end of the last; strides are positive."""
        return 0 if 0 in self.shape else self.span[1] - self.address


def run(
    request: Request,
    device: Device,
    stream_of: Callable[[int], int],
    memory: Memory | None = None,
    where: Any = None,
) -> None:
    """Enqueue the product on the caller's stream.

    Parameters
    ----------
    request : Request
        The call; its arrays are `View`.
    device : list or tuple of str or LiveDevice, or None
        Several that compute; arrays on a device are multiplied there otherwise.
    stream_of : callable
        Returns the address of the stream to use on a device.
    memory : Memory, optional
        The allocator of the arrays' library.
    where : object, optional
        The device as the arrays' library names it: calls like this one may be remembered.
    """
    several = isinstance(device, list | tuple)
    if device is not None and not several:
        raise ValueError(f"device={device!r} has no say: arrays on a device stay where they are")
    views = {"a": request.a, "b": request.b, "c": request.c}
    ordinal = request.c.ordinal if several else one_device(views)
    refuse_overlap(_meet, request.c, a=request.a, b=request.b)
    if request.batch is not None and overlaps_itself(request.c.shape, request.c.strides):
        raise ValueError(f"c.strides={request.c.strides} overlap themselves; give c its own memory")
    # A matrix of one row is to be computed as one of many.
    rows_first = request.arithmetic == INVARIANT
    a, b, c = (
        operand_of(name, view, request.matrix(name), rows_first=rows_first)
        for name, view in views.items()
    )
    operands = a, b, c
    stored = request
    if request.a.conjugated or request.b.conjugated:
        stored = replace(
            request,
            trans_a=_as_stored(request.trans_a, request.a),
            trans_b=_as_stored(request.trans_b, request.b),
        )
    if several:
        from tilewright.serve.streamed.serve import devices_of, serve_placed

        if request.batch is not None:
            raise ValueError(
                f"device={device!r} is of matrices; give a, b and c two dimensions, or no device"
            )
        placed = [
            (device_at(view.ordinal), one)
            for view, one in zip(views.values(), operands, strict=True)
        ]
        serve_placed(devices_of(device), stored, placed, stream_of)
        return
    live = device_at(ordinal)
    wanted = wanted_of(stored, operands)
    portfolios = generation()
    found = start(live, wanted, stream_of(ordinal), request.report, memory)
    # One that did without memory was not as others will be, nor one under a special rule, nor one
    # that was under way when reload() forgot what was remembered.
    special = request.arithmetic and unproved_are_served()
    usual = not found.lean and not special and portfolios == generation()
    # Overlap is looked for from the first element on.
    forward = all(step >= 0 for view in views.values() for step in view.strides)
    if where is not None and request.report is None and usual and forward:
        _remember(request, found, wanted.exchanged, where)


def _remember(request: Request, found: Planned, exchanged: bool, where: Any) -> None:
    """Let calls like this one be started by `warm.again`."""
    a, b, c = request.a, request.b, request.c
    precision, part = request.precision, request.triangle
    accuracy, most = request.arithmetic or "ieee", precision.largest
    scalars: tuple[Any, ...] = request.alpha, request.beta
    if precision.parts == 2:  # whose default is "accurate", and which take integers as they are
        accuracy, most = "ieee" if request.arithmetic else "fast", 2.0**53 - 1
        high = [complex(x.hi) for x in scalars]
        scalars = tuple(x if x.imag else x.real for x in high)
    accuracy = request.residues.named(accuracy)
    if part is not None:
        accuracy = warm.of_triangle(part.lower, request.beta != 0, accuracy)
    given = (
        a.array, b.array, None if c.made_here else c.array, *scalars,
        request.trans_a.value, request.trans_b.value, accuracy, None, None,
    )  # fmt: skip
    warm.remember(
        given, c.array, found.plan, c.shape, c.array.dtype, where, exchanged,
        precision.is_complex, False, most,
        a.extent, b.extent, c.extent,
    )  # fmt: skip


def one_device(views: dict[str, View]) -> int:
    """Return the device that all arrays are on."""
    (first, like), *others = views.items()
    for name, view in others:
        if view.ordinal != like.ordinal:
            raise ValueError(
                f"{name} is on cuda:{view.ordinal} but {first} is on cuda:{like.ordinal};"
                " move them to one device"
            )
    return like.ordinal


def _meet(x: View, c: View) -> bool:
    (low_x, high_x), (low_c, high_c) = x.span, c.span
    if high_x <= low_c or high_c <= low_x:  # nearly always
        return False
    return overlap(*((y.address, y.shape, y.strides, y.dtype) for y in (x, c)))


def operand_of(name: str, view: View, matrix: Any, *, rows_first: bool = False) -> Placed:
    """Return an operand whose first product's matrix has `matrix`'s shape and strides."""
    size = view.dtype.itemsize
    layout = strided(matrix.shape, matrix.strides, size, rows_first=rows_first)
    begins = min(size, _ALIGNED)
    if layout is None or view.address % begins or any(step % size for step in view.strides):
        raise ValueError(
            f"{name}.strides={view.strides} (bytes, from address {view.address:#x}) is not a"
            f" BLAS matrix; copy it first ({name}.copy())"
        )
    return Operand(view.address, 0, layout[1]), layout[0]


def _as_stored(trans: Trans, view: View) -> Trans:
    """Return the operation on what lies in memory."""
    return Trans.of(trans.transposed, trans.conjugated ^ view.conjugated)
