"""Arrays on a CUDA device, whoever made them: in place, without a copy, without waiting."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.backend import LiveDevice, Operand
from tilewright.backend.cuda.device import device_at
from tilewright.library.gemm import Placed, prepare_gemm, strided
from tilewright.library.overlap import overlap
from tilewright.library.plan import Plan, plans
from tilewright.library.realigned import copied_call, launch_realigned
from tilewright.problem import Trans
from tilewright.timeline import span

if TYPE_CHECKING:
    from tilewright.library.gemm import Request

__all__ = ["View", "run", "start_again"]


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

    @property
    def extent(self) -> int:
        """Bytes from the first element to the end of the last; strides are positive."""
        last = sum(step * (size - 1) for size, step in zip(self.shape, self.strides, strict=True))
        return last + self.dtype.itemsize


def run(
    request: Request,
    device: str | LiveDevice | None,
    stream_of: Callable[[int], int],
    key: Hashable | None = None,
) -> None:
    """Enqueue the product on the caller's stream.

    Parameters
    ----------
    request : Request
        The call; its arrays are `View`.
    device : None
        Arrays on a device have been placed already.
    stream_of : callable
        Returns the address of the stream to use on a device.
    key : hashable, optional
        What another call must have in common with this one to be launched alike.
    """
    if device is not None:
        raise ValueError(f"device={device!r} has no say: arrays on a device stay where they are")
    views = {"a": request.a, "b": request.b, "c": request.c}
    ordinal = _one_device(views)
    for name in ("a", "b"):
        if overlap(_place(views[name]), _place(request.c)):
            raise ValueError(f"c overlaps {name}; give c memory of its own")
    given = request.trans_a, request.trans_b
    operands = _operand("a", request.a), _operand("b", request.b), _operand("c", request.c)
    request = replace(
        request,
        trans_a=_as_stored(request.trans_a, request.a),
        trans_b=_as_stored(request.trans_b, request.b),
    )
    live = device_at(ordinal)
    if request.arithmetic:
        from tilewright.library.split.serve import launch_split

        again = _again_key(request, given)
        launch_split(live, request, operands, stream_of(ordinal), again=again)
        return
    wanted = copied_call(live, request, operands)
    if wanted is not None and launch_realigned(live, wanted, stream_of(ordinal)) is not None:
        return
    made = prepare_gemm(live, request, operands)
    launch = live.prepare(made.kernel, made.launch, made.arguments)
    with launch.lock, span("launch"):
        launch.enqueue(stream_of(ordinal))
    # With alpha = 0 the kernel was told k = 0: that launch is no model for another alpha.  Nor is
    # one that could not have its copies now.
    kept = wanted is None and request.alpha != 0 and request.k != 0
    if key is not None and made.common and kept:
        extents = (request.a.extent, request.b.extent, request.c.extent)
        plan = plans.remember(key, lambda: Plan(launch, made, (request.m, request.n), extents))
        plan.accept(request.a.address, request.b.address, request.c.address)


def _again_key(request: Request, given: tuple[Trans, Trans]) -> Hashable | None:
    """Return the key of calls that an adapter may start like this one, by `start_again`."""
    from tilewright.library.split.again import again_key

    views = request.a, request.b, request.c
    if any(view.conjugated for view in views):
        return None
    places = (part for view in views for part in _place(view))
    return again_key(request.arithmetic, request.alpha, request.beta, *given, *places)


def start_again(
    ordinal: int, stream: int, accuracy: str, alpha: Any, beta: Any, *given: Hashable
) -> bool:
    """Enqueue a call in parts that was made before; return False if there was none.

    Parameters
    ----------
    ordinal : int
        CUDA's number of the device that all arrays are on.
    stream : int
        Address of the stream.
    accuracy, alpha, beta
        As of `tilewright.gemm`.
    given
        Transposes; and of a, b and c address, shape, strides in bytes, and NumPy's dtype.
    """
    from tilewright.library.split.again import again_key, start_again

    key = again_key(accuracy, alpha, beta, *given)
    return start_again(device_at(ordinal), stream, key)


def _one_device(views: dict[str, View]) -> int:
    """Return the device that all arrays are on."""
    for name, view in views.items():
        if view.ordinal != views["a"].ordinal:
            raise ValueError(
                f"{name} is on cuda:{view.ordinal} but a is on cuda:{views['a'].ordinal};"
                " move them to one device"
            )
    return views["a"].ordinal


def _place(view: View) -> tuple[Any, ...]:
    return view.address, view.shape, view.strides, view.dtype


def _operand(name: str, view: View) -> Placed:
    layout = strided(view.shape, view.strides, view.dtype.itemsize)
    if layout is None or view.address % view.dtype.itemsize:
        raise ValueError(
            f"{name}.strides={view.strides} (bytes, from address {view.address:#x}) is not a"
            f" BLAS matrix; copy it first ({name}.copy())"
        )
    return Operand(view.address, 0, layout[1]), layout[0]


def _as_stored(trans: Trans, view: View) -> Trans:
    """Return the operation on what lies in memory."""
    return Trans.of(trans.transposed, trans.conjugated ^ view.conjugated)
