"""Plans that a preloaded library asks for: laid out here as `gemm` does, started there.

::

    tilewright_plans.c  --layout of a product-->  Planner  --lay_out-->  launches, arguments, cubins
            ^                                                                       |
            +-----------------------------------------------------------------------+

What is answered stands in ``tilewright_plans.c``; cubins are files in a folder.
"""

from __future__ import annotations

import ctypes
import hashlib
import socketserver
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tilewright.backend import GemmCall, Kernel, Operand
from tilewright.backend.cuda.tensor_map import SWIZZLES, TYPES
from tilewright.export.target import LETTERS, Target
from tilewright.paths import write_atomically
from tilewright.precision import PRECISIONS
from tilewright.problem import Problem, Trans
from tilewright.serve.laid_out import ALPHA, BETA, A, B, C, Layout, Space
from tilewright.serve.routes.lay_out import lay_out, why_ieee
from tilewright.stencil import Source, TensorMap

__all__ = ["ACCURACIES", "Planner", "serving"]

ACCURACIES = ("fp32", "fp64")
"""By whether a precision has 64 bits."""

_OPERATIONS = (Trans.N, Trans.T, Trans.C)

# tilewright_plans.c: what is asked, and rows of what is answered.
_REQUEST = struct.Struct("<17q")
_ROOM = (256, 248, 248)
_CODE = struct.Struct("<256s248s248sQ")
_RANKS = 5
_IEEE = bytes(64)


class Planner:
    """A device as far as plans are laid out for it: kernels are files, nothing is loaded.

    Parameters
    ----------
    target : Target
        What for.
    folder : Path
        Where cubins are written.
    """

    dialect = "cuda"

    def __init__(self, target: Target, folder: Path) -> None:
        self.id, self.arch = target.name, target.arch
        self.spec, self.portfolio_key = target.serving("s").spec, target.portfolio_key
        self._folder = folder
        self._codes: list[tuple[bytes, bytes, bytes, int]] = []

    def load(self, code: Any, cubin: bytes) -> Kernel:
        """Return a portfolio's machine code as a kernel."""
        return self._kept(cubin, code.symbol, code.second, code.shared_bytes, code.part_bytes)

    def compile(self, source: Source) -> Kernel:
        """Compile a source, or take it from the disk cache."""
        from tilewright.backend.cache import KernelCache
        from tilewright.backend.cuda.arranging import arranged_cubin

        built = arranged_cubin(source, self.arch, KernelCache())
        entry, second = (built.lowered.get(x, x) for x in (source.entry, source.second))
        return self._kept(built.code, entry, second, source.dynamic_shared_bytes, source.part_bytes)

    def _kept(self, cubin: bytes, symbol: str, second: str, shared: int, part: int) -> Kernel:
        file = self._folder / f"{hashlib.sha256(cubin).hexdigest()[:32]}.cubin"
        if not file.exists():
            write_atomically(file, cubin)
        self._codes.append((bytes(file), symbol.encode(), second.encode(), shared))
        number = 2 * (len(self._codes) - 1)
        handle = SimpleNamespace(
            function=number, second=number + 1 if second else 0, dynamic_shared_bytes=shared,
            part_bytes=part,
        )  # fmt: skip
        return Kernel(handle, symbol, 0.0)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Do without a context."""
        yield

    def answer(self, request: bytes) -> bytes:
        """Return the plan that a request is for, as it is sent; of no launches for IEEE arithmetic.

        Parameters
        ----------
        request : bytes
            See ``tilewright_plans.c``.
        """
        many, which, op_a, op_b, m, n, k, *rest = _REQUEST.unpack(request)
        lda, ldb, ldc, begins_a, begins_b, is_real, batch, *steps = rest
        if many != self.spec.multiprocessors:  # another device than plans are laid out for
            return _IEEE
        of, accuracy = PRECISIONS[LETTERS[which]], ACCURACIES[which % 2]
        alpha, beta = (ALPHA.real, BETA.real) if is_real else (ALPHA, BETA)
        ops = _OPERATIONS[op_a], _OPERATIONS[op_b]
        problem = Problem(m, n, k, of, *ops, lda, ldb, ldc)
        a, b, c = Operand(A + begins_a, 0, lda), Operand(B + begins_b, 0, ldb), Operand(C, 0, ldc)
        call = GemmCall(of, m, n, k, alpha, a, b, beta, c)
        live: Any = self
        repeats = ((batch, *steps),) if batch > 1 else ()
        if why_ieee(live, problem, call, accuracy, repeats=repeats):
            return _IEEE
        space = Space()
        laid = lay_out(live, problem, call, accuracy, space, repeats=repeats)
        if not laid.arithmetic or laid.repeats not in ((), repeats):
            return _IEEE
        made = Layout(self, space, (begins_a, begins_b))
        for kernel, launch, arguments in laid.steps:
            made.add(kernel.handle, launch, arguments)
        return self._packed(made, repeats=bool(laid.repeats))

    def _packed(self, made: Layout, *, repeats: bool) -> bytes:
        it = made.parts()
        used = sorted({(one.function or 0) // 2 for one in it.launches})
        for one in it.launches:
            number = one.function or 0
            one.function = 2 * used.index(number // 2) + number % 2
        launches = b"".join(map(bytes, it.launches))
        map_of = [*it.map_of, *[0] * (len(it.map_of) % 2)]
        head = (
            len(it.launches), len(it.places), len(it.maps), len(it.patches) // 16, len(used),
            made.zero_bytes, made.scratch_bytes, repeats,
        )  # fmt: skip
        codes = [self._codes[at] for at in used]
        names = [len(x) < room for one in codes for x, room in zip(one[:3], _ROOM, strict=True)]
        if not all(names):
            return _IEEE
        return b"".join(
            (
                struct.pack("<8Q", *head), *(_CODE.pack(*one) for one in codes), launches,
                *it.places, bytes((ctypes.c_int * len(map_of))(*map_of)), it.patches,
                *map(_map_row, it.maps),
            )
        )  # fmt: skip


def _map_row(it: TensorMap) -> bytes:
    def padded(numbers: Sequence[int], count: int) -> list[int]:
        return [*map(int, numbers), *[0] * (count - len(numbers))]

    return struct.pack(
        "<18Q", TYPES[it.element], len(it.sizes), SWIZZLES[it.swizzle], int(it.memory) + it.offset,
        *padded(it.sizes, _RANKS), *padded(it.strides, _RANKS - 1), *padded(it.box, _RANKS),
    )  # fmt: skip


@contextmanager
def serving(planner: Planner, path: Path) -> Iterator[None]:
    """Answer requests at a socket within a ``with`` block, one after another.

    Parameters
    ----------
    planner : Planner
        Who lays plans out.
    path : Path
        Of the socket, which is made.

    Raises
    ------
    OSError
        If there can be no socket at that path.
    """
    told: list[Exception] = []  # the first alone

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            request = self.rfile.read(_REQUEST.size)
            if len(request) != _REQUEST.size:
                return
            try:
                answer = planner.answer(request)
            except Exception as error:  # whatever it is: cuBLAS's callers get IEEE arithmetic
                answer = _IEEE
                if not told:
                    told.append(error)
                    said = f"{type(error).__name__}: {error}".splitlines()[0]
                    sys.stderr.write(f"tilewright: IEEE arithmetic serves: no plan: {said}\n")
            self.wfile.write(struct.pack("<Q", len(answer)) + answer)

    with socketserver.UnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
