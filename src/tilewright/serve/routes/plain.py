"""Products by a precision's own kernels: of batches at once, of copied operands, or as they lie."""

from __future__ import annotations

from tilewright.backend import GemmCall, LiveDevice
from tilewright.problem import Problem
from tilewright.serve.arrange import Repeat
from tilewright.serve.kernels import begins_aligned
from tilewright.serve.routes.copied_batch import copied_batch
from tilewright.serve.routes.direct import direct, in_pieces
from tilewright.serve.routes.one_launch import one_launch
from tilewright.serve.routes.realigned import copied, expected_ns, way_of, way_steps, ways
from tilewright.serve.steps import Laid, MemorySpace, Step

__all__ = ["lay_out_invariant", "lay_out_plain"]


def lay_out_plain(
    live: LiveDevice, problem: Problem, call: GemmCall, space: MemorySpace, *, why: str = "",
    copies: bool = True, repeats: tuple[Repeat, ...] = (),
) -> Laid:  # fmt: skip
    """Return the launches of a call whose arithmetic is the precision's own.

    Parameters
    ----------
    live, problem, call, space, copies, repeats
        As of `lay_out`.
    why : str
        Why another arithmetic, which was named, does not serve.
    """
    copies = copies and call.alpha != 0 and call.k != 0  # else neither operand is read
    if repeats:
        together = _together(live, problem, call, space, repeats, copies)
        if together is not None:
            return Laid(together[0], why=why, repeats=together[1])
    if copies:
        way = way_of(live, problem, call)
        if way.copies:
            return Laid(way_steps(live, way, call, space), why=why, repeats=repeats)
    return Laid(in_pieces(live, problem, call), why=why, repeats=repeats)


def _together(
    live: LiveDevice, problem: Problem, call: GemmCall, space: MemorySpace,
    repeats: tuple[Repeat, ...], copies: bool,
) -> tuple[list[Step], tuple[Repeat, ...]] | None:  # fmt: skip
    """Return the launches of all products at once, and the repeats that are left; see `one_launch`.

    Operands are copied at once where that is faster: of other kernels than tensor cores' those of
    two dimensions.  Others they take as they lie, as exported libraries do.
    """
    if not copies or (len(repeats) == 1 and not problem.precision.is_short):
        return one_launch(live, problem, call, repeats)
    alone_ns = expected_ns(live, way_of(live, problem, call))
    read = copied_batch(live, problem, call, repeats, space, alone_ns)
    if read is not None:
        made = one_launch(live, *read[1:], alone_ns)
        if made is not None:
            return [*read[0], *made[0]], made[1]
    return one_launch(live, problem, call, repeats, alone_ns)


def lay_out_invariant(
    live: LiveDevice, problem: Problem, call: GemmCall, space: MemorySpace,
    repeats: tuple[Repeat, ...] = (),
) -> Laid:  # fmt: skip
    """Return the launches of a product whose bits depend on neither m nor n.

    Tensor cores read what is not aligned from copies, which changes no number; other kernels read
    everything as it lies.
    """
    made: list[Step] = []
    if problem.precision.is_short:
        begin = begins_aligned(call.a, call.precision), begins_aligned(call.b, call.precision)
        way = ways(problem, begin)[-1]  # with all copies
        made, call = copied(live, way, call, space)
        problem = way.problem
    why = "the kernel depends on k and the storage orders alone"
    return Laid([*made, direct(live, problem, call, invariant=True)], why=why, repeats=repeats)
