"""Calls like one made before, on OpenCL devices: from the caller's arrays to the plan.

What `tilewright.serve.warm` does in C for CUDA's arrays.  A call that had its closer look is
remembered by its arrays' layouts and types, its transposes and where it is served, never by
addresses; scalars are real numbers of no unusual size.  All other calls have their closer look.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.backend import Event, LiveDevice
from tilewright.portfolio.find import generation
from tilewright.serve.calls import keep, kept, planned, wanted_of
from tilewright.serve.host_blas import is_plain
from tilewright.serve.ordered import OrderedPlan, Places
from tilewright.serve.overlap import span

if TYPE_CHECKING:
    from tilewright.serve.request import Placed, Request

__all__ = ["Known", "find", "may_be_known", "remember"]


class Known(NamedTuple):
    """What calls that are alike have in common.

    `reach` is how many bytes A, B and C each have, from the first element to the end of the last;
    `whole` whether all of these are elements, in C's or Fortran's order.
    """

    plan: OrderedPlan
    exchanged: bool
    reach: tuple[int, int, int]
    whole: bool

    def start(self, places: Places, alpha: Any, beta: Any, queue: Any, after: Any) -> Event:
        """Enqueue the product of the caller's A, B and C; see `OrderedPlan.start`."""
        a, b, c = places
        return self.plan.start((b, a, c) if self.exchanged else places, alpha, beta, queue, after)


def _key(a: Any, b: Any, c: Any, trans_a: str, trans_b: str, where: Hashable) -> Hashable:
    return (
        a.shape, a.strides, a.dtype, b.shape, b.strides, b.dtype, c.shape, c.strides, c.dtype,
        trans_a, trans_b, where, generation(),
    )  # fmt: skip


def may_be_known(
    alpha: Any, beta: Any, trans_a: Any, trans_b: Any, accuracy: str, out_dtype: Any
) -> bool:
    """Whether a call is of a kind that is remembered, by gemm's arguments of these names."""
    return (
        accuracy == "ieee" and out_dtype is None and is_plain(alpha) and alpha != 0
        and is_plain(beta) and isinstance(trans_a, str) and isinstance(trans_b, str)
    )  # fmt: skip


def find(a: Any, b: Any, c: Any, trans_a: str, trans_b: str, where: Hashable) -> Known | None:
    """Return what is known of a call that may be; None where it takes a closer look.

    Parameters
    ----------
    a, b, c, trans_a, trans_b
        As of `tilewright.gemm`; arrays all.
    where : Hashable
        As of `remember`.
    """
    found: Known | None = kept(_key(a, b, c, trans_a, trans_b, where))
    return found


def remember(
    live: LiveDevice, request: Request, operands: tuple[Placed, Placed, Placed], where: Hashable
) -> None:
    """Let calls like one that was launched on its arrays as they lie be found.

    Parameters
    ----------
    live : LiveDevice
        Where it was launched.
    request : Request
        The call, with the caller's arrays.
    operands : tuple of Placed
        Where these are.
    where : Hashable
        What else tells such calls from others: the device, and where in their memory arrays begin.
    """
    if request.arithmetic or request.k == 0 or request.precision.parts == 2 or request.triangle:
        return  # depends on more; reads nothing; is not looked for
    if any(step < 0 for x in (request.a, request.b, request.c) for step in x.strides):
        return  # a batch backwards: `reach` is from the first element on
    wanted = wanted_of(replace(request, alpha=1, beta=0), operands)
    x = request
    key = _key(x.a, x.b, x.c, x.trans_a.value, x.trans_b.value, where)
    a, b, c = (span(0, y.shape, y.strides, y.dtype)[1] for y in (x.a, x.b, x.c))
    whole = all(one.flags.forc for one in (x.a, x.b, x.c))  # OpenCL takes no other for a buffer
    keep(key, Known(planned(live, wanted).plan, wanted.exchanged, (a, b, c), whole))
