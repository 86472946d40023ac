"""Is a kernel right?  A short check before it is timed, a long one before it wins."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import GemmCall, Kernel, LiveDevice, Operand
from tilewright.double_double import error_of_product, joined, words
from tilewright.precision import PRECISIONS
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant
from tilewright.stencil.geometry import PLAIN, Mode
from tilewright.timeline import span
from tilewright.tuning.matrices import Matrix, apply, exact_result, integers, normal, poison

__all__ = [
    "SHARED_STEPS",
    "Bench",
    "Check",
    "WrongResultError",
    "certify",
    "classes",
    "error_bound",
    "screen",
]


# Elements: a multiple of every vector that a kernel reads.
_WIDEST = 16

# Persistent blocks share a tile of so many steps along k among three and more; so do slices.
SHARED_STEPS = 192

# So few of them that each has a whole tile and a share of another, in a result of 2 x 2 tiles.
_FEW_BLOCKS = 3


class WrongResultError(ArithmeticError):
    """A kernel computed something else than the product."""


@dataclass(frozen=True)
class Check:
    """One problem to check a kernel on.

    Parameters
    ----------
    m, n, k : int
        Sizes.
    alpha, beta : complex
        Scalars; imaginary parts are dropped on real elements.
    padding, offset : int
        Elements between columns and before the first one.
    nan_in_c : bool
        Fill C with NaN first; only for beta = 0, which must not read it.
    """

    m: int
    n: int
    k: int
    alpha: complex = 1
    beta: complex = 0
    padding: int = 0
    offset: int = 0
    nan_in_c: bool = False

    def __str__(self) -> str:
        text = f"m={self.m} n={self.n} k={self.k} alpha={self.alpha} beta={self.beta}"
        for name in ("padding", "offset"):
            text += f" {name}={getattr(self, name)}" if getattr(self, name) else ""
        return text


def error_bound(k: int, unit_roundoff: float, is_complex: bool) -> float:
    """Return the largest eta that any summation order may have.

    gamma_(k+2) of Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1,
    doubled where a complex product is two real ones.
    """
    terms = (2 if is_complex else 1) * (k + 2)
    return terms * unit_roundoff / (1 - terms * unit_roundoff)


class Bench:
    """A kernel with all it takes to run it on a check.

    Parameters
    ----------
    device, kernel, stencil, config, variant
        What is checked, and where.
    blocks : int, optional
        How many blocks share the work where blocks stay, in whole clusters; as many as the
        device takes by default.
    """

    def __init__(
        self,
        device: LiveDevice,
        kernel: Kernel,
        stencil: Stencil,
        config: Config,
        variant: Variant,
        blocks: int | None = None,
    ) -> None:
        self.device, self.kernel, self.blocks = device, kernel, blocks
        self.stencil, self.config, self.variant = stencil, config, variant

    def scalar(self, value: complex) -> complex:
        """Return a scalar as the precision can hold it."""
        return complex(value) if self.variant.precision.is_complex else complex(value).real

    def run(self, check: Check, a: Matrix, b: Matrix, c: Matrix) -> NDArray[Any]:
        """Run the kernel and return all of C's memory afterwards."""
        memory = [self.device.upload(x.flat) for x in (a, b, c)]
        try:
            operands = [
                Operand(mem, x.offset, x.ld) for mem, x in zip(memory, (a, b, c), strict=True)
            ]
            call = GemmCall(
                self.variant.precision,
                check.m,
                check.n,
                check.k,
                self.scalar(check.alpha),
                operands[0],
                operands[1],
                self.scalar(check.beta),
                operands[2],
            )
            launch = self.stencil.launch(self.config, check.m, check.n, check.k)
            if self.blocks and launch.resident:
                whole = self.blocks // launch.cluster * launch.cluster
                launch = replace(launch, grid=(max(whole, launch.cluster), 1))
            arguments = self.stencil.arguments(self.config, self.variant, call)
            self.device.launch(self.kernel, launch, arguments).wait()
            after = np.empty_like(c.flat)
            self.device.download(memory[2], after)
            return after
        finally:
            for mem in memory:
                self.device.free(mem)

    def inputs(self, check: Check, make: Any) -> tuple[Matrix, Matrix]:
        """Return A and B of a check, laid down; `make(rows, columns, which)` draws values.

        `which` is True along every other step of k in A, and along the steps between in B.
        """
        odd = np.arange(check.k) % 2 == 1
        a = (check.k, check.m, odd[:, None]), (check.m, check.k, odd[None, :])
        b = (check.n, check.k, ~odd[None, :]), (check.k, check.n, ~odd[:, None])
        return (
            self._placed(check, make(*a[not self.variant.trans_a.transposed])),
            self._placed(check, make(*b[not self.variant.trans_b.transposed])),
        )

    def _placed(self, check: Check, values: NDArray[Any]) -> Matrix:
        """Return an operand laid down as the check says, or as near as the stencil takes it."""
        step = -(-self.stencil.operand_alignment(self.config) // values.dtype.itemsize)
        rows = max(1, len(values))
        ld = -(-(rows + check.padding) // step) * step
        return Matrix.place(values, padding=ld - rows, offset=-(-check.offset // step) * step)

    def exact(self, check: Check, rng: np.random.Generator) -> None:
        """Compare with the oracle bit for bit on integer data."""
        precision = self.variant.precision
        a, b = self.inputs(check, lambda r, s, w: integers(rng, r, s, precision, w))
        before = integers(rng, check.m, check.n, precision).astype(precision.result_dtype)
        if check.nan_in_c:
            before[...] = poison(before.dtype)
        c = Matrix.result(before, padding=check.padding, offset=check.offset)
        after = self.run(check, a, b, c)
        scalars = self.scalar(check.alpha), self.scalar(check.beta)
        x, y = apply(self.variant.trans_a, a.view()), apply(self.variant.trans_b, b.view())
        kept = before if check.beta != 0 else None
        self._compare(check, c, after, exact_result(x, y, kept, scalars, precision))

    def _compare(self, check: Check, c: Matrix, after: NDArray[Any], right: NDArray[Any]) -> None:
        got = c.view(after)
        # NaN is unequal to itself, so a NaN that should not be there counts as wrong.
        wrong = np.argwhere(~(got == right))
        if len(wrong):
            i, j = wrong[0]
            raise WrongResultError(
                f"C({i}, {j}) is {got[i, j]}, should be {right[i, j]};"
                f" {len(wrong)} of {got.size} elements are wrong ({check})"
            )
        if not c.guards_intact(after):
            raise WrongResultError(f"memory outside C was written ({check})")

    def rounding(self, check: Check, rng: np.random.Generator) -> float:
        """Return eta on random data; raise where it exceeds the bound of any order."""
        precision = self.variant.precision

        def draw(rows: int, columns: int, _: Any) -> NDArray[Any]:
            return normal(rng, (rows, columns), precision)

        a, b = self.inputs(check, draw)
        c = Matrix.result(np.zeros((check.m, check.n), precision.result_dtype))
        after = self.run(check, a, b, c)
        x, y = apply(self.variant.trans_a, a.view()), apply(self.variant.trans_b, b.view())
        error, size = product_error(c.view(after), x, y)
        eta = float(np.max(error / size))
        bound = error_bound(check.k, precision.unit_roundoff, precision.is_complex)
        bound += precision.result_roundoff * (1 + bound)
        if not eta <= bound:
            raise WrongResultError(f"eta is {eta:.2e}, at most {bound:.2e} is right ({check})")
        return eta

    def propagation(self, size: tuple[int, int, int], rng: np.random.Generator) -> None:
        """One NaN in A spoils its row of C, one Inf in B its column, and nothing else."""
        m, n, k = size
        precision = self.variant.precision
        check = Check(m, n, k)

        def positive(rows: int, columns: int, _: Any) -> NDArray[Any]:
            # No zero may meet the Inf: their product is NaN in its own right.
            size: NDArray[Any] = np.abs(integers(rng, rows, columns, PRECISIONS["d"])) + 1
            if precision.parts == 2:
                return joined(size, 0 * size, precision)
            return size.astype(precision.dtype)

        a, b = self.inputs(check, positive)
        row, column, at = (int(rng.integers(0, limit)) for limit in (m, n, k))
        a.view()[(at, row) if self.variant.trans_a.transposed else (row, at)] = np.nan
        b.view()[(column, at) if self.variant.trans_b.transposed else (at, column)] = np.inf
        c = Matrix.result(np.zeros((m, n), precision.result_dtype))
        got = c.view(self.run(check, a, b, c))
        if precision.parts == 2:
            got = words(got)[0]
        spoiled = np.zeros((m, n), bool)
        spoiled[row, :] = True
        spoiled[:, column] = True
        if not np.array_equal(~np.isfinite(got), spoiled) or not np.isnan(got[row]).all():
            raise WrongResultError(f"NaN or Inf does not propagate as in a plain loop ({check})")


def product_error(
    c: NDArray[Any], a: NDArray[Any], b: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return |C - A B| and |A| |B|, from a precision wide enough to tell."""
    if c.dtype.names is not None:
        error, size = error_of_product(c, a, b)
        return np.abs(error), size
    wide = np.clongdouble if np.iscomplexobj(c) else np.longdouble
    x, y = a.astype(wide), b.astype(wide)
    return np.abs(c - x @ y), np.abs(x) @ np.abs(y)


def _ragged(stencil: Stencil, config: Config) -> tuple[int, int, int]:
    """Return sizes that give inner blocks, edge blocks and a remainder in k.

    Where tiles go round a ring of stages, or blocks share the steps along k, every block
    of them goes round more than once; persistent blocks share steps from `SHARED_STEPS` on, and
    tiles are in slices where halving the steps saves more than adding slices up takes.
    """
    block_m, block_n, block_k = (config.integer(f"block_{x}") for x in "mnk")
    steps = 1
    for name in ("stages", "cluster_k"):
        if name in config:
            steps *= config.integer(name)
    depth = block_k * (steps + (steps > 1)) + block_k // 2 + 3
    cut = stencil.geometry(config).split_k
    if config.get("stream_k") or cut is not None:
        depth += SHARED_STEPS
    if cut is not None:
        depth += 2 * block_k * math.ceil(cut.reduction_cycles / cut.step_cycles)
    return block_m + block_m // 2 + 1, block_n + block_n // 2 + 1, depth


def screen(
    device: LiveDevice,
    kernel: Kernel,
    stencil: Stencil,
    config: Config,
    variant: Variant,
    mode: Mode = PLAIN,
) -> None:
    """Check a candidate before it is timed: inner and edge blocks, a remainder in k.

    Where it was compiled with clamped loads, what is smaller than a block besides.

    Raises
    ------
    WrongResultError
        Naming the first wrong element and the problem.
    """
    m, n, k = _ragged(stencil, config)
    bench = Bench(device, kernel, stencil, config, variant)
    rng = np.random.default_rng(int(config.id, 16))
    # Leading dimensions that vectors of any width allow: kernels may take another way then.
    wide_m, wide_n, wide_k = (-(-size // _WIDEST) * _WIDEST for size in (m, n, k))
    with span("verify"):
        bench.exact(Check(m, n, k, alpha=1, beta=0, nan_in_c=True), rng)
        bench.exact(Check(m - 1, n - 2, k - 2, alpha=-3, beta=2, padding=3, offset=5), rng)
        bench.exact(Check(wide_m, wide_n, wide_k, beta=1), rng)
        if mode.clamped:
            small_m, small_n = (config.integer(f"block_{side}") // 2 + 4 for side in "mn")
            bench.exact(Check(small_m, small_n, wide_k, beta=1), rng)
            bench.exact(Check(small_m - 1, n, k, beta=1, padding=3), rng)
        if _stores_whole_tiles(stencil, config):
            bench.exact(Check(m, n, config.integer("block_k") + 3, beta=1, padding=3), rng)
        if stencil.launch(config, m, n).resident:
            few = Bench(device, kernel, stencil, config, variant, _FEW_BLOCKS)
            few.exact(Check(wide_m, wide_n, wide_k, beta=1), rng)
            few.exact(Check(m, n, k, alpha=-3, beta=2, padding=3, offset=5), rng)


def _stores_whole_tiles(stencil: Stencil, config: Config) -> bool:
    """Whether tiles are slices or not as k is long: both are to be checked."""
    cut = stencil.geometry(config).split_k
    return cut is not None and not cut.reduces(1)


def classes(stencil: Stencil, config: Config) -> list[Check]:
    """Return a problem of every class: ragged sizes, scalars, leading dimensions, offsets."""
    m, n, k = _ragged(stencil, config)
    sizes = [(m, n, k), (1, 1, 1), (2, n, 1), (m, 3, 5), (m + 2, n + 1, 0)]
    if _stores_whole_tiles(stencil, config):
        sizes.append((m, n, config.integer("block_k") + 3))
    scalars: list[complex] = [0, 1, -2 + 1j]
    checks = [
        Check(*size, alpha=alpha, beta=beta, padding=pad, offset=pad, nan_in_c=beta == 0)
        for size in sizes
        for alpha in scalars
        for beta in scalars
        for pad in (0, 7)
    ]
    # Leading dimensions of every residue that a vector access could depend on.
    checks += [Check(m, n, k, beta=1, padding=pad, offset=pad % 5) for pad in range(1, 17)]
    return checks


def certify(
    device: LiveDevice, kernel: Kernel, stencil: Stencil, config: Config, variant: Variant
) -> float:
    """Check a winner on everything the numerics contract promises.

    Ragged sizes, padded leading dimensions, offsets, every class of alpha and beta, NaN
    in C, NaN and Inf in A and B, and rounding errors on random data.

    Returns
    -------
    float
        eta = max |C' - AB| / (|A||B|) on random data.

    Raises
    ------
    WrongResultError
        Naming the first wrong element and the problem.
    """
    bench = Bench(device, kernel, stencil, config, variant)
    rng = np.random.default_rng(int(config.id, 16) + 1)
    with span("verify"):
        for check in classes(stencil, config):
            bench.exact(check, rng)
        m, n, k = (min(size, 200) for size in _ragged(stencil, config))
        if not variant.precision.is_whole:
            bench.propagation((m, n, k), rng)
        return bench.rounding(Check(m, n, k), rng)
