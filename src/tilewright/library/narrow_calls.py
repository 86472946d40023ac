"""Calls of gemm() on 8- and 16-bit arrays that tensor cores serve, by where the arrays are."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import GemmCall, LiveDevice, Operand
from tilewright.library.kernels import kernel_of
from tilewright.library.narrow_plan import CopiedPlan, NarrowPlan
from tilewright.library.narrow_units import (
    Matrix,
    Product,
    Ready,
    Step,
    ready,
    serves,
    steps,
)
from tilewright.library.plan import plans
from tilewright.library.scratch import scratch_of
from tilewright.precision import precision
from tilewright.timeline import span

if TYPE_CHECKING:
    from tilewright.library.narrow_arrays import Arrays
    from tilewright.library.on_device import View
    from tilewright.problem import Trans

__all__ = ["Call", "on_arrays_device", "on_host"]


@dataclass(frozen=True)
class Call:
    """One checked call: types, sizes and operations in the caller's orientation."""

    element: str
    result: str
    m: int
    n: int
    k: int
    alpha: Any
    beta: Any
    trans_a: Trans
    trans_b: Trans

    def product(self, a: Any, b: Any, c: Operand, *, row_major: bool) -> Product:
        """Return what is launched; `a` and `b` are memory, shape and steps in elements."""
        left = Matrix.of(*a, k_first=self.trans_a.transposed)
        right = Matrix.of(*b, k_first=not self.trans_b.transposed)
        if row_major:  # C^T = op(B)^T op(A)^T
            left, right = right, left
        return Product(self.element, self.result, self.alpha, self.beta, left, right, c)


# -- arrays on a device ----------------------------------------------------------------


def on_arrays_device(call: Call, library: Arrays, a: Any, b: Any, c: Any, asked: Any) -> Any:
    """Enqueue a product on the caller's stream.

    Parameters
    ----------
    call : Call
        What is computed; nothing of it is empty.
    library : Arrays
        Whose arrays they are.
    a, b, c : array
        The caller's; c may be None.
    asked : dtype or None
        The type of a new result as the caller named it.

    Returns
    -------
    array or None
        c or the new array; None where the tensor cores cannot serve the call.
    """
    from tilewright.backend.cuda.device import device_at

    views = [library.view(name, x) for name, x in (("a", a), ("b", b), ("c", c)) if x is not None]
    if any(view is None or view.ordinal != views[0].ordinal for view in views):
        return None
    live = device_at(views[0].ordinal)
    if not serves(live) or not all(map(_is_whole, views)):
        return None
    target = views[2] if c is not None else library.new(views[0], (call.m, call.n), call.result)
    placed = _placed(target)
    if placed is None:
        return None
    row_major, result = placed
    left, right = ((view.address, view.shape, _steps(view)) for view in views[:2])
    product = call.product(left, right, result, row_major=row_major)
    if not product.fits():
        return None
    key = library.key(a, b, c, (call.trans_a, call.trans_b), asked)
    stream = library.stream(live.ordinal)
    _enqueue(live, call, product, (*views[:2], target), row_major, key, stream)
    return target.array


def _steps(view: View) -> tuple[int, ...]:
    return tuple(step // view.dtype.itemsize for step in view.strides)


def _is_whole(view: View) -> bool:
    """Whether elements lie at multiples of their size."""
    size = view.dtype.itemsize
    return view.address % size == 0 and not any(step % size for step in view.strides)


def _placed(target: View) -> tuple[bool, Operand] | None:
    """Return whether C is row-major, and C as column-major; None if BLAS could not take it."""
    from tilewright.library.gemm import strided

    layout = strided(target.shape, target.strides, target.dtype.itemsize)
    return None if layout is None else (layout[0], Operand(target.address, 0, layout[1]))


def _enqueue(
    live: Any, call: Call, product: Product, views: tuple[View, View, View],
    row_major: bool, key: Hashable | None, stream: int,
) -> None:  # fmt: skip
    """Launch a product, and remember how for calls alike: other addresses, other scalars."""
    copied = [x.laid(product.size) is None for x in (product.a, product.b)]
    if any(step < 0 for view in views[:2] for step in view.strides):
        key = None  # a plan takes addresses for the least ones
    remembered = _Remembered(call, product, views, row_major, key)
    if not any(copied):
        made = ready(live, one := steps(live, product, _nothing))
        with span("launch"):
            made.enqueue(stream)
        remembered.plan(made, one[-1], lambda *plan: NarrowPlan(made.launches[-1], *plan))
        return
    scratch = scratch_of(live, stream)
    with scratch.lock:
        # Plans change the launches that they have; what is kept by its product stays.
        found = scratch.prepared.get(product) if key is None else None
        if found is None:
            found = ready(live, one := steps(live, product, scratch.need))
            scratch.remember(product if key is None else id(found), found)
            whose = (copied[1], copied[0]) if row_major else (copied[0], copied[1])
            remembered.plan(
                found, one[-1], lambda *plan: CopiedPlan(found, whose, scratch, stream, plan)
            )
        with span("launch"):
            found.enqueue(stream)


@dataclass(frozen=True)
class _Remembered:
    """What a plan is made of."""

    call: Call
    product: Product
    views: tuple[View, View, View]
    row_major: bool
    key: Hashable | None

    def plan(self, made: Ready, last: Step, make: Callable[..., NarrowPlan]) -> None:
        """Keep a plan of launches for calls with the same key, if there is one."""
        if self.key is None:
            return
        from tilewright.library.gemm import Prepared

        product, views = self.product, self.views
        x, y = (Operand(side.memory, 0, 0) for side in (product.a, product.b))
        whole = GemmCall(
            precision("s"), product.a.side, product.b.side, product.a.k,
            product.alpha, x, y, product.beta, product.c,
        )  # fmt: skip
        _, launch, arguments = last
        prepared = Prepared(made.kernels[-1], launch, whole, self.row_major, arguments, False)
        extents = tuple(view.extent for view in views)
        shape, dtype = (self.call.m, self.call.n), views[2].array.dtype
        plans.replace(
            self.key, made_plan := make(prepared, shape, extents, self.call.result, dtype)
        )
        made_plan.accept(*(view.address for view in views))


def _nothing(name: str, size: int) -> Any:
    raise AssertionError(f"{name} needs no copy")


# -- NumPy arrays ----------------------------------------------------------------------


def on_host(
    call: Call, a: NDArray[Any], b: NDArray[Any], c: Any, device: str | LiveDevice | None
) -> Any:
    """Multiply NumPy arrays on a device with tensor cores; None where it has none.

    They travel there and back, each as densely as it can lie.
    """
    from tilewright.library.gemm import live_device

    live = live_device(device)
    if not serves(live):
        return None
    kept: list[Any] = []

    def need(name: str, size: int) -> Any:
        kept.append(live.allocate(size))
        return kept[-1]

    def upload(x: NDArray[Any]) -> tuple[Any, tuple[int, ...], tuple[int, int]]:
        turned = x.flags.f_contiguous and not x.flags.c_contiguous
        dense = np.ascontiguousarray(x.T if turned else x)
        kept.append(live.upload(_raw(dense)))
        ld = dense.shape[1]
        return kept[-1], x.shape, (1, ld) if turned else (ld, 1)

    made = np.empty((call.m, call.n), a.dtype if call.result == call.element else call.result)
    if c is not None and call.beta != 0:
        made[...] = c
    try:
        left, right = upload(a), upload(b)
        # With beta = 0 nobody reads what it holds.
        memory = upload(made)[0]
        product = call.product(left, right, Operand(memory, 0, call.n), row_major=True)
        if not product.fits():
            return None
        for source, launch, arguments in steps(live, product, need):
            event = live.launch(kernel_of(live, source), launch, arguments)
        event.wait()
        live.download(memory, _raw(made))
    finally:
        for piece in kept:
            live.free(piece)
    if c is None:
        return made
    c[...] = made
    return c


def _raw(x: NDArray[Any]) -> NDArray[Any]:
    """Return an array's memory as integers: what copies it need not know bfloat16."""
    return x.view(f"u{x.itemsize}")
