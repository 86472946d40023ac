"""Is a kernel right on the very problem that it is timed on?  The run that warms up says so.

Operands are small integers, so that any order of summation gives the same bits; rows of op(A) and
columns of op(B) repeat after a prime number of them, and so do C's.  So the host computes a small
product only, with which the device compares all of C.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import Kernel, LiveDevice
from tilewright.problem import Problem
from tilewright.space import Config
from tilewright.stencil import Launch, Source, Stencil
from tilewright.stencil.source_files import read_sources
from tilewright.timeline import span
from tilewright.tuning.matrices import Matrix, apply, exact_result, integers
from tilewright.tuning.measure import Workload
from tilewright.tuning.verify import Check, WrongResultError

__all__ = ["CheckedWorkload"]

# Distinct rows and columns of C.  Primes, so that no displacement by tiles up to some hundred of
# them goes unseen.
_ROWS, _COLUMNS = 251, 241

_THREADS = 256
_BLOCKS = 2048  # eight of them fill a multiprocessor, so that more would wait


class CheckedWorkload(Workload):
    """A workload whose uncounted first runs multiply integers, and are compared on the device."""

    def __init__(self, device: LiveDevice, problem: Problem) -> None:
        super().__init__(device, problem)
        with span("integers"):
            a, b, right = _matrices(problem)
            self._memory = {name: device.upload(x.flat) for name, x in (("a", a), ("b", b))}
            self._integers = Workload(device, problem, {**self._memory, "c": self.memory["c"]})
            word = np.dtype(np.uint16 if problem.precision.result_bytes % 4 else np.uint32)
            self._memory["right"] = device.upload(right.T.reshape(-1).view(word))
            self._memory["found"] = device.upload(np.zeros(3, np.int32))
        text = read_sources(f"prelude/dialect_{device.dialect}.h", "asynchronous/compare.cl")
        macros: dict[str, int | str] = {"WORD_BYTES": word.itemsize, "THREADS": _THREADS}
        self._compare = device.compile(Source(text, macros, "compare"))
        self._words = problem.precision.result_bytes // word.itemsize  # of an element
        whole, few = np.int64, np.int32
        self._arguments = (
            whole(problem.m * self._words), whole(problem.n), self.memory["c"],
            whole(problem.ldc * self._words), self._memory["right"],
            few(len(right) * self._words), few(right.shape[1]), self._memory["found"],
        )  # fmt: skip

    def first_run(self, kernel: Kernel, stencil: Stencil, config: Config) -> int:
        """Run a kernel once on integers and return its time in nanoseconds.

        Raises
        ------
        WrongResultError
            If a bit of the result is wrong, naming an element.
        """
        taken = self._integers.run(kernel, stencil, config)
        launch = Launch(grid=(_BLOCKS, 1), block=(_THREADS, 1))
        event = self.device.launch_timed(self._compare, launch, self._arguments)
        self.busy_ns += taken + event.nanoseconds()
        found = np.zeros(3, np.int32)
        self.device.download(self._memory["found"], found)
        if found[0]:
            self.device.write(self._memory["found"], np.zeros(3, np.int32))
            p = self.problem
            raise WrongResultError(
                f"C({found[1] // self._words}, {found[2]}) is not the product of integers"
                f" ({Check(p.m, p.n, p.k)})"
            )
        return taken

    def close(self) -> None:
        """Give all memory back."""
        super().close()
        for memory in self._memory.values():
            self.device.free(memory)


def _matrices(problem: Problem) -> tuple[Matrix, Matrix, NDArray[Any]]:
    """Return A, B and the distinct part of C, of at most `_ROWS` rows and `_COLUMNS` columns."""
    rng, of, k = np.random.default_rng(1), problem.precision, problem.k
    odd = np.arange(k) % 2 == 1  # of a row and a column that meet, one has both numbers of pairs
    left = integers(rng, min(problem.m, _ROWS), k, of, odd[None, :])
    right = integers(rng, k, min(problem.n, _COLUMNS), of, ~odd[:, None])
    if problem.trans_a.transposed:
        left = left.T
    if problem.trans_b.transposed:
        right = right.T
    x, y = apply(problem.trans_a, left), apply(problem.trans_b, right)
    product = exact_result(x, y, None, (1, 0), of)
    a = _repeated(left, int(problem.trans_a.transposed), problem.m, problem.lda)
    b = _repeated(right, int(not problem.trans_b.transposed), problem.n, problem.ldb)
    return a, b, product


def _repeated(values: NDArray[Any], axis: int, length: int, ld: int) -> Matrix:
    """Return a matrix whose rows or columns repeat until there are `length` of them."""
    # Taken from the transpose, so that memory is column-major, as the matrix's is to be.
    whole = values.T.take(np.arange(length) % values.shape[axis], 1 - axis).T
    return Matrix.place(whole, padding=ld - len(whole))
