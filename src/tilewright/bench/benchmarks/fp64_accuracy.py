"""``accuracy="fp64"``: its errors beside IEEE double precision's, its bound, and its moduli."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.bench.call_arrays import cupy_on
from tilewright.bench.registry import Asked, Benchmark, Cell, Row
from tilewright.bench.sizes import number
from tilewright.serve.decision import Decision
from tilewright.serve.double_double import DoubleDouble
from tilewright.serve.gemm import gemm
from tilewright.serve.unproved import serve_unproved

__all__ = ["BENCHMARK"]

# (U - 1/2) exp(phi N), U uniform, N standard normal: exponents spread wider with phi.
_SPREADS = (0.0, 0.5, 1.0, 2.0, 4.0)
_DATA = (*(f"phi {spread:g}" for spread in _SPREADS), "normal", "positive", "integers")


class FP64Accuracy(Benchmark):
    measures = 'errors of accuracy="fp64", the bound that it is served by, and how many moduli'
    against = "IEEE arithmetic on the device, double-double"
    takes = "half a minute at 4096; without int8 tensor cores on a model of them"
    options = {"precision": "d,z", "size": "1024,4096", "seed": "0"}  # noqa: RUF012

    def rows(self, asked: Asked) -> Iterator[Row]:
        library: Any = cupy_on(asked.live) if asked.live.backend == "cuda" else np
        draw = library.random.default_rng(asked.seed)
        for letter in asked.precision.split(","):
            for side in map(number, asked.size.split(",")):
                for data in _DATA:
                    a, b = (_drawn(library, draw, data, side, letter == "z") for _ in "ab")
                    yield {
                        "data": data, "precision": letter, "side": side,
                        **_judged(library, a, b, asked.live),
                    }  # fmt: skip

    def line(self, row: Row) -> str:
        moduli = row["guard"]["moduli"]
        served = f"{moduli} moduli" if moduli else "IEEE"
        return f"{row['precision']} {row['data']}, {row['side']}: served by {served}"

    def table(self, rows: Sequence[Row]) -> tuple[Sequence[str], list[list[Cell]]]:
        """Return eta of both, the bound and the moduli, a line for each kind of data."""
        lines: list[list[Cell]] = []
        for row in rows:
            etas = (f"{row['errors'][name]['eta']:.1e}" for name in ("ieee", "fp64"))
            guard = row["guard"]
            bound = f"{guard['error_bound']:.1e}" if guard["moduli"] else None
            lines.append(
                [row["data"], row["precision"], row["side"], *etas, bound, guard["moduli"]]
            )
        return ("eta of", "precision", "m, n, k", "ieee", "fp64", "bound", "moduli"), lines


def _drawn(library: Any, draw: Any, data: str, side: int, is_complex: bool) -> Any:
    """Return a square matrix."""
    parts = []
    for _ in range(1 + is_complex):
        normal = draw.standard_normal((side, side))
        if data == "normal":
            parts.append(normal)
        elif data == "integers":
            parts.append(library.rint(1000 * normal))
        else:
            shift, spread = (0.0, 0.0) if data == "positive" else (0.5, float(data.split()[1]))
            parts.append((draw.random((side, side)) - shift) * library.exp(spread * normal))
    return parts[0] + 1j * parts[1] if is_complex else parts[0]


def _judged(library: Any, a: Any, b: Any, live: Any) -> dict[str, Any]:
    """Return errors of both arithmetics, and what the guard decided."""
    where = {} if live.backend == "cuda" else {"device": live}
    told = Decision()
    with serve_unproved():
        ours = gemm(a, b, accuracy="fp64", report=told, **where)
    found = {"ieee": gemm(a, b, **where), "fp64": ours}
    exact, size = _exact(library, a, b, where), gemm(abs(a), abs(b), **where)
    errors = {}
    for name, c in found.items():
        off = abs(_complex((part - high) - low for part, (high, low) in zip(_parts(c), exact)))  # noqa: B905
        right = abs(_complex(high for high, _ in exact))
        errors[name] = {
            "eta": float((off / size).max()),
            "median_relative": float(library.median(off / right)),
        }
    guard = told.as_dict()
    return {"errors": errors, "guard": {"moduli": 0, **guard}}


def _parts(x: Any) -> tuple[Any, ...]:
    return (x.real, x.imag) if x.dtype.kind == "c" else (x,)


def _complex(parts: Iterator[Any]) -> Any:
    real, *imaginary = parts
    return real + 1j * imaginary[0] if imaginary else real


def _exact(library: Any, a: Any, b: Any, where: dict[str, Any]) -> list[tuple[Any, Any]]:
    """Return the parts of a product in double-double, high and low."""
    pairs = [(a, b)]
    if a.dtype.kind == "c":
        beside, below = library.hstack, library.vstack
        pairs = [
            (beside([a.real, -a.imag]), below([b.real, b.imag])),
            (beside([a.real, a.imag]), below([b.imag, b.real])),
        ]
    made = (gemm(DoubleDouble(x), DoubleDouble(y), **where) for x, y in pairs)
    return [(x.hi, x.lo) for x in made]


BENCHMARK = FP64Accuracy()
