"""Kernels that compute one triangle of a product, checked on integers bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.space import Config
from tilewright.stencil import Stencil, Variant
from tilewright.stencil.asynchronous.folded import folded
from tilewright.stencil.call import GemmCall
from tilewright.stencil.geometry import Launch
from tilewright.tuning.matrices import Matrix, apply, exact_result, integers, poison
from tilewright.tuning.verify import SHARED_STEPS, Bench, Check, WrongResultError

__all__ = ["Triangular", "check_triangle"]


class Triangular:
    """A stencil whose kernels compute one triangle of square results.

    Parameters
    ----------
    family : Stencil
        The stencil.
    lower : bool
        Which triangle.
    """

    def __init__(self, family: Stencil, lower: bool) -> None:
        self._family, self.lower = family, lower

    def __getattr__(self, name: str) -> Any:
        return getattr(self._family, name)

    def launch(self, config: Config, m: int, n: int, k: int = 0) -> Launch:
        """Return the launch that covers a triangle of an n x n result."""
        geometry = self._family.geometry(config)
        return geometry.launch(*folded(geometry, n), k)

    def arguments(self, config: Config, variant: Variant, call: GemmCall) -> tuple[Any, ...]:
        """Return the kernel's arguments."""
        return self._family.triangle_arguments(config, variant, call, lower=self.lower)


def check_triangle(bench: Bench) -> None:
    """Check triangles of one element, of one tile and of many, aligned and not; both of them.

    Raises
    ------
    WrongResultError
        Naming the first wrong element and the problem.
    """
    rng, config = np.random.default_rng(5), bench.config
    side = max(config.integer("block_m"), config.integer("block_n"))
    depth = config.integer("block_k")
    family = bench.stencil
    for lower in (True, False):
        bench.stencil = Triangular(family, lower)  # type: ignore[assignment]
        for n, k in (
            (1, 1), (side - 3, depth + 3), (2 * side, SHARED_STEPS), (2 * side + 7, 2 * depth + 5),
            (side + 1, 0),
        ):  # fmt: skip
            _check(bench, Check(n, n, k, alpha=-3, beta=2, padding=3, offset=5), rng)
            _check(bench, Check(n, n, k, nan_in_c=True), rng)
        # Aligned, and the last tiles moved; scalars that only symmetric results have.
        n, alpha = 2 * side + 16, -3 if _is_hermitian(bench.variant) else -2 + 1j
        _check(bench, Check(n, n, 2 * depth, alpha=alpha, beta=-alpha), rng)
    bench.stencil = family


def _check(bench: Bench, check: Check, rng: np.random.Generator) -> None:
    precision, variant = bench.variant.precision, bench.variant
    a, b = bench.inputs(check, lambda r, s, w: integers(rng, r, s, precision, w))
    before = integers(rng, check.m, check.n, precision).astype(precision.result_dtype)
    if check.nan_in_c:
        before[...] = poison(before.dtype)
    elif _is_hermitian(variant):  # nothing depends on imaginary parts of the diagonal
        np.einsum("ii->i", before).imag = np.nan
    c = Matrix.result(before, padding=check.padding, offset=check.offset)
    after = bench.run(check, a, b, c)
    x, y = apply(variant.trans_a, a.view()), apply(variant.trans_b, b.view())
    family = bench.stencil
    assert isinstance(family, Triangular)
    right = _expected(family, variant, before, x, y, check, bench)
    got = c.view(after)
    wrong = np.argwhere(_bits(got) != _bits(right))
    if len(wrong):
        i, j = wrong[0][:2]
        which = "lower" if family.lower else "upper"
        raise WrongResultError(
            f"C({i}, {j}) of the {which} triangle is {got[i, j]}, should be {right[i, j]} ({check})"
        )
    if not c.guards_intact(after):
        raise WrongResultError(f"memory outside C was written ({check})")


def _expected(
    family: Triangular, variant: Variant, before: NDArray[Any], x: NDArray[Any], y: NDArray[Any],
    check: Check, bench: Bench,
) -> NDArray[Any]:  # fmt: skip
    """Return C with the triangle written, its diagonal real where it is Hermitian."""
    scalars = bench.scalar(check.alpha), bench.scalar(check.beta)
    kept = None if check.beta == 0 else before.copy()
    if kept is not None and _is_hermitian(variant):
        np.einsum("ii->i", kept).imag = 0
    full = exact_result(x, y, kept, scalars, variant.precision)
    if _is_hermitian(variant):
        np.einsum("ii->i", full).imag = 0  # scalars are real
    inside = np.tri(check.n, dtype=bool)
    return np.where(inside if family.lower else inside.T, full, before)


def _is_hermitian(variant: Variant) -> bool:
    return variant.trans_a.conjugated != variant.trans_b.conjugated


def _bits(x: NDArray[Any]) -> NDArray[Any]:
    """Return the words of each element, of which NaN's are equal; zeros have one sign."""
    plain = np.ascontiguousarray(x + 0)
    return plain.view(np.uint32).reshape(*x.shape, -1)
