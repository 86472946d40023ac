"""The pre-pass and the guard, bit for bit what NumPy says, whichever way operands lie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stencil.split import plainly
from tilewright.backend import LiveDevice, devices
from tilewright.problem import Trans
from tilewright.stencil import Launch
from tilewright.stencil.split import SCHEMES, Sources
from tilewright.stencil.split.scheme import part_bytes
from tilewright.stencil.split.sources import Operands, Stored

WORDS = {"fp16": np.uint16, "bf16": np.uint16, "tf32": np.uint32}


# One CPU is enough for sources that are whole numbers and exact steps.
_CPU = next(d.id for d in devices() if d.spec.kind == "cpu")
_GPUS = [pytest.param(d.id, marks=pytest.mark.gpu) for d in devices() if d.backend == "cuda"]


@pytest.fixture(scope="module", params=[_CPU, *_GPUS])
def live(request: pytest.FixtureRequest) -> LiveDevice:
    return next(d for d in devices() if d.id == request.param)


def laid(x, ld, offset=0):
    """Return memory that holds x by columns, NaN all around."""
    flat = np.full(offset + ld * x.shape[1] + 8, np.nan, np.float32)
    for j in range(x.shape[1]):
        flat[offset + j * ld :][: len(x)] = x[:, j]
    return flat


class Passes:
    """The kernels of one operand, run on matrices in memory."""

    def __init__(self, live: LiveDevice) -> None:
        self.live, self.sources, self.kernels = live, Sources(live.dialect), {}

    def run(self, source, launch, *arguments):
        key = (source.text, *source.defines.items())
        if key not in self.kernels:
            self.kernels[key] = self.live.compile(source)
        made = [x if not isinstance(x, int) else np.int64(x) for x in arguments]
        self.live.launch(self.kernels[key], launch, made).wait()

    def read(self, memory, dtype, count):
        out = np.empty(count, dtype)
        self.live.download(memory, out)
        return out


@pytest.fixture(scope="module")
def passes(live):
    return Passes(live)


class Both:
    """Two matrices in memory, A and B of a product, and what the passes find and leave.

    Parameters
    ----------
    matrices : tuple
        Each as stored, with whether memory runs along k.
    scheme : Scheme
        Into which parts.
    transposed : tuple
        Whether parts are stored in the other order.
    pad, offset : int
        Elements between columns, and before the first one.
    """

    def __init__(self, passes, matrices, scheme, transposed=(False, False), pad=0, offset=0):
        self.passes, self.scheme, self.transposed = passes, scheme, transposed
        self.given = [x for x, _ in matrices]
        stored = [Stored(x.shape[k_fast], x.shape[not k_fast], k_fast) for x, k_fast in matrices]
        self.of = Operands(*stored)
        self.matrices, self.parts, self.places = [], [], []
        upload, word = passes.live.upload, WORDS[scheme.part]
        for (x, _), transpose in zip(matrices, transposed, strict=True):
            inner, outer = x.shape
            memory = upload(laid(x, inner + pad, offset))
            self.matrices += [inner, outer, memory, offset, inner + pad]
            across, down = (outer, inner) if transpose else (inner, outer)
            unit = 16 // part_bytes(scheme.part)
            ld = -(-across // unit) * unit
            self.places.append((across, down, ld, ld * down))
            self.parts += [upload(np.full(scheme.parts * ld * down, 77, word)), ld * down, ld]
        self.matrices.append(self.of.first_b)
        self.tops = upload(np.zeros(self.of.words_of_tops, np.int32))
        self.words = self.of.sides + self.of.words_of_counts
        self.sides = upload(np.full(self.words, -7, np.int32))
        self.decision, self.report = (upload(np.full(8, -7, np.int32)) for _ in range(2))

    def largest(self):
        """Run the first pass."""
        source = self.passes.sources.largest(self.of)
        self.passes.run(
            source, self.of.launch, *self.matrices, self.tops, self.sides, self.of.sides,
            self.of.words_of_counts,
        )  # fmt: skip

    def split(self, exponents="of tops", *, guarded=False, k=0, route=None, launch=None):
        """Run the second pass; with a route, as if that had been decided for and 2 were asked."""
        source = self.passes.sources.split(
            self.of, self.scheme, guarded=guarded, transposed=self.transposed, exponents=exponents,
            run_if=None if route is None else 2,
        )  # fmt: skip
        more = (k, self.decision, self.report) if guarded else ()
        if route is not None:
            more += (self.passes.live.upload(np.array([route], np.int32)),)
        self.passes.run(
            source, launch or self.of.launch, *self.matrices, *self.parts, self.tops, self.sides,
            self.of.sides, *more,
        )  # fmt: skip

    def made(self, which):
        """Return an operand's parts in its own shape."""
        across, down, ld, stride = self.places[which]
        count = self.scheme.parts * stride
        found = self.passes.read(self.parts[3 * which], WORDS[self.scheme.part], count)
        made = []
        for p in range(self.scheme.parts):
            whole = found[p * stride :][:stride].reshape(down, ld)[:, :across].T
            made.append(numbers(whole.T if self.transposed[which] else whole, self.scheme.part))
        return made

    def found(self, which):
        """Return exponents and counts of an operand's sides, and its mark."""
        numbers, of = self.passes.read(self.sides, np.int32, self.words), self.of
        first, count = (of.first_b, of.b.side) if which else (0, of.a.side)
        rows = numbers[: 4 * of.sides].reshape(4, of.sides)[:, first : first + count]
        return rows[0], rows[1:].T, numbers[4 * of.sides + which]

    def left(self):
        """Return what has to be zero between calls."""
        return self.passes.read(self.tops, np.int32, self.of.words_of_tops)


def numbers(bits, part):
    bits = np.ascontiguousarray(bits)
    if part == "fp16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16 if part == "bf16" else bits).view(np.float32)


# Every exponent, subnormal numbers, zeros, ties of every format.
def awkward(rng, shape, spread=30):
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-spread, spread, shape))
    x = x.astype(np.float32)
    bits = x.view(np.uint32)
    ties = rng.random(shape)
    bits[ties < 0.3] &= np.uint32(0xFFFFE000)
    bits[(ties > 0.1) & (ties < 0.2)] |= np.uint32(0x1000)
    bits[(ties > 0.2) & (ties < 0.3)] |= np.uint32(0x8000)
    x[rng.random(shape) < 0.05] = 0
    return x


ORDERS = [(False, False), (False, True), (True, False), (True, True)]


def judged(both, which, x, k_fast, *, counted=True):
    """Compare what was made of a matrix with NumPy, bit by bit."""
    axis = 0 if k_fast else 1  # along k
    exponents, counts, mark = both.found(which)
    scale = plainly.exponents(x, axis)
    np.testing.assert_array_equal(exponents, scale)
    wanted = plainly.parts_of(x, both.scheme, np.expand_dims(scale, axis))
    for got, right in zip(both.made(which), wanted, strict=True):
        np.testing.assert_array_equal(got.view(np.uint32), right.view(np.uint32))
    if counted:
        np.testing.assert_array_equal(counts, plainly.counts(x, axis))
        assert mark == any(part.any() for part in wanted[1:])


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("name", "orders"),
    [("bf16x6", ORDERS[1]), ("tf32x3", ORDERS[2]), *(("fp16x3", orders) for orders in ORDERS)],
)
def test_parts_are_what_numpy_says(passes, name, orders):
    scheme = SCHEMES[name]
    rng = np.random.default_rng(len(name))
    for shapes in (((1, 1), (3, 300)), ((130, 67), (257, 64)), ((64, 31), (128, 128))):
        xs = [awkward(rng, shape) for shape in shapes]
        for pad, offset in ((0, 0), (3, 1), (4, 4)):
            both = Both(passes, list(zip(xs, orders, strict=True)), scheme, pad=pad, offset=offset)
            both.largest()
            both.split(guarded=True, k=70)
            for which, (x, k_fast) in enumerate(zip(xs, orders, strict=True)):
                judged(both, which, x, k_fast)
            assert not both.left().any()


@pytest.mark.parametrize(
    ("orders", "transposed"),
    [(ORDERS[0], (True, True)), (ORDERS[1], (True, False)), (ORDERS[3], (False, True))],
)
def test_parts_may_be_stored_in_the_other_order(passes, orders, transposed):
    rng = np.random.default_rng(5)
    xs = [awkward(rng, shape) for shape in ((131, 70), (64, 130))]
    both = Both(passes, list(zip(xs, orders, strict=True)), SCHEMES["tf32x3"], transposed)
    both.largest()
    both.split()
    for which, (x, k_fast) in enumerate(zip(xs, orders, strict=True)):
        judged(both, which, x, k_fast, counted=False)
    assert not both.left().any()


@pytest.mark.parametrize("orders", ORDERS[:2])
def test_a_pass_for_another_route_writes_nothing(passes, orders):
    """And for its own it takes the exponents that are there, with any number of blocks."""
    rng = np.random.default_rng(6)
    xs = [awkward(rng, shape) for shape in ((140, 64), (150, 90))]
    given = list(zip(xs, orders, strict=True))
    both = Both(passes, given, SCHEMES["bf16x6"])
    both.largest()
    both.split(guarded=True, k=64)
    for which in (0, 1):
        both.parts[3 * which] = passes.live.upload(
            np.full(3 * both.places[which][3], 77, np.uint16)
        )
    few = Launch((3, 1), (256, 1))
    both.split("known", route=1, launch=few)
    assert all((part.view(np.uint32) == 77 << 16).all() for which in (0, 1)
               for part in both.made(which))  # fmt: skip
    both.split("known", route=2, launch=few)
    for which, (x, k_fast) in enumerate(given):
        judged(both, which, x, k_fast)


def test_what_two_and_three_parts_lose(passes):
    """FP16 and TF32 parts keep 2^-23, down to 2^-17 of a side's largest; BF16 parts everything."""
    rng = np.random.default_rng(7)
    x = (rng.uniform(1, 2, (256, 256)) * np.exp2(-rng.integers(0, 17, (256, 256)))).astype("f4")
    x[:, 0] = 1.5
    for name, most in (("fp16x3", 2.0**-23), ("tf32x3", 2.0**-23), ("bf16x6", 0)):
        both = Both(passes, [(x, False), (x, False)], SCHEMES[name])
        both.largest()
        both.split()
        exponents, _, _ = both.found(0)
        total = sum(part.astype(np.float64) for part in both.made(0))
        worst = np.max(np.abs(np.ldexp(total, exponents[:, None]) - x) / np.abs(x))
        assert worst <= most
        if most:
            assert worst > most / 4  # the bound is no idle one


matrices = st.sampled_from(
    [
        "normal",
        "spread",
        "spike",
        "integers",
        "zeros",
        "halves",
        "inf",
        "nan",
        "tiny",
        "sparse",
        "dust",
    ]
)


def drawn(kind, rng, shape):
    x = rng.standard_normal(shape)
    if kind == "spread":
        x = x * np.exp(2 * rng.standard_normal(shape))
    elif kind == "spike":
        x[rng.integers(shape[0]), rng.integers(shape[1])] *= 2.0**40
    elif kind == "integers":
        x = np.round(x * 1000)
    elif kind == "zeros":
        x[rng.integers(shape[0])] = 0
        x[:, rng.integers(shape[1])] = 0
    elif kind == "halves":
        x = x.astype(np.float16)
    elif kind in ("inf", "nan"):
        x[rng.integers(shape[0]), rng.integers(shape[1])] = float(kind)
    elif kind == "tiny":
        x = x * 2.0**-140
    elif kind == "sparse":
        x[rng.random(shape) < 0.3] = 0
    elif kind == "dust":
        x[rng.random(shape) < 0.02] *= 2.0**-25
    return np.asarray(x, np.float32)


@settings(max_examples=60)
@given(a=matrices, b=matrices, k=st.integers(60, 400), seed=st.integers(0, 2**32 - 1))
def test_guard_decides_as_numpy_does(passes, a, b, k, seed):
    rng = np.random.default_rng(seed)
    m, n = int(rng.integers(1, 70)), int(rng.integers(1, 70))
    x, y = drawn(a, rng, (m, k)), drawn(b, rng, (k, n))
    both = Both(passes, [(x, False), (y, True)], SCHEMES["fp16x3"])
    for _ in range(2):  # what one call leaves, the next one finds
        both.largest()
        both.split(guarded=True, k=k)
    decision, report = (passes.read(memory, np.int32, 8) for memory in (both.decision, both.report))
    assert not both.left().any()
    np.testing.assert_array_equal(decision, report)
    with np.errstate(invalid="ignore", over="ignore"):
        right = plainly.decided(x, y)
    if right[1]:
        assert list(decision) == right
    else:  # what is counted beside infinity and NaN means nothing
        assert list(decision[:2]) == [0, 0]


def test_model_adds_as_the_matrix_unit(passes):
    """model.cl against `plainly.instruction`, in every order of the parts."""
    rng = np.random.default_rng(11)
    m, n, k = 7, 9, 77
    a = (rng.standard_normal((m, k)) * np.exp2(rng.integers(-9, 9, (m, k)))).astype(np.float32)
    b = rng.standard_normal((k, n)).astype(np.float32)
    cases = (("fp16x3", 0, False), ("fp16x3", 2, True), ("tf32x3", 1, True))
    for name, extra, k_fast in (*cases, ("bf16x9", 2, False)):
        scheme = SCHEMES[name]
        pa, pb = (plainly.parts_of(x, scheme, np.zeros(1, int)) for x in (a, b))
        source = passes.sources.model(
            scheme,
            Trans.T if k_fast else Trans.N,
            Trans.N if k_fast else Trans.T,
            extra_bits=extra,
        )
        # By columns, with k as the first index or as the second one.
        laid_a = [p if k_fast else p.T for p in pa]
        laid_b = [p.T if k_fast else p for p in pb]
        memory = [
            passes.live.upload(np.concatenate([bits_of(p, scheme) for p in laid]))
            for laid in (laid_a, laid_b)
        ]
        got = modelled(passes, source, memory, (m, n, k), k_fast)
        wanted = plainly.product_of_parts(pa, pb, scheme, extra)
        np.testing.assert_array_equal(got, wanted, err_msg=f"{name} {extra} {k_fast}")


def bits_of(x, scheme):
    """Return a part's words, row by row."""
    x = np.ascontiguousarray(x)
    if scheme.part == "fp16":
        return x.astype(np.float16).view(np.uint16).ravel()
    bits = x.view(np.uint32).ravel()
    return (bits >> 16).astype(np.uint16) if scheme.part == "bf16" else bits


def modelled(passes, source, memory, sizes, k_fast):
    m, n, k = sizes
    zeros = passes.live.upload(np.zeros(m + n, np.int32))
    c = passes.live.allocate(4 * m * n)
    one, none = np.float32(1), np.float32(0)
    lda, ldb = (k, k) if k_fast else (m, n)
    passes.run(
        source, passes.sources.model_launch(m, n), m, n, k, one, memory[0], 0, m * k, lda,
        memory[1], 0, k * n, ldb, zeros, 0, m, none, c, 0, m, zeros, np.int32(0), np.int32(0),
    )  # fmt: skip
    return passes.read(c, np.float32, m * n).reshape(n, m).T
