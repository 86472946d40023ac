"""Runs the tensor-core stencil on integer data and compares every bit with the oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.backend import GemmCall, LiveDevice, Operand
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.space import Config
from tilewright.stencil.wgmma import (
    ARITHMETICS,
    Arithmetic,
    Parts,
    TensorCall,
    TensorVariant,
    Wgmma,
)
from tilewright.stencil.wgmma.arithmetic import FLOAT_BITS
from tilewright.tuning.verify import WrongResultError

FAMILY = Wgmma()

# Small enough that parts' products add up exactly in every result type but bfloat16, where
# only one rounding, of an exact sum, remains.
LARGEST = 3

GUARD = 64

PLAIN = {
    "f16": Arithmetic("float16", "float16"),
    "f16-f32": Arithmetic("float16"),
    "bf16": Arithmetic("bfloat16", "bfloat16"),
    "bf16-f32": Arithmetic("bfloat16"),
    "tf32": Arithmetic("tf32"),
    "s8": Arithmetic("int8", "int32"),
    "e4m3": Arithmetic("float8_e4m3fn", "bfloat16"),
    "e5m2-f32": Arithmetic("float8_e5m2"),
}
EVERY = {**PLAIN, **ARITHMETICS}
FP16X3 = ARITHMETICS["fp16x3"]


def variant(trans: str, arithmetic: Arithmetic) -> TensorVariant:
    """Return a variant by its two letters."""
    return TensorVariant(precision("s"), Trans(trans[0]), Trans(trans[1]), arithmetic=arithmetic)


def small(of: TensorVariant, live: LiveDevice, **changes: int) -> Config:
    """Return a config of few threads and little shared memory."""
    values = {
        "block_m": 64, "block_n": 128, "block_k": 128 // of.arithmetic.element_bytes,
        "instruction_m": 64, "consumers": 2, "pingpong": 0, "stages": 2, "promote_k": 0,
        "partials": 1,
        "min_blocks": 1, "cluster_m": 1, "cluster_n": 1, "swizzle_rows": 4, "multiprocessors": 0,
    }  # fmt: skip
    return FAMILY.space(of, live.spec).config(
        {**values, **changes}, kinds=("divisibility", "hardware")
    )


def bits_of_bfloat16(x: NDArray[Any]) -> NDArray[Any]:
    """Return numbers rounded to bfloat16, ties to even, as the bits."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def stored(x: NDArray[Any], kind: str) -> NDArray[Any]:
    """Return numbers as memory holds them."""
    if kind == "bfloat16":
        return bits_of_bfloat16(x)
    if kind.startswith("float8"):
        return bits_of_float8(x, kind)
    return x.astype({"tf32": "float32"}.get(kind, kind))


def numbers(x: NDArray[Any], kind: str) -> NDArray[Any]:
    """Return what memory holds as numbers."""
    if kind == "bfloat16":
        x = (x.astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float64)


def bits_of_float8(x: NDArray[Any], kind: str) -> NDArray[Any]:
    """Return small integers as FP8's bits: those of FP16 cut to a byte, or with a bit more."""
    bits = np.ascontiguousarray(x, np.float16).view(np.uint16)
    if kind == "float8_e5m2":
        return (bits >> 8).astype(np.uint8)
    sign, rest = bits >> 15 << 7, (bits & 0x7FFF) >> 7
    return (sign | np.where(rest > 0, rest - (8 << 3), 0)).astype(np.uint8)


@dataclass(frozen=True)
class Case:
    """One problem: sizes, scalars, how its matrices lie, and which triangle is wanted."""

    m: int
    n: int
    k: int
    alpha: float = 1
    beta: float = 0
    padding: int = 0
    offset_c: int = 0
    padding_c: int = 0
    lower: bool | None = None

    @property
    def outside(self) -> NDArray[Any]:
        """Where C is not written: in the other triangle."""
        inside = np.ones((self.m, self.n), bool)
        if self.lower is not None:
            inside = np.tril(inside) if self.lower else np.triu(inside)
        return ~inside


def lay_down(
    live: LiveDevice, parts: NDArray[Any], kind: str, case: Case, alignment: int = 16
) -> Parts:
    """Put an operand's parts, rows contiguous, into memory that is NaN everywhere else."""
    data = stored(parts, kind)
    step = -(-alignment // data.itemsize)
    count, outer, inner = data.shape
    ld = -(-inner // step) * step + case.padding * step
    offset, stride = case.padding * step, (outer + case.padding) * ld
    flat = np.full(offset + count * stride, -1, f"i{data.itemsize}").view(data.dtype)
    for p in range(count):
        rows = flat[offset + p * stride :][: outer * ld].reshape(outer, ld)
        rows[:, :inner] = data[p]
    return Parts(live.upload(flat), offset, ld, stride if count > 1 else 0)


def drawn(rng: np.random.Generator, case: Case, of: TensorVariant) -> tuple[NDArray[Any], ...]:
    """Return integers for op(A)'s and op(B)'s parts, C, and the exponents."""
    span, parts = (-LARGEST, LARGEST + 1), of.arithmetic.parts
    a = rng.integers(*span, (parts, case.m, case.k)).astype(np.float64)
    b = rng.integers(*span, (parts, case.k, case.n)).astype(np.float64)
    c = rng.integers(*span, (case.m, case.n)).astype(np.float64)
    powers = (-2, 3) if of.arithmetic.scaled else (0, 1)
    return a, b, c, rng.integers(*powers, case.m), rng.integers(*powers, case.n)


def exact(case: Case, of: TensorVariant, drawn: tuple[NDArray[Any], ...]) -> NDArray[Any]:
    """Return the oracle's C: exact sums, rounded once."""
    a, b, c, ea, eb = drawn
    sums = sum(a[p] @ b[q] for p, q in of.arithmetic.products)
    right = case.alpha * np.ldexp(sums, ea[:, None] + eb[None, :])
    right = right + (case.beta * c if case.beta else 0)
    kind = of.arithmetic.result
    return numbers(stored(right, kind), kind)


def untouched(arithmetic: Arithmetic) -> float:
    """Return what C holds where it is not read: integers have no NaN."""
    return -7 if arithmetic.result == "int32" else np.nan


class Run:
    """A compiled config, ready for any number of cases."""

    def __init__(
        self, live: LiveDevice, config: Config, of: TensorVariant, family: Wgmma = FAMILY
    ) -> None:
        self.live, self.config, self.variant, self.family = live, config, of, family
        self.kernel = live.compile(family.source(config, of, "cuda"))

    def launch(self, call: TensorCall) -> None:
        """Launch once and wait."""
        launch = self.family.launch(self.config, call.m, call.n, call.k)
        given: Any = call
        if self.family.common_arguments(self.config):
            a, b = (Operand(x.memory, x.offset, x.ld) for x in (call.a, call.b))
            sizes = call.m, call.n, call.k
            given = GemmCall(self.variant.precision, *sizes, call.alpha, a, b, call.beta, call.c)
        arguments = self.family.arguments(self.config, self.variant, given)
        self.live.launch(self.kernel, launch, arguments).wait()

    def result(
        self, case: Case, drawn: tuple[NDArray[Any], ...], route: int | None = None
    ) -> NDArray[Any]:
        """Return C afterwards, as numbers; raises if memory around it changed."""
        a, b, c, ea, eb = drawn
        of, made = self.variant, self.variant.arithmetic
        along_a, along_b = of.k_fast
        apart = self.family.operand_alignment(self.config)
        left = lay_down(self.live, a if along_a else a.swapaxes(1, 2), made.element, case, apart)
        right = lay_down(self.live, b.swapaxes(1, 2) if along_b else b, made.element, case, apart)
        kind = made.result
        # With beta = 0 C is NaN, and stays out of the result; a triangle that is not wanted always.
        unread = case.outside if case.beta else True
        old = stored(np.where(unread, untouched(made), c), kind)
        ld, first = case.m + case.padding_c, GUARD + case.offset_c
        guard = stored(np.array([77.0]), kind)[0]
        flat = np.full(first + case.n * ld + GUARD, guard, old.dtype)
        columns = flat[first : first + case.n * ld].reshape(case.n, ld)
        columns[:, : case.m] = old.T
        memory = self.live.upload(flat)
        word = None if route is None else self.live.upload(np.array([route], np.int32))
        exponents = [self.live.upload(x.astype(np.int32)) for x in (ea, eb)]
        call = TensorCall(
            case.m, case.n, case.k, case.alpha, left, right, case.beta, Operand(memory, first, ld),
            *(exponents if made.scaled else (None, None)), run_if=word, run_value=3,
            lower=case.lower,
        )  # fmt: skip
        self.launch(call)
        after = np.empty_like(flat)
        self.live.download(memory, after)
        for x in (left.memory, right.memory, memory, *exponents):
            self.live.free(x)
        inside = after[first : first + case.n * ld].reshape(case.n, ld)[:, : case.m]
        got = numbers(inside.T.copy(), kind)
        inside[...] = guard
        if not (after == guard).all():
            raise WrongResultError(f"memory outside C was written ({case})")
        return got

    def check(self, case: Case, seed: int = 0) -> None:
        """Compare with the oracle bit for bit."""
        made = self.variant.arithmetic
        values = drawn(np.random.default_rng(seed), case, self.variant)
        got = self.result(case, values, 3 if made.routed else None)
        right = exact(case, self.variant, values)
        right[case.outside] = untouched(made)
        wrong = np.argwhere(~(np.equal(got, right) | (np.isnan(got) & np.isnan(right))))
        if len(wrong):
            i, j = wrong[0]
            raise WrongResultError(
                f"C({i}, {j}) is {got[i, j]}, should be {right[i, j]};"
                f" {len(wrong)} of {got.size} are wrong ({case})"
            )


def assert_compensated(run: Run) -> None:
    """Compare a sum of 2^24 and nine times 1, one an interval of promotion, bit for bit."""
    assert run.family.compensates(run.config, run.variant)
    case, parts = Case(70, 40, 320), run.variant.arithmetic.parts
    a, b = np.zeros((parts, case.m, case.k)), np.zeros((parts, case.k, case.n))
    a[0, :, ::32], b[0, ::32] = 1, 1
    a[0, :, 0], b[0, 0] = 2.0**12, 2.0**12
    zero = np.zeros((case.m, case.n)), np.zeros(case.m, int), np.zeros(case.n, int)
    got = run.result(case, (a, b, *zero), 3 if run.variant.arithmetic.routed else None)
    # 2^24 + 9 is a tie between neighbours in FP32: the even one.
    assert np.all(got == 2.0**24 + 8)


def promoted(name: str) -> dict[str, int]:
    """Return the interval of promotion of an arithmetic that has to have one."""
    made = EVERY[name]
    return {} if made.parts == 1 and made.kept_bits == FLOAT_BITS else {"promote_k": 32}


class Few(Wgmma):
    """Launches of four blocks."""

    def launch(self, config, m, n, k=0):  # type: ignore[no-untyped-def]
        made = super().launch(config, m, n)
        return type(made)(grid=(4, 1), block=made.block)
