"""Calls of gemm() on 8- and 16-bit arrays that tensor cores serve, by where the arrays are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import LaunchError, LiveDevice, Operand
from tilewright.backend import device as find_device
from tilewright.dataclass import dataclass
from tilewright.portfolio.find import generation
from tilewright.precision import PRECISIONS
from tilewright.serve import warm
from tilewright.serve.accuracy import INVARIANT
from tilewright.serve.arenas import enqueue
from tilewright.serve.arrange import Repeat, arrange, shapes_of
from tilewright.serve.calls import in_bytes, keep, kept
from tilewright.serve.laid_out import ALPHA, BETA, A, B, C, Space
from tilewright.serve.layout import Strided
from tilewright.serve.narrow.products import Matrix, Product, repeated, steps
from tilewright.serve.plan import Plan, call_of
from tilewright.serve.request import strided
from tilewright.serve.steps import Step
from tilewright.serve.tensor_cores import has_wgmma
from tilewright.stencil.wgmma.call import ALIGNMENT
from tilewright.timeline import span

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilewright.precision import Precision
    from tilewright.problem import Trans
    from tilewright.serve.arrays.device import View
    from tilewright.serve.narrow.arrays import Arrays
    from tilewright.serve.narrow.fused import Then
    from tilewright.serve.triangle import Triangle

    Told = Callable[[Any, Plan, bool], None]

__all__ = ["Call", "on_arrays_device", "on_host"]


@dataclass(frozen=True)
class Call:
    """One checked call: types, sizes and operations in the caller's orientation."""

    precision: Precision
    m: int
    n: int
    k: int
    alpha: Any
    beta: Any
    trans_a: Trans
    trans_b: Trans
    then: Then | None = None
    vectors: tuple[int, ...] = ()  # addresses of what follows, where something does
    triangle: Triangle | None = None
    invariant: bool = False  # whether bits do not depend on m

    def product(
        self, a: Any, b: Any, c: Operand, alpha: Any, beta: Any, *, row_major: bool
    ) -> Product:
        """Return what is launched; `a` and `b` are memory, shape and steps in elements."""
        left = Matrix.of(*a, k_first=self.trans_a.transposed)
        right = Matrix.of(*b, k_first=not self.trans_b.transposed)
        triangle = self.triangle
        if row_major:  # C^T = op(B)^T op(A)^T
            left, right = right, left
            triangle = None if triangle is None else triangle.exchanged()
        then = None if self.then is None else self.then.along(row_major=row_major)
        return Product(self.precision, alpha, beta, left, right, c, then, triangle, self.invariant)


# -- arrays on a device ----------------------------------------------------------------


def on_arrays_device(
    call: Call, library: Arrays, a: Any, b: Any, c: Any, asked: Any, told: Told | None = None
) -> Any:
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
    told : callable, optional
        Told the device, the plan and whether the kernels' A is b.

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
    if not has_wgmma(live) or not all(map(_is_whole, views)):
        return None
    if c is None:
        batch, *_ = shapes_of(a, b, c, call.trans_a, call.trans_b)
        shape, kind = (*batch, call.m, call.n), call.precision.result_name
        views.append(library.new(views[0], shape, kind))
    target = views[2]
    found = arrange(views[0], views[1], target, call.trans_a, call.trans_b)
    placed = _placed(target, found.c, rows_first=call.invariant)
    if placed is None:
        return None
    row_major, result = placed
    repeats = tuple(
        (count, *((y, x) if row_major else (x, y)), z) for count, x, y, z in found.repeats
    )
    bases = (B, A) if row_major else (A, B)
    left, right = (
        (
            base + _begins(view, which, found.repeats),
            matrix.shape,
            tuple(step // view.dtype.itemsize for step in matrix.strides),
        )
        for base, view, matrix, which in zip(
            bases, views[:2], (found.a, found.b), (1, 2), strict=True
        )
    )
    made_up = Operand(C, 0, result.ld)
    product = call.product(left, right, made_up, *_made_up(call), row_major=row_major)
    if not product.fits():
        return None
    portfolios = generation()
    plan = _planned(live, product, repeats)
    first, second = views[1::-1] if row_major else views[:2]
    native = call_of(
        first.address, second.address, target.address, call.alpha, call.beta,
        library.stream(live.ordinal), vectors=call.vectors,
    )  # fmt: skip
    enqueue(live, plan, native, library.stream(live.ordinal), library.memory)
    if told is not None:
        told(live, plan, row_major)
    # Other arrays export themselves anew at every call, and reload() forgot what it interrupted.
    if library.memory is not None and call.then is None and portfolios == generation():
        _remember(call, (a, b, c, asked), (*views[:2], target), plan, row_major)
    return target.array


def _made_up(call: Call) -> tuple[float, float]:
    """Return the scalars that a call's plan is laid out with."""
    alpha, beta = ALPHA.real, BETA.real
    if call.triangle is not None and call.beta == 0:  # passes over a triangle depend on it
        beta = 0
    return (int(alpha), int(beta)) if call.precision.is_whole else (alpha, beta)


def _begins(view: View, which: int, repeats: tuple[Repeat, ...]) -> int:
    """Return how many bytes beyond what is aligned an operand begins.

    Where later products' matrices begin otherwise, all are laid out as not aligned.
    """
    alike = all(one[which] % ALIGNMENT == 0 for one in repeats)
    return view.address % ALIGNMENT or (0 if alike else view.dtype.itemsize)


def _laid_out(
    live: Any, product: Product, space: Space, repeats: tuple[Repeat, ...]
) -> tuple[list[Step], tuple[Repeat, ...]]:
    """Return a product's launches, and how they are to be repeated, in elements."""
    if product.then is None:
        return repeated(live, product, space, repeats)
    from tilewright.serve.narrow.fused import fused_steps

    return fused_steps(live, product, space), repeats


def _planned(live: Any, product: Product, repeats: tuple[Repeat, ...]) -> Plan:
    """Return the plan of a product at made-up addresses, repeated as so many bytes say."""
    key = live, product, repeats, generation()
    found: Plan | None = kept(key)
    if found is None:
        of = product.precision
        size, result = of.element_bytes, of.result_dtype.itemsize
        elements = tuple((n, a // size, b // size, c // result) for n, a, b, c in repeats)
        with span("lay out"):
            try:
                found = _made(live, product, elements, together=True)
            except LaunchError:  # the driver refuses a map of all matrices of a batch
                if not elements:
                    raise
                found = _made(live, product, elements, together=False)
        keep(key, found)
    return found


def _made(live: Any, product: Product, repeats: tuple[Repeat, ...], *, together: bool) -> Plan:
    """Return a plan of a batch: in one launch if it may be, or product by product."""
    space = Space()
    laid, left = _laid_out(live, product, space, repeats if together else ())
    begins = product.a.memory % ALIGNMENT, product.b.memory % ALIGNMENT
    again = in_bytes(left if together else repeats, product.precision)
    return Plan(live, laid, space, begins, repeats=again)


def _remember(
    call: Call, given: tuple[Any, ...], views: tuple[View, ...], plan: Plan, exchanged: bool
) -> None:
    """Let calls like this one be started by `warm.again`."""
    if any(step < 0 for view in views for step in view.strides):
        return  # overlap is looked for from the first element on
    a, b, c, asked = given
    whole = call.precision.is_whole
    most = 2.0**31 - 1 if whole else PRECISIONS["s"].largest
    target = views[2]
    where = getattr(target.array, "device", target.ordinal)
    trans = call.trans_a.value, call.trans_b.value
    accuracy = INVARIANT if call.invariant else "ieee"
    if call.triangle is not None:
        accuracy = warm.of_triangle(call.triangle.lower, call.beta != 0, accuracy)
    warm.remember(
        (a, b, c, call.alpha, call.beta, *trans, accuracy, asked, None),
        target.array, plan, target.shape, target.array.dtype, where, exchanged, False, whole,
        most, *(view.extent for view in views),
    )  # fmt: skip


def _is_whole(view: View) -> bool:
    """Whether elements lie at multiples of their size."""
    size = view.dtype.itemsize
    return view.address % size == 0 and not any(step % size for step in view.strides)


def _placed(target: View, matrix: Strided, *, rows_first: bool) -> tuple[bool, Operand] | None:
    """Return whether C is row-major, and C as column-major; None if BLAS could not take it."""
    size = target.dtype.itemsize
    layout = strided(matrix.shape, matrix.strides, size, rows_first=rows_first)
    return None if layout is None else (layout[0], Operand(target.address, 0, layout[1]))


# -- NumPy arrays ----------------------------------------------------------------------


def on_host(
    call: Call, a: NDArray[Any], b: NDArray[Any], c: Any, device: str | LiveDevice | None
) -> Any:
    """Multiply NumPy arrays on a device with tensor cores; None where it has none.

    They travel there and back, each as densely as it can lie.
    """
    live = find_device(device)
    if not has_wgmma(live):
        return None
    kept: list[Any] = []
    space = _Allocated(live, kept)

    def upload(x: NDArray[Any]) -> tuple[Any, tuple[int, ...], tuple[int, int]]:
        transposed = x.flags.f_contiguous and not x.flags.c_contiguous
        dense = np.ascontiguousarray(x.T if transposed else x)
        kept.append(live.upload(_raw(dense)))
        ld = dense.shape[1]
        return kept[-1], x.shape, (1, ld) if transposed else (ld, 1)

    made = np.empty((call.m, call.n), call.precision.result_dtype)
    if c is not None and (call.beta != 0 or call.triangle is not None):
        made[...] = c
    try:
        left, right = upload(a), upload(b)
        # With beta = 0 nobody reads what it holds.
        memory = upload(made)[0]
        there = Operand(memory, 0, call.n)
        product = call.product(left, right, there, call.alpha, call.beta, row_major=True)
        if not product.fits():
            return None
        for kernel, launch, arguments in steps(live, product, space):
            event = live.launch(kernel, launch, arguments)
        event.wait()
        live.download(memory, _raw(made))
    finally:
        for piece in kept:
            live.free(piece)
    if c is None:
        return made
    c[...] = made
    return c


@dataclass(frozen=True)
class _Allocated:
    """Memory of one call, which frees all that it kept."""

    live: LiveDevice
    kept: list[Any]

    def need(self, name: str, size: int, *, zeroed: bool = False) -> Any:
        """Return memory of so many bytes."""
        zeros = self.live.upload(np.zeros(size, np.uint8)) if zeroed else None
        self.kept.append(self.live.allocate(size) if zeros is None else zeros)
        return self.kept[-1]

    @property
    def zero(self) -> Any:
        """Return memory with one int, 0."""
        self.kept.append(self.live.upload(np.zeros(1, np.int32)))
        return self.kept[-1]


def _raw(x: NDArray[Any]) -> NDArray[Any]:
    """Return an array's memory as integers: what copies it need not know bfloat16."""
    return x.view(f"u{x.itemsize}")
