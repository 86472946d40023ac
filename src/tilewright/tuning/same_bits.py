"""Two kernels that must give the same bits: a rescheduled one and its baseline."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import Kernel, LiveDevice
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant
from tilewright.timeline import span
from tilewright.tuning.matrices import Matrix, normal
from tilewright.tuning.verify import Bench, Check, WrongResultError, classes

__all__ = ["same_bits"]


def same_bits(
    device: LiveDevice,
    kernels: tuple[Kernel, Kernel],
    stencil: Stencil,
    config: Config,
    variant: Variant,
    checks: Iterable[Check] | None = None,
) -> int:
    """Run both kernels on the same random data; return how many elements were equal.

    Data are random numbers, not integers: an operand that is old by one step, or two sums in
    another order, then change the last bit.  All of C's memory is compared, so what lies around
    the result counts too.

    Parameters
    ----------
    device : LiveDevice
        Where.
    kernels : tuple of Kernel
        The compiler's own, and the one that replaces it.
    stencil, config, variant
        What both were made of.
    checks : iterable of Check, optional
        Problems; every class of sizes, scalars and leading dimensions by default.

    Raises
    ------
    WrongResultError
        If a bit differs, saying where.
    """
    rng = np.random.default_rng(int(config.id, 16) + 2)
    benches = [Bench(device, one, stencil, config, variant) for one in kernels]
    compared = 0
    with span("same bits"):
        for check in classes(stencil, config) if checks is None else checks:
            right, got = _results(benches, check, rng)
            _compare(check, right, got)
            compared += check.m * check.n
    return compared


def _results(
    benches: list[Bench], check: Check, rng: np.random.Generator
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return all of C's memory after each kernel."""
    precision = benches[0].variant.precision

    def draw(rows: int, columns: int, _: Any) -> NDArray[Any]:
        return normal(rng, (rows, columns), precision)

    a, b = benches[0].inputs(check, draw)
    before = draw(check.m, check.n, None)
    if check.nan_in_c:
        before[...] = np.nan
    c = Matrix.result(before, padding=check.padding, offset=check.offset)
    first, second = (bench.run(check, a, b, c) for bench in benches)
    return first, second


def _compare(check: Check, right: NDArray[Any], got: NDArray[Any]) -> None:
    size = right.dtype.itemsize
    rows = [x.view(np.uint8).reshape(-1, size) for x in (right, got)]
    wrong = np.flatnonzero((rows[0] != rows[1]).any(axis=1))
    if len(wrong):
        at = int(wrong[0])
        raise WrongResultError(
            f"C's element {at} in memory is {got[at]}, its baseline's {right[at]};"
            f" {len(wrong)} have other bits ({check})"
        )
