"""A product in residues, pass by pass, and the exact integers that it is of."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from tilewright.backend import LiveDevice
from tilewright.precision import precision_of
from tilewright.stencil.residues.sources import DECISION_WORDS, Passes

_kernels: dict[Any, Any] = {}


def stored(x: Any, along: bool) -> tuple[Any, int, int]:
    """Return memory that holds x by rows or columns, NaN around, with its offset and ld."""
    rows = x if along else x.T
    ld = rows.shape[1] + 3
    whole = np.full((rows.shape[0], ld), np.nan, x.dtype)
    whole[:, : rows.shape[1]] = rows
    return np.concatenate([np.full(5, np.nan, x.dtype), whole.ravel()]), 5, ld


class Product:
    """The passes of op(A) op(B), run on a device with models of tensor cores between them.

    Parameters
    ----------
    live : LiveDevice
        Where.
    a, b : array
        m x k and k x n, as after their operations.
    k_fast : tuple of bool
        Whether memory of each runs along k.
    conjugated : tuple of bool
        Whether memory holds each conjugated.
    """

    def __init__(
        self, live: LiveDevice, a: Any, b: Any, k_fast: Any, conjugated: Any = (False, False)
    ) -> None:
        self.live, self.a, self.b = live, a, b
        (m, k), n = a.shape, b.shape[1]
        of = precision_of(a.dtype)
        self.of = Passes(m, n, k, k_fast, of.is_complex, of.parts == 2)
        self.conjugated = conjugated[0] + 2 * conjugated[1]
        self.ld = -(-k // 16) * 16
        placed = [
            stored(conjugate(x) if is_conjugated else x, along != which)
            for which, (x, along, is_conjugated) in enumerate(
                zip((a, b), k_fast, conjugated, strict=True)
            )
        ]
        (memory_a, *at_a), (memory_b, *at_b) = ((live.upload(x), *at) for x, *at in placed)
        self.matrices = k, m, memory_a, *at_a, n, memory_b, *at_b, 0, self.of.first_b

    def room(self, size: int) -> Any:
        """Return memory that holds nothing sensible."""
        return self.live.upload(np.full(size, 0x7E, np.uint8))

    def read(self, memory: Any, dtype: Any, *shape: int) -> Any:
        """Return memory as an array."""
        out = np.empty(shape, dtype)
        self.live.download(memory, out)
        return out

    def run(self, name: str, launch: Any, *arguments: Any) -> None:
        """Launch a pass and wait."""
        source = getattr(self.of, name)(self.live.dialect)
        key = self.live, source.identity
        if key not in _kernels:
            _kernels[key] = self.live.compile(source)
        made = [np.int64(x) if isinstance(x, int) else x for x in arguments]
        self.live.launch(_kernels[key], launch, made).wait()

    def judged(self) -> None:
        """Run everything up to the decision."""
        of, room, m, n, k, ld = self.of, self.room, self.of.m, self.of.n, self.of.k, self.ld
        partial = room(16 * of.chunks * of.sides)
        self.decision, self.report = room(4 * DECISION_WORDS), room(32)
        self.norms, self.exponents = room(8 * of.sides), room(4 * of.sides)
        self.magnitudes, self.steps = room(4 * of.sides), room(8 * of.sides)
        self.units, places = room(4 * of.sides), room(4 * of.sides)
        bytes_a, bytes_b, low_ld = room(m * ld), room(n * ld), -(-m // 4) * 4
        self.run("sample", of.sample_launch, *self.matrices, self.units, places, self.decision)
        self.run(
            "measure", of.measure_launch, *self.matrices, bytes_a, 0, bytes_b, 0, ld, self.units,
            places, partial, of.sides, of.chunks,
        )  # fmt: skip
        self.run(
            "scales", of.scales_launch, partial, of.sides, of.chunks, self.units, places,
            self.norms, self.magnitudes, self.steps, self.decision,
        )  # fmt: skip
        self.low = room(2 * low_ld * n)
        self.run(
            "multiply_bound", of.model_launch, m, n, k, bytes_a, 0, bytes_b, 0, ld, self.low, low_ld
        )
        self.judge(self.low)

    def judge(self, low: Any, triangle: int = 0) -> None:
        """Decide by a product of the bound's bytes: by all of it, or by one triangle."""
        of = self.of
        self.run(
            "judge", of.judge_launch, of.m, of.n, low, -(-of.m // 4) * 4, self.magnitudes,
            self.steps, of.sides, 0, of.first_b, np.int32(triangle), np.float32(of.limit),
            of.judge_launch.grid[0], self.decision, self.report,
        )  # fmt: skip
        self.words = self.read(self.decision, np.int32, DECISION_WORDS)
        self.moduli = int(self.words[1])

    def multiplied(self, alpha: Any = 1.0, beta: Any = 0.0, c: Any = None) -> Any:
        """Run everything behind the decision; return C."""
        of, m, n, ld = self.of, self.of.m, self.of.n, self.ld
        planes, steps = of.planes, (m * ld, n * ld)
        self.planes = [self.room(planes * step) for step in steps]
        (a, b), (step_a, step_b) = self.planes, steps
        self.run(
            "residues", of.planes_launch, *self.matrices, a, step_a, b, step_b, ld, self.norms,
            self.exponents, self.conjugated, self.decision,
        )  # fmt: skip
        rows = -(-m // 4) * 4
        made = self.room(planes * rows * n)
        self.run(
            "multiply", of.model_launch, m, n, of.k, a, step_a, b, step_b, np.int32(0), ld, made,
            rows * n, rows, self.decision,
        )  # fmt: skip
        old = np.full((n, m), np.nan, self.a.dtype) if c is None else np.ascontiguousarray(c.T)
        memory = self.live.upload(old)
        of_elements = precision_of(self.a.dtype)
        scalars = [
            part for x in (alpha, beta) for part in of_elements.scalar(x)[: 1 + of.is_complex]
        ]
        self.run(
            "reconstruct", of.reconstruct_launch, m, n, made, rows * n, rows, self.exponents,
            0, of.first_b, *(np.int32(0) for _ in range(1 + of.is_complex)), *scalars, memory, 0, m,
            self.decision,
        )  # fmt: skip
        return self.read(memory, self.a.dtype, n, m).T

    def sides(self, which: int) -> tuple[Any, Any, Any]:
        """Return an operand's exponents, integers and residues of all planes, side by side."""
        side, first = (self.of.n, self.of.first_b) if which else (self.of.m, 0)
        x = self.b.T if which else self.a
        exponents = self.read(self.exponents, np.int32, self.of.sides)[first : first + side]
        planes = self.read(self.planes[which], np.int8, self.of.planes, side, self.ld)
        return exponents, whole(x, exponents), planes[:, :, : self.of.k].astype(object)

    def exact(self) -> Any:
        """Return the product of the integers, unscaled and rounded once.

        Of pairs fractions, of each component.
        """
        (ea, (re, im), _), (eb, (re_b, im_b), _) = self.sides(0), self.sides(1)
        shift = -(ea[:, None] + eb[None, :])
        if self.of.is_pair:
            made = re.dot(re_b.T) - im.dot(im_b.T), re.dot(im_b.T) + im.dot(re_b.T)
            scale = np.vectorize(lambda e: Fraction(2) ** int(e), otypes=[object])(shift)
            return [x * scale for x in made[: 1 + self.of.is_complex]]
        real = np.ldexp((re.dot(re_b.T) - im.dot(im_b.T)).astype(float), shift)
        if not self.of.is_complex:
            return real
        return real + 1j * np.ldexp((re.dot(im_b.T) + im.dot(re_b.T)).astype(float), shift)


def components(x: Any) -> list[Any]:
    """Return real pairs, or complex ones' real and imaginary parts."""
    return [x["re"], x["im"]] if x.dtype.names == ("re", "im") else [x]


def conjugate(x: Any) -> Any:
    """Return the conjugates of complex numbers, or of complex pairs."""
    if x.dtype.names is None:
        return x.conj()
    made = x.copy()
    for word in ("hi", "lo") if x.dtype.names == ("re", "im") else ():
        made["im"][word] *= -1
    return made


def exact_of(x: Any) -> Any:
    """Return real pairs as fractions."""
    return np.vectorize(lambda *words: sum(map(Fraction, words)), otypes=[object])(x["hi"], x["lo"])


def whole(x: Any, exponents: Any) -> tuple[Any, Any]:
    """Return sides times powers of two, rounded, as Python's integers: real and imaginary."""
    if x.dtype.names is not None:
        powers = np.vectorize(lambda e: Fraction(2) ** int(e), otypes=[object])(exponents[:, None])
        rounded = np.vectorize(round, otypes=[object])
        made = [rounded(exact_of(part) * powers) for part in components(x)]
        return made[0], made[1] if len(made) == 2 else 0 * made[0]
    parts = (np.rint(np.ldexp(part, exponents[:, None])) for part in (x.real, x.imag))
    real, imaginary = (np.vectorize(int, otypes=[object])(part) for part in parts)
    return real, imaginary
