"""One square problem's matrices on a device, and everybody's way to multiply them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import GemmCall, Kernel, LiveDevice, Operand
from tilewright.bench.formats import FORMATS, by_element
from tilewright.bench.peers.formats import FormatPeer, Product
from tilewright.bench.tensor.accuracy import Exact
from tilewright.bench.tensor.cases import Case
from tilewright.library.scratch import Scratch
from tilewright.library.split.chain import Chain
from tilewright.library.split.product import HopperProduct, Step
from tilewright.problem import Problem, Trans
from tilewright.space import Config
from tilewright.stencil import Source
from tilewright.stencil.wgmma import Parts, TensorCall, Wgmma

__all__ = ["Call", "Matrices", "Sample", "timed"]

Call = Callable[[], int]
# Rows and columns of C.
Sample = tuple[NDArray[Any], NDArray[Any]]
_FAMILY = Wgmma()
_LETTER = {"s": "float32"}
_TURN = 7  # no divisor of anything: repeated bands never meet the same column

# Kernels that were loaded last: the passes before a product come with every candidate again.
_MOST_LOADED = 64
_kernels: WeakKeyDictionary[LiveDevice, OrderedDict[Any, Kernel]] = WeakKeyDictionary()


def _loaded(live: LiveDevice, source: Source | Kernel) -> Kernel:
    """Return a compiled source, loaded anew only if that was long ago."""
    if isinstance(source, Kernel):
        return source
    known = _kernels.setdefault(live, OrderedDict())
    key = source.text, tuple(source.defines.items()), source.entry
    if key not in known:
        known[key] = live.compile(source)
        if len(known) > _MOST_LOADED:
            known.popitem(last=False)
    known.move_to_end(key)
    return known[key]


def timed(live: LiveDevice, steps: Sequence[Step], name: str) -> Call:
    """Return a function that runs launches one after the other and returns nanoseconds.

    On CUDA all of them lie between two events, as one product does, and the
    device is held while they are enqueued.
    """
    kernels = [_loaded(live, step.source) for step in steps]
    if not hasattr(live, "between_events"):
        return lambda: sum(
            live.launch(kernel, step.launch, step.arguments).nanoseconds()
            for kernel, step in zip(kernels, steps, strict=True)
        )
    device: Any = live
    prepared = [
        device.prepare(kernel, step.launch, step.arguments)
        for kernel, step in zip(kernels, steps, strict=True)
    ]

    def enqueue() -> None:
        for launch in prepared:
            launch.enqueue(device.stream)

    def run() -> int:
        keep, held = (prepared, kernels), len(prepared)
        event = device.between_events(enqueue, device.stream, (), keep, name, held)
        return int(event.nanoseconds())

    return run


class Matrices:
    """Column-major A, B and C = op(A) op(B) on a device, in single precision and narrower.

    Parameters
    ----------
    live : LiveDevice
        Where.
    problem : Problem
        Sizes and transposes; single precision, leading dimensions of whole 16 bytes in every
        format that is asked for.
    a, b : ndarray of float32
        Values, as they lie in memory: columns of the stored matrices are rows here.  Larger
        problems than these repeat them, each band of columns turned a little further: rounding
        a few hundred million numbers takes longer than multiplying them.
    """

    def __init__(
        self, live: LiveDevice, problem: Problem, a: NDArray[Any], b: NDArray[Any]
    ) -> None:
        self.live, self.problem = live, problem
        self._drawn = {"a": a, "b": b}
        self._memory: dict[tuple[str, str], Any] = {}
        # Numbers as formats hold them: those that were drawn, and all of a matrix.
        self._few: dict[tuple[str, str], NDArray[Any]] = {}
        self._values: dict[tuple[str, str], NDArray[Any]] = {}
        # One for each arithmetic: growing for another's parts would free what calls name.
        self._scratches: dict[str, Scratch] = {}
        self._c = live.allocate(4 * problem.n * problem.ldc)

    def turn(self, trans: str) -> None:
        """Take the same numbers for another pair of transposes; square problems only."""
        p = self.problem
        if not p.m == p.n == p.k:
            raise ValueError(f"size={p.shape} is not square; make new matrices for trans={trans!r}")
        self.problem = Problem(p.m, p.n, p.k, p.precision, Trans(trans[0]), Trans(trans[1]))

    def operand(self, which: str, name: str) -> Any:
        """Return an operand's memory, in a format or (``"s"``) in single precision."""
        key = which, name
        if key not in self._memory:
            drawn = self._drawn[which]
            self._memory[key] = self._uploaded(drawn if name == "s" else FORMATS[name].store(drawn))
        return self._memory[key]

    def _uploaded(self, x: NDArray[Any]) -> Any:
        """Return device memory with what `_grown` returns, which need not be here at once."""
        times = self.problem.n // len(x)
        if times <= 1:
            return self.live.upload(np.ascontiguousarray(x))
        memory = self.live.allocate(times * times * x.nbytes)
        for i in range(times):
            band = np.tile(np.roll(x, _TURN * i, 1), times)
            self.live.write(memory, band, i * band.nbytes)
        return memory

    def values(self, which: str, name: str = "s") -> NDArray[Any]:
        """Return an operand's numbers as a format holds them, whole, as they lie in memory."""
        key = which, name
        if key not in self._values:
            self._values[key] = self._grown(self._held(which, name))
        return self._values[key]

    def _held(self, which: str, name: str) -> NDArray[Any]:
        """Return the drawn numbers of an operand as a format holds them."""
        key = which, name
        if key not in self._few:
            drawn, form = self._drawn[which], FORMATS.get(name)
            self._few[key] = drawn if form is None else form.values(form.store(drawn))
        return self._few[key]

    def exact(self, name: str, sample: Sample) -> Exact:
        """Return the product in double precision of what a format holds, in a sample of C."""
        p = self.problem
        op_a = self._picked(self._held("a", name), sample[0], p.trans_a.transposed)
        op_b = self._picked(self._held("b", name), sample[1], not p.trans_b.transposed)
        return Exact.of_sides(op_a, op_b, sample)

    def _picked(self, x: NDArray[Any], which: NDArray[Any], rows: bool) -> NDArray[Any]:
        """Return rows of what `_grown` returns, or columns as rows."""
        size = self.problem.n
        along = np.arange(size)
        i, j = (which[:, None], along) if rows else (along, which[:, None])
        whole = size <= len(x)
        picked: NDArray[Any] = (
            x[i, j] if whole else x[i % len(x), (j - _TURN * (i // len(x))) % len(x)]
        )
        return picked

    def _grown(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return a matrix as large as a square problem's, from the drawn one or its like."""
        times = self.problem.n // len(x)
        if times <= 1:
            return x
        wide = np.tile(x, times)
        return np.concatenate([np.roll(wide, _TURN * i, 1) for i in range(times)])

    def ours(self, case: Case, config: Config, *, split: bool = True) -> Call:
        """Return our product with a config; of a scheme with or without the split before it.

        Without it parts must be there from an earlier call with it.
        """
        if case.scheme is None:
            return timed(self.live, [self._plain(case, config)], str(case))
        chain = self._chain(case.scheme.name)
        before = chain.before_products(case.scheme)
        product = chain.products(case.scheme, chain.scratch.zero, 0, HopperProduct(config))
        return timed(self.live, [*(before if split else ()), *product], str(case))

    def split(self, case: Case) -> Call:
        """Return the passes before the product alone."""
        assert case.scheme is not None
        steps = self._chain(case.scheme.name).before_products(case.scheme)
        return timed(self.live, steps, f"{case} split")

    def guarded(self) -> Call:
        """Return what ``accuracy="fp32"`` runs where all of it is proved: the guard decides."""
        return timed(self.live, self._chain("fp32").steps(), "fp32")

    def theirs(self, case: Case, peer: FormatPeer) -> Call:
        """Return a library's product: in the case's format, or in single precision."""
        name = case.peer
        form = FORMATS.get(name) or by_element(_LETTER[name])
        a, b = self.operand("a", name), self.operand("b", name)
        return peer.prepare_product(Product(self.problem, form, a, b, self._c, case.result))

    def picked(self, call: Call, kind: str, sample: Sample) -> NDArray[Any]:
        """Return a sample of C^T as a call leaves it; unwritten elements are NaN."""
        p, form = self.problem, by_element(kind)
        nothing = form.store(np.full(1, 0 if kind == "int32" else np.nan, np.float32))
        column = np.full(p.ldc, nothing[0])
        places = [int(j) * column.nbytes for j in sample[1]]
        for at in places:
            self.live.write(self._c, column, at)
        call()
        found = []
        for at in places:
            self.live.download(self._c, column, at)
            found.append(column[sample[0]])
        return form.values(np.array(found))

    def result(self, call: Call, kind: str) -> NDArray[Any]:
        """Return C^T (rows are columns of C) as a call leaves it; unwritten elements are NaN."""
        p, form = self.problem, by_element(kind)
        nothing = form.store(np.full(1, 0 if kind == "int32" else np.nan, np.float32))
        stored = np.full((p.n, p.ldc), nothing[0])
        self.live.write(self._c, stored)
        call()
        self.live.download(self._c, stored)
        return form.values(stored)[:, : p.m]

    def close(self) -> None:
        """Give all memory back."""
        for scratch in self._scratches.values():
            scratch.close()
        self._scratches.clear()
        for memory in (*self._memory.values(), self._c):
            self.live.free(memory)
        self._memory.clear()
        self._values.clear()

    # -- steps -----------------------------------------------------------------------------

    def _plain(self, case: Case, config: Config) -> Step:
        p = self.problem
        a, b = (
            Parts(self.operand(which, case.arithmetic), 0, ld)
            for which, ld in (("a", p.lda), ("b", p.ldb))
        )
        call = TensorCall(p.m, p.n, p.k, 1, a, b, 0, Operand(self._c, 0, p.ldc))
        return Step(
            _FAMILY.source(config, case.variant, self.live.dialect),
            _FAMILY.launch(config, p.m, p.n),
            _FAMILY.arguments(config, case.variant, call),
        )

    def _chain(self, arithmetic: str) -> Chain:
        """Return the library's own launches for a scheme, or for the guard's choice."""
        p = self.problem
        a, b = (Operand(self.operand(x, "s"), 0, ld) for x, ld in (("a", p.lda), ("b", p.ldb)))
        call = GemmCall(p.precision, p.m, p.n, p.k, 1, a, b, 0, Operand(self._c, 0, p.ldc))
        scratch = self._scratches.setdefault(arithmetic, Scratch(self.live))
        return Chain(self.live, scratch, p, call, arithmetic)
