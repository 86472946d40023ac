"""Products in parts: of whom, and complex ones as real ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.backend import GemmCall, LiveDevice, Operand
from tilewright.precision import precision
from tilewright.problem import Problem, Trans
from tilewright.serve.arrange import Repeat
from tilewright.serve.kernels import keeps_alignment, kernel_of
from tilewright.serve.routes.direct import direct
from tilewright.serve.routes.plain import lay_out_plain
from tilewright.serve.routes.realigned import copied, expected_ns, way_of
from tilewright.serve.routes.split.chain import Chain, ieee_choice, scratch_bytes
from tilewright.serve.routes.split.decision import ROUTES, TERMS_BF16
from tilewright.serve.routes.split.product import is_proved
from tilewright.serve.routes.split.worth import is_worth, is_worth_together
from tilewright.serve.steps import Laid, MemorySpace, Step
from tilewright.serve.tensor_cores import reads
from tilewright.serve.triangle import Piece
from tilewright.serve.unproved import unproved_are_served
from tilewright.stencil import Source
from tilewright.stencil.split import SCHEMES, Sources

__all__ = ["split_steps", "why_ieee"]

_i = np.int64  # as kernels take sizes and places

# Blocks in z of a grid; and memory for the parts of as many products as one chain has.
_MOST_PRODUCTS, _MOST_BYTES = 65535, 1 << 30

# Smaller results leave most of a tensor core's tile empty.  Nor could anything be promised:
# the largest error among a few elements is luck, single precision's as well.
_FEWEST_RESULTS = 1024


def split_steps(
    live: LiveDevice,
    space: MemorySpace,
    problem: Problem,
    call: GemmCall,
    arithmetic: str,
    report: Any = None,
    blocks: Sequence[Piece] = (),
    repeats: tuple[Repeat, ...] = (),
) -> Laid:
    """Return the launches of a product whose arithmetic the caller named, or left to the guard.

    Parameters
    ----------
    live, space, problem, call, arithmetic, report
        As of `lay_out`; `why_ieee` knows no reason against it.
    blocks : sequence of Piece
        What is computed of the result; all of it without any.
    repeats : tuple of Repeat
        Of a batch: how the product is repeated, in elements.
    """
    if problem.precision.is_complex:
        blocks = [one.real() for one in blocks]
    steps: Sequence[Step]
    first, problem, call = _in_reals(live, space, problem, call)
    if arithmetic == "tf32":
        of = precision("tf32")
        problem, call = replace(problem, precision=of), replace(call, precision=of)
        why = "accuracy is 'tf32'"
        if blocks:
            steps = _of_blocks(live, problem, call, space, blocks)
        else:  # complex numbers are expanded one by one
            laid = lay_out_plain(live, problem, call, space, repeats=() if first else repeats)
            steps, repeats = laid.steps, repeats if first else laid.repeats
        return Laid([*first, *steps], arithmetic, arithmetic, why, repeats=repeats)
    together = _together(live, problem, call, arithmetic, repeats)
    if together:
        at = repeats.index(together)
        repeats = (*repeats[:at], *repeats[at + 1 :])
        steps = list(_chains_of_batch(live, space, problem, call, together, report))
    else:
        chain = Chain(live, space, problem, call, arithmetic, first, tuple(blocks))
        steps = chain.steps(report)
    if arithmetic in SCHEMES:
        return Laid(steps, arithmetic, arithmetic, f"accuracy is {arithmetic!r}", repeats=repeats)
    return Laid(steps, arithmetic, arithmetic, guarded=True, repeats=repeats)


def _together(
    live: LiveDevice, problem: Problem, call: GemmCall, arithmetic: str, repeats: Sequence[Repeat]
) -> Repeat | None:
    """Return which repeats of a product in reals one chain serves; None: none of them."""
    if not repeats or arithmetic != "fp32":
        return None
    found = max(repeats, key=lambda one: one[0])
    steps, size = found[1:], problem.precision.element_bytes
    if min(steps) < 0 or not keeps_alignment(steps[:2], size):
        return None
    if ieee_choice(live, problem, call) is None:
        return None
    if not unproved_are_served() and not is_worth_together(problem, found[0], live.spec):
        return None
    return found


def _chains_of_batch(
    live: LiveDevice, space: MemorySpace, problem: Problem, call: GemmCall, batch: Repeat,
    report: Any,
) -> Iterator[Step]:  # fmt: skip
    """Yield the launches of a batch: one chain for as many products as there is memory for."""
    count, *steps = batch
    most = max(1, min(_MOST_PRODUCTS, _MOST_BYTES // max(1, scratch_bytes(problem))))
    each = -(-count // -(-count // most))
    for first in range(0, count, each):
        a, b, c = (
            replace(x, offset=x.offset + first * step)
            for x, step in zip((call.a, call.b, call.c), steps, strict=True)
        )
        many: Repeat = (min(each, count - first), steps[0], steps[1], steps[2])
        part = replace(call, a=a, b=b, c=c)
        yield from Chain(live, space, problem, part, "fp32", batch=many).steps(report)


def _of_blocks(
    live: LiveDevice, problem: Problem, call: GemmCall, space: MemorySpace, blocks: Sequence[Piece]
) -> list[Step]:
    """Return the launches of blocks of a product, each by one kernel."""
    way = way_of(live, problem, call)
    made, call = copied(live, way, call, space)
    return [*made, *(direct(live, *one.of(way.problem, call)) for one in blocks)]


def why_ieee(
    live: LiveDevice, problem: Problem, call: GemmCall, arithmetic: str,
    repeats: Sequence[Repeat] = (),
) -> str:  # fmt: skip
    """Return why parts are out of the question; nothing if they are not."""
    if complex(call.alpha).imag or complex(call.beta).imag:
        return "alpha or beta is complex"
    if problem.k == 0 or call.alpha == 0:
        return "there is nothing to multiply"
    if arithmetic == "tf32":
        if not reads(live, problem):
            return f"no tensor cores of {live.id} take it in TF32"
        return "single precision is faster at this size" if _is_slower(live, problem, call) else ""
    routes = ROUTES[1:] if arithmetic == "fp32" else ()
    if routes and not unproved_are_served():
        missing = [name for name in routes if not is_proved(live, SCHEMES[name])]
        if missing:
            return f"no tensor cores of {live.id} are proved for {' and '.join(missing)}"
    if arithmetic != "fp32":
        return ""
    if problem.k < TERMS_BF16:
        return f"k={problem.k} is less than {TERMS_BF16}, where single precision errs least"
    if problem.m * problem.n < _FEWEST_RESULTS:
        return f"{problem.m} x {problem.n} results are no work for tensor cores"
    # Who serves what is unproved measures; what is proved is served because it is fast.
    if unproved_are_served() or is_worth(problem, live.spec):
        return ""
    if not problem.precision.is_complex and _together(live, problem, call, arithmetic, repeats):
        return ""
    return "single precision is faster at this size"


def _is_slower(live: LiveDevice, problem: Problem, call: GemmCall) -> bool:
    """Whether TF32 is expected to take longer than a real product's own precision."""
    if problem.precision.is_complex:  # which was not measured
        return False
    cut = replace(problem, precision=precision("tf32"))
    ieee, ours = (expected_ns(live, way_of(live, one, call)) for one in (problem, cut))
    return ieee is not None and ours is not None and ieee < ours


def _in_reals(
    live: LiveDevice, scratch: MemorySpace, problem: Problem, call: GemmCall
) -> tuple[tuple[Step, ...], Problem, GemmCall]:
    """Return a product of real numbers; of complex ones that of expand.cl, behind its copies."""
    if not problem.precision.is_complex:
        return (), problem, call
    sources = Sources(live.dialect)
    m, n, k = problem.m, problem.n, problem.k

    def expanded(
        name: str, source: Source, rows: int, columns: int, of: Operand, across: int
    ) -> Any:
        ld = -(-2 * rows // 4) * 4  # whole vectors
        made = Operand(scratch.need(name, 4 * ld * across), 0, ld)
        arguments = (
            _i(rows), _i(columns), of.memory, _i(of.offset), _i(of.ld), made.memory, _i(ld),
        )  # fmt: skip
        launch = sources.flat_launch(rows * columns)
        return made, (kernel_of(live, source), launch, arguments)

    op_a, op_b = problem.trans_a, problem.trans_b
    wide = sources.expand(op_a, wide=True, other=op_b)
    a, step = expanded("complex a", wide, m, k, call.a, 2 * k)
    steps = [step]
    b = Operand(call.b.memory, 2 * call.b.offset, 2 * call.b.ld)
    if op_b.transposed:  # conjugated or not: A has the signs
        b, step = expanded("complex b", sources.expand(Trans.T, wide=False), k, n, call.b, n)
        steps.append(step)
    c = Operand(call.c.memory, 2 * call.c.offset, 2 * call.c.ld)
    real = Problem(2 * m, n, 2 * k, "s", Trans.N, Trans.N, a.ld, b.ld, c.ld)  # type: ignore[arg-type]
    scalars = complex(call.alpha).real, complex(call.beta).real
    inner = GemmCall(real.precision, 2 * m, n, 2 * k, scalars[0], a, b, scalars[1], c)
    return tuple(steps), real, inner
