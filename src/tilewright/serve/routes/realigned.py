"""Products whose operands are copied first, where that is expected to be faster.

The fastest kernels take operands that run along m or n in aligned columns, whole tiles of them at
once; tensor cores take 8-bit elements along k alone, and of TF32 one operand or both.  A pass over
memory (realign.cl) makes such a copy of any operand: transposed if it runs the other way, its
columns aligned if they were not.
What that costs grows with the square of a size, what it wins with the cube::

    A as it lies, or its copy  --+
                                 +-->  the kernel for those  -->  C
    B as it lies, or its copy  --+

All four ways are compared by the times that `choose` expects, and the pass's own, as measured on
the device that the shipped table is of: by the core (ways.c), for exported libraries, too.
Elements are moved as they are, but for conjugates, which are exact; so the arithmetic is the chosen
kernel's.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.backend import GemmCall, LiveDevice, Operand
from tilewright.dataclass import dataclass
from tilewright.portfolio import Served, shipped
from tilewright.portfolio.choose import choose
from tilewright.portfolio.held import held_rows
from tilewright.portfolio.native_choice import NativeChoice
from tilewright.portfolio.portfolio import Copying
from tilewright.problem import Problem, Trans
from tilewright.serve.kernels import begins_aligned, kernel_of
from tilewright.serve.routes.direct import in_pieces
from tilewright.serve.steps import MemorySpace, Step
from tilewright.stencil import Variant
from tilewright.stencil.asynchronous.realign import Realigned
from tilewright.stencil.asynchronous.resources import CHUNK_BYTES

__all__ = [
    "Way",
    "best_way",
    "copied",
    "copy_of",
    "copying_of",
    "expected_ns",
    "way_of",
    "way_steps",
    "ways",
]


@dataclass(frozen=True)
class Way:
    """How a product is computed.

    Parameters
    ----------
    problem : Problem
        What the kernel computes.
    a, b : Realigned or None
        The copy of an operand that it reads; None: the operand itself.
    aligned : bool
        Whether what it reads begins at multiples of 16 bytes.
    """

    problem: Problem
    a: Realigned | None
    b: Realigned | None
    aligned: bool

    @property
    def copies(self) -> dict[str, Realigned]:
        """The copies by operand."""
        return {name: one for name, one in (("a", self.a), ("b", self.b)) if one is not None}


def ways(problem: Problem, aligned: tuple[bool, bool]) -> list[Way]:
    """Return all ways to compute a product, the one without a copy first.

    Parameters
    ----------
    problem : Problem
        What is to be computed.
    aligned : tuple of bool
        Whether A's and B's first elements lie at multiples of 16 bytes.
    """
    both = _copies(problem, aligned)
    copies = [
        (x, y) for x in dict.fromkeys((None, both[0])) for y in dict.fromkeys((None, both[1]))
    ]
    return [_way(problem, x, y, aligned) for x, y in copies]


def _copies(p: Problem, aligned: tuple[bool, bool]) -> tuple[Realigned | None, Realigned | None]:
    """Return the copies of A and B that kernels take best; None where the operand is as good."""
    # What B's kernels call transposed runs along n.
    along_k = p.trans_a.transposed, not p.trans_b.transposed
    return (
        _copy(p, p.m, p.lda, along_k[0], p.trans_a.conjugated, aligned[0]),
        _copy(p, p.n, p.ldb, along_k[1], p.trans_b.conjugated, aligned[1]),
    )


def _lies_aligned(p: Problem, ld: int, aligned: bool) -> bool:
    """Whether all columns begin at multiples of 16 bytes, as the first does if it is `aligned`."""
    return aligned and ld * p.precision.element_bytes % CHUNK_BYTES == 0


def _copy(
    p: Problem, side: int, ld: int, along_k: bool, conjugated: bool, aligned: bool
) -> Realigned | None:
    """Return the copy of an operand that kernels read fastest; None where it lies so.

    Aligned, and along its side; 16-bit elements, which tensor cores read in either order as fast,
    in the order that they have, and others of tensor cores along k.
    """
    size, of = p.precision.element_bytes, p.precision
    turned = along_k != of.reads_along_k and not (of.is_short and not of.reads_along_k)
    if not turned and _lies_aligned(p, ld, aligned):
        return None
    # A conjugate that is not transposed stays with the kernel.
    inner = (p.k, side) if along_k != turned else (side, p.k)
    return Realigned(size, *inner, turned, turned and conjugated)


def _way(
    problem: Problem, a: Realigned | None, b: Realigned | None, aligned: tuple[bool, bool]
) -> Way:
    p = problem
    found = p
    if a is not None or b is not None:
        lda, ldb = p.lda if a is None else a.ld, p.ldb if b is None else b.ld
        ops = _read(p.trans_a, a), _read(p.trans_b, b)
        found = Problem(p.m, p.n, p.k, p.precision, *ops, lda, ldb, p.ldc)
    return Way(found, a, b, (aligned[0] or a is not None) and (aligned[1] or b is not None))


def _read(op: Trans, copy: Realigned | None) -> Trans:
    """Return the operation on a copy, which is conjugated where it is transposed."""
    return op if copy is None or not copy.transposed else Trans.of(not op.transposed, False)


def best_way(device: Served, problem: Problem, aligned: tuple[bool, bool]) -> Way:
    """Return the way of which the shortest time is expected.

    Operands that are to run along k are copied where no kernel takes them as they lie; those that
    copy least are, where no times are known.  Of others nothing is copied where the device's table
    does not say what a copy costs, or has no times of such products in this precision, or what
    copies win is less than is worth it; or without a core.

    Parameters
    ----------
    device : Served
        Where it is to run.
    problem, aligned
        As of `ways`.
    """
    copies = _copies(problem, aligned)
    plain = Way(problem, None, None, all(aligned))
    if copies == (None, None):
        return plain
    if problem.precision.reads_along_k:
        return _least(device, ways(problem, aligned))
    known, native = copying_of(device, problem), _native(device, Variant.of(problem))
    ns = choose(device, problem, plain.aligned).ns
    if known is None or native is None or ns is None or not native.takes(problem):
        return plain

    def of(of_a: bool, of_b: bool) -> tuple[Realigned | None, Realigned | None]:
        return copies[0] if of_a else None, copies[1] if of_b else None

    def other(*copied: bool) -> NativeChoice | None:
        ops = map(_read, (problem.trans_a, problem.trans_b), of(*copied))
        return _native(device, Variant(problem.precision, *ops))

    return _way(problem, *of(*native.copied(other, problem, aligned, ns, known)), aligned)


def _least(device: Served, every: list[Way]) -> Way:
    """Return the way that is expected to take least, or where no times are known copies least."""
    read = [one for one in every if one.problem.precision.reads(Variant.of(one.problem).k_fast)]
    if len(read) == 1:
        return read[0]
    known = [
        (ns, at) for at, one in enumerate(read) if (ns := expected_ns(device, one)) is not None
    ]
    if known:
        return read[min(known)[1]]
    boxes = (one for one in read if _is_aligned(one.problem, one.aligned))
    return min(boxes, key=lambda one: sum(copy.size for copy in one.copies.values()))


def _is_aligned(p: Problem, aligned: bool) -> bool:
    """Whether all columns of both operands begin at multiples of 16 bytes."""
    return all(_lies_aligned(p, ld, aligned) for ld in (p.lda, p.ldb))


def _native(device: Served, variant: Variant) -> NativeChoice | None:
    """Return the core's choice among the kernels for a variant."""
    return held_rows(device, variant).native[False]


def copying_of(device: Served, problem: Problem) -> Copying | None:
    """Return how long a device's passes take; None where that is unknown."""
    portfolio = shipped(device.spec, problem.precision.portfolio)
    return None if portfolio is None else portfolio.copying


def way_of(live: LiveDevice, problem: Problem, call: GemmCall) -> Way:
    """Return the best way for a call as kernels see it; see `best_way`."""
    begin = (begins_aligned(call.a, call.precision), begins_aligned(call.b, call.precision))
    return best_way(live, problem, begin)


def expected_ns(device: Served, way: Way) -> float | None:
    """Return the nanoseconds that are expected of a way, copies and all; None where unknown."""
    known, ns = copying_of(device, way.problem), choose(device, way.problem, way.aligned).ns
    if known is None or ns is None:
        return None
    return ns + sum(known.ns(one.size) for one in way.copies.values())


def way_steps(live: LiveDevice, way: Way, call: GemmCall, space: MemorySpace) -> list[Step]:
    """Return the launches of a way: its copies, then its kernel; parameters as of `copied`."""
    steps, call = copied(live, way, call, space)
    return [*steps, *in_pieces(live, way.problem, call)]


def copied(
    live: LiveDevice, way: Way, call: GemmCall, space: MemorySpace, *, is_one: bool = False
) -> tuple[list[Step], GemmCall]:
    """Return the launches of a way's copies, and the call that reads them.

    Parameters
    ----------
    live : LiveDevice
        Where the operands are.
    way : Way
        One of `ways` for the call's problem.
    call : GemmCall
        As kernels see it; alpha and k are not 0.
    space : MemorySpace
        Where the copies' memory comes from.
    is_one : bool
        Whether A and B are one matrix, of which equal copies are made once.
    """
    steps: list[Step] = []
    read = {"a": call.a, "b": call.b}
    for name, one in way.copies.items():
        x = read[name]
        if is_one and name == "b" and one == way.a:
            read[name] = read["a"]
            continue
        step, read[name] = copy_of(live, one, x, name, space)
        steps.append(step)
    return steps, replace(call, a=read["a"], b=read["b"])


def copy_of(
    live: LiveDevice, copy: Realigned, x: Operand, name: str, space: MemorySpace,
    batch: tuple[int, int, int] = (1, 0, 0),
) -> tuple[Step, Operand]:  # fmt: skip
    """Return the launch that copies the operand of a name, and the copy.

    `batch` says where the matrices of a batch lie, as `Realigned.arguments` has it.
    """
    to = space.need(f"realigned {name}", copy.size)
    along = (x.ld, 1) if copy.transposed else (1, x.ld)
    arguments = copy.arguments(x.memory, x.offset, *along, to, *batch)
    step = kernel_of(live, copy.source(live.dialect)), copy.launch, arguments
    return step, Operand(to, 0, copy.ld)
