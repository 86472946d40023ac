"""The pre-pass and the guard, bit for bit what NumPy says, whichever way operands lie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.split import plainly
from tilewright.backend import LiveDevice, devices
from tilewright.problem import Trans
from tilewright.stencil import Launch
from tilewright.stencil.split import SCHEMES, Texts
from tilewright.stencil.split.scheme import part_bytes
from tilewright.stencil.split.texts import Stored

WORDS = {"fp16": np.uint16, "bf16": np.uint16, "tf32": np.uint32}


# One CPU is enough for texts that are whole numbers and exact steps.
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
        self.live, self.texts, self.kernels = live, Texts(live.dialect), {}

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


def cleared(passes, words):
    memory = passes.live.upload(np.full(words, -7, np.int32))
    passes.run(passes.texts.clear(), passes.texts.clear_launch(words), words, memory)
    return memory


def split(passes, x, stored, scheme, *, transpose=False, pad=0, offset=0, run_if=None):
    """Return parts (in x's own shape), exponents, counts and mark of stored matrix x."""
    inner, outer = x.shape
    ld, all_ = inner + pad, stored.side
    memory = passes.live.upload(laid(x, ld, offset))
    sides = cleared(passes, 5 * all_ + 2)
    place = (inner, outer, memory, offset, ld)
    passes.run(passes.texts.largest(stored), stored.launch, *place, sides, 0)
    unit = 16 // part_bytes(scheme.part)
    across, down = (outer, inner) if transpose else (inner, outer)
    ld_parts = -(-across // unit) * unit
    stride = ld_parts * down
    word = WORDS[scheme.part]
    parts = passes.live.upload(np.full(scheme.parts * stride, 77, word))
    source = passes.texts.split(
        stored, scheme, counted=True, transpose=transpose, run_if=None if run_if is None else 2
    )
    more = () if run_if is None else (passes.live.upload(np.array([run_if], np.int32)),)
    passes.run(source, stored.launch, *place, parts, stride, ld_parts, sides, all_, 0, *more)
    found = passes.read(parts, word, scheme.parts * stride)
    made = []
    for p in range(scheme.parts):
        whole = found[p * stride :][:stride].reshape(down, ld_parts)[:, :across].T
        made.append(numbers(whole.T if transpose else whole, scheme.part))
    numbers_of_sides = passes.read(sides, np.int32, 5 * all_ + 2)
    counts = numbers_of_sides[2 * all_ : 5 * all_].reshape(all_, 3)
    return made, numbers_of_sides[all_ : 2 * all_], counts, numbers_of_sides[5 * all_]


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


@pytest.mark.parametrize("name", ["fp16x3", "bf16x6", "tf32x3"])
@pytest.mark.parametrize("k_fast", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (130, 67), (257, 64), (3, 300)])
def test_parts_are_what_numpy_says(passes, name, k_fast, shape):
    scheme = SCHEMES[name]
    rng = np.random.default_rng(len(name) + sum(shape))
    x = awkward(rng, shape)
    stored = Stored(shape[k_fast], shape[not k_fast], k_fast)
    axis = 0 if k_fast else 1  # along k
    for pad, offset in ((0, 0), (3, 1), (4, 4)):
        made, exponents, counts, mark = split(passes, x, stored, scheme, pad=pad, offset=offset)
        scale = plainly.exponents(x, axis)
        np.testing.assert_array_equal(exponents, scale)
        wanted = plainly.parts_of(x, scheme, np.expand_dims(scale, axis))
        for got, right in zip(made, wanted, strict=True):
            np.testing.assert_array_equal(got.view(np.uint32), right.view(np.uint32))
        np.testing.assert_array_equal(counts, plainly.counts(x, axis))
        assert mark == any(part.any() for part in wanted[1:])


@pytest.mark.parametrize("k_fast", [False, True])
def test_parts_may_be_stored_in_the_other_order(passes, k_fast):
    x = awkward(np.random.default_rng(5), (131, 70))
    stored = Stored(x.shape[k_fast], x.shape[not k_fast], k_fast)
    scheme = SCHEMES["tf32x3"]
    straight = split(passes, x, stored, scheme)
    turned = split(passes, x, stored, scheme, transpose=True)
    for one, other in zip(straight[0] + [straight[2]], turned[0] + [turned[2]], strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_pass_for_another_route_writes_nothing(passes):
    x = awkward(np.random.default_rng(6), (64, 64))
    stored = Stored(64, 64, False)
    made, _, counts, _ = split(passes, x, stored, SCHEMES["bf16x6"], run_if=1)
    assert not counts.any()
    assert all((part.view(np.uint32) == 77 << 16).all() for part in made)


def test_what_two_and_three_parts_lose(passes):
    """FP16 and TF32 parts keep 2^-23, down to 2^-17 of a side's largest; BF16 parts everything."""
    rng = np.random.default_rng(7)
    x = (rng.uniform(1, 2, (256, 256)) * np.exp2(-rng.integers(0, 17, (256, 256)))).astype("f4")
    x[:, 0] = 1.5
    stored = Stored(256, 256, False)
    for name, most in (("fp16x3", 2.0**-23), ("tf32x3", 2.0**-23), ("bf16x6", 0)):
        made, exponents, _, _ = split(passes, x, stored, SCHEMES[name])
        total = np.ldexp(sum(part.astype(np.float64) for part in made), exponents[:, None])
        worst = np.max(np.abs(total - x) / np.abs(x))
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


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(a=matrices, b=matrices, k=st.integers(60, 400), seed=st.integers(0, 2**32 - 1))
def test_guard_decides_as_numpy_does(passes, a, b, k, seed):
    rng = np.random.default_rng(seed)
    m, n = int(rng.integers(1, 70)), int(rng.integers(1, 70))
    x, y = drawn(a, rng, (m, k)), drawn(b, rng, (k, n))
    sides = cleared(passes, 5 * (m + n) + 2)
    for matrix, first, stored in ((x, 0, Stored(m, k, False)), (y, m, Stored(n, k, True))):
        memory = passes.live.upload(laid(matrix, len(matrix)))
        place = (*matrix.shape, memory, 0, len(matrix))
        passes.run(passes.texts.largest(stored), stored.launch, *place, sides, first)
        ld = -(-len(matrix) // 8) * 8
        stride = ld * matrix.shape[1]
        parts = passes.live.allocate(4 * stride)
        source = passes.texts.split(stored, SCHEMES["fp16x3"], counted=True)
        passes.run(source, stored.launch, *place, parts, stride, ld, sides, m + n, first)
    told = [passes.live.allocate(32) for _ in range(2)]
    passes.run(passes.texts.decide(), Launch((1, 1), (256, 1)), m, n, k, sides, *told)
    decision, report = (passes.read(memory, np.int32, 8) for memory in told)
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
    cases = (("fp16x3", 0, False), ("fp16x3", 2, True), ("tf32", 2, False), ("tf32x3", 1, True))
    for name, extra, k_fast in (*cases, ("bf16x9", 2, False)):
        scheme = SCHEMES[name]
        pa, pb = (plainly.parts_of(x, scheme, np.zeros(1, int)) for x in (a, b))
        source = passes.texts.model(
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
        source, passes.texts.model_launch(m, n), m, n, k, one, memory[0], 0, m * k, lda,
        memory[1], 0, k * n, ldb, zeros, 0, m, none, c, 0, m, zeros, np.int32(0),
    )  # fmt: skip
    return passes.read(c, np.float32, m * n).reshape(n, m).T
