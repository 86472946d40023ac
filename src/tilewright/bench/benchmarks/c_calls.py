"""An exported C library beside cuBLAS, both called from one C program, host time and all.

The library is exported for the device, compiled with ``c_calls.c`` by the system's compiler, and
called with arguments prepared; cuBLAS is the very file that `calls` loads, in its default math
mode, the better of its own workspace and one of 64 MiB.  Shapes and method are those of `calls`.
Results have the bits of ``tw.gemm``.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tilewright.bench.benchmarks.calls import BATCH_NS, MOST_CALLS, ROUNDS, WORKSPACE, ratio_table
from tilewright.bench.call_arrays import Arrays, arrays_of, cupy_on, public_call
from tilewright.bench.call_cases import Case, cases_of, kind_of
from tilewright.bench.peers import UnavailableError
from tilewright.bench.peers.cublas import library_file
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.export.compiling import CompilerError, link
from tilewright.precision import PRECISIONS

__all__ = ["BENCHMARK", "Program", "built", "compiled", "numbers", "sum_of"]

# Reals of operands repeat after so many, a prime, and B begins with another one than A.
_PERIOD, _SECOND = 2097143, 1000003

_WARNINGS = ("-Wall", "-Wextra")

# A product that takes longer hangs.
_ANSWERING = 120

# Words that are summed up at once, in 8 bytes each.
_SUMMED = 2**26


class CCalls(Benchmark):
    measures = "an exported C library, called from C; random shapes, launches not held back"
    against = "cuBLAS called from the same program, the better of two workspaces"
    takes = "a minute for 50 shapes of a precision on an H100"
    # size: see `tilewright.bench.call_cases`.
    options = {"precision": "s,d,c,z", "size": "random", "seed": "0", "count": "50"}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        cupy = cupy_on(asked.live)
        for name in asked.precision.split(","):
            if name not in PRECISIONS:
                raise ValueError(f"precision={name!r} is not exported; use s, d, c or z")
            arrays = arrays_of(name)
            cases = cases_of(asked.size, name, "", asked.seed, asked.count)
            with tempfile.TemporaryDirectory() as folder:
                program = built(Path(folder), asked.live.id, name)
                with Program([str(program), library_file(), str(cupy.cuda.Device().id)]) as running:
                    for case in cases:
                        arrays.release()  # the program's process is another
                        about = {"shapes": kind_of(asked.size), "precision": name}
                        found = _row(running, arrays, name, case)
                        yield {**about, **_about(arrays, case), **found}

    def line(self, row: Row) -> str:
        return f"{row['precision']} {row['trans']} {row['size']}: {row['ratio']:.2f} of cuBLAS"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        return ratio_table(rows)


# -- the program -----------------------------------------------------------------------------


def built(folder: Path, device: str, letter: str) -> Path:
    """Export a precision's kernels and build the program with them.

    Raises
    ------
    UnavailableError
        If there is no C compiler, or it fails.
    """
    from tilewright.export import collect, find_target, variants_of, write

    write(collect(find_target(device), variants_of(letter, "all")), folder / "kernels", ["c"])
    return compiled(folder, folder / "kernels" / "c")


def compiled(folder: Path, library: Path, more: Sequence[str] = ()) -> Path:
    """Compile the program and a library's sources, which lie in a folder of their own."""
    main = folder / "c_calls.c"
    main.write_bytes(files("tilewright.bench.benchmarks").joinpath("c_calls.c").read_bytes())
    facts = {
        "BATCH_NS": BATCH_NS, "MOST_CALLS": MOST_CALLS, "ROUNDS": ROUNDS, "WORKSPACE": WORKSPACE,
        "PERIOD": f"{_PERIOD}u", "SECOND": _SECOND,
    }  # fmt: skip
    program = folder / "c_calls"
    options = (*_WARNINGS, f"-I{library}", *(f"-D{name}={value}" for name, value in facts.items()))
    try:
        link([main, *sorted(library.glob("*.c"))], program, *options, *more)
    except CompilerError as error:
        raise UnavailableError(str(error)) from None
    return program


class Program:
    """The program while it runs: a product a line, an answer a line."""

    def __init__(self, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # built here, no shell
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, **(environment or {})},
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, it: BaseException | None, at: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, letter: str, case: Case) -> list[str]:
        """Return the words of the program's answer.

        Raises
        ------
        UnavailableError
            If it ends without one.
        """
        (m, n, k), ops, order = case
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        watch = threading.Timer(_ANSWERING, self._process.kill)
        watch.start()
        try:
            self._process.stdin.write(f"{letter} {order} {ops[0]} {ops[1]} {m} {n} {k}\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            watch.cancel()
        if answer:
            return answer.split()
        assert self._process.stderr is not None
        self._process.wait(_ANSWERING)
        said = self._process.stderr.read().strip() or f"status {self._process.returncode}"
        raise UnavailableError(f"the C program ended: {said.splitlines()[-1]}")


# -- rows ------------------------------------------------------------------------------------


def _about(arrays: Arrays, case: Case) -> dict[str, Any]:
    (m, n, k), ops, order = case
    return {
        "trans": "".join(ops), "order": order, "size": [m, n, k], "flops": arrays.flops * m * n * k,
    }  # fmt: skip


def _row(running: Program, arrays: Arrays, letter: str, case: Case) -> dict[str, Any]:
    first, *words = running.ask(letter, case)
    if first != "ok":
        return {"error": f"{letter} {case[0]}: {' '.join(words)}"}
    us, own, large, _, difference = (float(word) for word in words)
    # A matrix of one row or column has both storage orders, and gemm may take the other one.
    if 1 not in case[0] and _gemms_sum(arrays, case) != int(words[3]):
        return {
            "error": f"{letter} {case[0]}: the C library's bits are not gemm's; difference from"
            f" cuBLAS {difference:.3g}"
        }
    return {
        "us": us, "cublas_us": min(own, large), "cublas_own_us": own,
        "ratio": min(own, large) / us, "difference": difference,
    }  # fmt: skip


def _gemms_sum(arrays: Arrays, case: Case) -> int:
    """Return the sum over the bits of gemm's result of the program's product."""
    (m, n, k), ops, order = case
    a, b = (
        numbers(arrays, shape[::-1] if op.transposed else shape, order, first)
        for shape, op, first in zip(((m, k), (k, n)), ops, (0, _SECOND), strict=True)
    )
    c = arrays.empty((m, n), order)
    public_call(arrays, case, a, b, c)()
    return sum_of(arrays, c, order)


@lru_cache(maxsize=2)
def _period(name: str) -> NDArray[Any]:
    """Return the program's numbers, of float32 or float64: SplitMix64's, uniform in [-1, 1)."""
    x = np.arange(1, _PERIOD + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    x ^= x >> np.uint64(31)
    real = np.dtype(name).type
    kept = 24 if name == "float32" else 53
    made: NDArray[Any] = (x >> np.uint64(64 - kept)).astype(real) * real(2.0 ** (1 - kept)) - real(
        1
    )
    return made


def numbers(arrays: Arrays, shape: tuple[int, int], order: str, first: int) -> Any:
    """Return the program's operand whose numbers begin with the `first` one."""
    library = arrays.library
    made = arrays.empty(shape, order)
    words = _words(made, order, PRECISIONS[arrays.letter].real_dtype)
    period, done = library.asarray(_period(words.dtype.name)), 0
    at = first % _PERIOD
    while done < words.size:
        part = min(_PERIOD - at, words.size - done)
        words[done : done + part] = period[at : at + part]
        at, done = 0, done + part
    return made


def sum_of(arrays: Arrays, c: Any, order: str) -> int:
    """Return the program's sum over the bits of a matrix without gaps."""
    library, words, total = arrays.library, _words(c, order, np.dtype("u4")), 0
    for begin in range(0, words.size, _SUMMED):
        part = words[begin : begin + _SUMMED].astype("u8")
        factors = 2 * library.arange(begin, begin + part.size, dtype="u8") + 1
        total += int((part * factors).sum())
    return total % 2**64


def _words(x: Any, order: str, dtype: np.dtype[Any]) -> Any:
    """Return a matrix's memory as a line of words."""
    lines = x if order == "C" else x.T
    return lines.reshape(-1).view(dtype)


BENCHMARK = CCalls()
