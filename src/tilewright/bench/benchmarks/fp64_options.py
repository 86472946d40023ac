"""Options of ``accuracy="fp64"``: certificates, less memory; and long sums, odd columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.bench.benchmarks.calls import interleaved
from tilewright.bench.call_arrays import cupy_on
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.problem import Problem
from tilewright.serve.calls import forget_plans
from tilewright.serve.decision import Decision
from tilewright.serve.gemm import gemm
from tilewright.serve.routes.residues.cuts import cuts_of, workspace_bytes

__all__ = ["BENCHMARK"]

# Shares of the memory that all of a product takes at once; 0: the least that it does with.
_SHARES = (0.5, 0.25, 0.0)

# Beyond what one sum of products of residues may be long.
_LONG = {"d": (40000, 140000), "z": (40000,)}


class FP64Options(Benchmark):
    measures = 'calls with accuracy="fp64" and its options, of long sums and of unaligned columns'
    against = "the same call without them, or cuBLAS through CuPy"
    takes = "a minute on an H100"
    # size: sides for certificates; the first one for limits and unaligned columns, half of it for
    # long sums.
    options = {"precision": "d,z", "size": "8192,16384", "seed": "0"}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        cupy = cupy_on(asked.live)
        draw = cupy.random.default_rng(asked.seed)
        sides = [int(one) for one in asked.size.split(",")]
        for letter in asked.precision.split(","):
            for side in sides:
                of = _Product(cupy, letter, *_drawn(draw, letter, side, side, side))
                yield of.row("certify", certify=True)
                if side == sides[0]:
                    yield from of.limited()
                del of
            first = sides[0]
            for k in _LONG[letter]:
                made = _drawn(draw, letter, first // 2, first // 2, k)
                yield _Product(cupy, letter, *made).row("long sums")
            made = _drawn(draw, letter, first - 1, first - 1, first - 1)
            yield _Product(cupy, letter, *made).row("odd size")
            if letter == "d":
                a, b = _drawn(draw, letter, first + 1, first + 1, first + 1)
                yield _Product(cupy, letter, a[1:, 1:], b[1:, 1:]).row("unaligned columns")
                del a, b
            del made

    def line(self, row: Row) -> str:
        m, n, k = row["size"]
        return (
            f"{row['precision']} {row['what']} {m} x {n} x {k}: {row['us'] / 1e3:.2f} ms,"
            f" {row['beside']} {row['beside_us'] / 1e3:.2f} ms, {row['served_by']}"
        )

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        lines: list[list[Cell]] = [
            [
                row["what"], row["precision"], " x ".join(map(str, row["size"])),
                f"{row['flops'] / row['us'] / 1e6:.1f}", row["beside"],
                f"{row['beside_us'] / row['us']:.2f}", row["served_by"],
            ]
            for row in rows
        ]  # fmt: skip
        return ("", "precision", "m, n, k", "TFLOP/s", "beside", "ratio", "served by"), lines


class _Product:
    """One product, and the calls that compute it."""

    def __init__(self, cupy: Any, letter: str, a: Any, b: Any) -> None:
        self._cupy, self._letter, self._a, self._b = cupy, letter, a, b
        self._size = (a.shape[0], b.shape[1], a.shape[1])
        self._c, self._other = (cupy.empty((a.shape[0], b.shape[1]), a.dtype) for _ in "ab")

    def _call(self, c: Any, **options: Any) -> Callable[[], Any]:
        return lambda: gemm(self._a, self._b, c, accuracy="fp64", **options)

    def row(self, what: str, **options: Any) -> dict[str, Any]:
        """Return times: beside the same call without options, or cuBLAS."""
        told, cupy, beside = Decision(), self._cupy, 'plain "fp64"' if options else "cuBLAS"
        self._call(self._c, report=told, **options)()
        other = self._call(self._other)
        if not options:
            other = lambda: cupy.matmul(self._a, self._b, out=self._other)  # noqa: E731
        if "certify" in options:  # as a certified call does
            plain, beside = other, f"{beside}, waited for"
            wait = cupy.cuda.get_current_stream().synchronize
            other = lambda: (plain(), wait())  # noqa: E731
        other()
        same = bool((self._c == self._other).all()) if options else None
        times = interleaved(cupy, [self._call(self._c, **options), other])
        m, n, k = self._size
        return {
            "what": what, "precision": self._letter, "size": [m, n, k],
            "flops": (8 if self._letter == "z" else 2) * m * n * k, "us": times[0] / 1e3,
            "beside": beside, "beside_us": times[1] / 1e3, "same_bits": same,
            "served_by": told.variant, **told.as_dict(),
        }  # fmt: skip

    def limited(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each limit of memory."""
        problem = Problem(*self._size, self._letter)  # type: ignore[arg-type]
        sizes = [workspace_bytes(problem, cut, False) for cut in cuts_of(problem)]
        for share in _SHARES:
            most = int(share * sizes[0]) if share else min(sizes)
            name = f"max_workspace={most / 2**20:.0f} MiB of {sizes[0] / 2**20:.0f}"
            yield self.row(name, max_workspace=most)
        forget_plans()


def _drawn(draw: Any, letter: str, m: int, n: int, k: int) -> tuple[Any, Any]:
    def normal(*shape: int) -> Any:
        x = draw.standard_normal(shape)
        return x + 1j * draw.standard_normal(shape) if letter == "z" else x

    return normal(m, k), normal(k, n)


BENCHMARK = FP64Options()
