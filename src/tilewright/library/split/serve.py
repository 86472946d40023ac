"""Who starts a chain: requests that name an arithmetic, complex ones as real ones."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.backend import Event, GemmCall, LiveDevice, Operand, OutOfMemoryError
from tilewright.library.gemm import Placed, column_major_call, launch_gemm
from tilewright.library.scratch import Scratch, scratch_of
from tilewright.library.split.chain import Chain
from tilewright.library.split.decision import ROUTES, TERMS_BF16
from tilewright.library.split.product import Step, is_proved, unproved_are_served
from tilewright.library.split.worth import is_worth
from tilewright.problem import Problem, Trans
from tilewright.stencil import Source
from tilewright.stencil.split import SCHEMES, Texts

if TYPE_CHECKING:
    from tilewright.library.gemm import Request

__all__ = ["launch_split"]

# Smaller results leave most of a matrix unit's tile empty.  Nor could anything be promised:
# the largest error among a few elements is luck, single precision's as well.
_FEWEST_RESULTS = 1024


def launch_split(
    live: LiveDevice,
    request: Request,
    operands: tuple[Placed, Placed, Placed],
    queue: Any = None,
    after: tuple[Any, ...] = (),
    again: Hashable | None = None,
) -> Event:
    """Enqueue a product whose arithmetic the caller named, or whose choice he left to the guard.

    With `again` (`tilewright.library.split.again`) an equal call can be started by that.

    Returns
    -------
    Event
        Of the last launch.
    """
    problem, call, exchanged = column_major_call(request, operands)
    # Whatever the caller's scalars are, from here on they can be compared and hashed.
    call = replace(call, alpha=complex(call.alpha), beta=complex(call.beta))
    why = _why_ieee(live, request, problem)
    if not why:
        scratch = scratch_of(live, queue)
        with scratch.lock:
            try:
                chain = _chain(live, scratch, problem, call, request.arithmetic)
                return chain.launch(request.report, exchanged, queue, after, again)
            except OutOfMemoryError:
                if request.arithmetic != "fp32":
                    raise
                why = "the device has too little memory left for parts"
    if request.report is not None:
        request.report.fixed("ieee", why)
    return launch_gemm(live, replace(request, arithmetic=""), operands, queue, after)  # type: ignore[no-any-return]


def _why_ieee(live: LiveDevice, request: Request, problem: Problem) -> str:
    """Return why parts are out of the question; nothing if they are not."""
    if complex(request.alpha).imag or complex(request.beta).imag:
        return "alpha or beta is complex"
    if problem.k == 0 or request.alpha == 0:
        return "there is nothing to multiply"
    routes = {"fp32": ROUTES[1:], "tf32": ("tf32",)}.get(request.arithmetic, ())
    if routes and not unproved_are_served():
        missing = [name for name in routes if not is_proved(live, SCHEMES[name])]
        if missing:
            return f"no matrix units of {live.id} are proved for {' and '.join(missing)}"
    if request.arithmetic != "fp32":
        return ""
    if problem.k < TERMS_BF16:
        return f"k={problem.k} is less than {TERMS_BF16}, where single precision errs least"
    if problem.m * problem.n < _FEWEST_RESULTS:
        return f"{problem.m} x {problem.n} results are no work for matrix units"
    # Who serves what is unproved measures; what is proved is served because it is fast.
    if not unproved_are_served() and not is_worth(problem, live.spec):
        return "single precision is faster at this size"
    return ""


def _chain(
    live: LiveDevice, scratch: Scratch, problem: Problem, call: GemmCall, arithmetic: str
) -> Chain:
    """Return the chain of a call; a complex one as the real one of expand.cl."""
    if not problem.precision.is_complex:
        return Chain(live, scratch, problem, call, arithmetic, call)
    texts = Texts(live.dialect)
    m, n, k = problem.m, problem.n, problem.k

    def copied(name: str, source: Source, rows: int, columns: int, of: Operand, across: int) -> Any:
        ld = -(-2 * rows // 4) * 4  # whole vectors
        made = Operand(scratch.need(name, 4 * ld * across), 0, ld)
        arguments = (
            _i(rows), _i(columns), of.memory, _i(of.offset), _i(of.ld), made.memory, _i(ld),
        )  # fmt: skip
        return made, Step(source, texts.flat_launch(rows * columns), arguments)

    op_a, op_b = problem.trans_a, problem.trans_b
    wide = texts.expand(op_a, wide=True, other=op_b)
    a, step = copied("complex a", wide, m, k, call.a, 2 * k)
    steps = [step]
    b = Operand(call.b.memory, 2 * call.b.offset, 2 * call.b.ld)
    if op_b.transposed:  # conjugated or not: A has the signs
        b, step = copied("complex b", texts.expand(Trans.T, wide=False), k, n, call.b, n)
        steps.append(step)
    c = Operand(call.c.memory, 2 * call.c.offset, 2 * call.c.ld)
    real = Problem(2 * m, n, 2 * k, "s", Trans.N, Trans.N, a.ld, b.ld, c.ld)  # type: ignore[arg-type]
    scalars = complex(call.alpha).real, complex(call.beta).real
    inner = GemmCall(real.precision, 2 * m, n, 2 * k, scalars[0], a, b, scalars[1], c)
    return Chain(live, scratch, real, inner, arithmetic, call, tuple(steps))


def _i(number: int) -> np.int64:
    return np.int64(number)
