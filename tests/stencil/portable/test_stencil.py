"""The portable kernel is right: on every OpenCL device, bit for bit, and only where asked.

Integers make every sum exact, NaN surrounds A and B, and C lies between guards, so a
wrong sum, a stray read and a stray write all show in one comparison.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stencil.portable.covering import VARIANTS, cost, covering_set, small_space, unpruned
from tests.stencil.portable_harness import Case, Runner, apply, laid_out, variant
from tilewright.backend import devices
from tilewright.precision import PRECISIONS
from tilewright.space import Config
from tilewright.stencil.portable import Portable

# CUDA devices have tests of their own (test_gpu.py).
DEVICES = [live for live in devices() if live.backend == "opencl"]

# Blocks are at most 32 x 32 x 16 here: sizes below, at and above them, primes and ones,
# with leading dimensions and offsets that allow vectors of elements and that forbid them.
CASES = (
    Case(1, 1, 1),
    Case(2, 3, 1, alpha=-1, beta=1, pad=1),
    Case(64, 64, 32, beta=0, nan_in_c=True),  # inside everywhere, vectors aligned
    Case(64, 64, 32, alpha=2, beta=1, pad=4, offset=4),
    Case(64, 37, 20, alpha=1, beta=3 - 1j, pad=4, offset=4),  # C in vectors, columns ragged
    Case(64, 64, 32, alpha=2, beta=-1, pad=1, offset=3),  # inside, nothing aligned
    Case(64, 64, 32, alpha=-1, offset=3),  # inside, only the first element unaligned
    Case(37, 53, 29, alpha=2 - 1j, beta=3 + 2j, pad=2, offset=1),
    Case(70, 35, 17, alpha=1j, beta=0, pad=3, offset=5, nan_in_c=True),
    Case(33, 97, 16, alpha=3, beta=1j),
    Case(5, 100, 50, alpha=1, beta=1, pad=4),
    Case(100, 3, 7, alpha=-2, beta=0),
    Case(31, 33, 0, alpha=5, beta=2, pad=1),  # k = 0 still scales C
    Case(31, 33, 0, alpha=np.inf, beta=0, nan_in_c=True),
    Case(20, 20, 20, alpha=0, beta=-1, offset=2),
    Case(0, 5, 5),
    Case(5, 0, 5, beta=2),
)


@cache
def runner(index: int) -> Runner:
    return Runner(DEVICES[index], Portable())


@pytest.fixture(params=range(len(DEVICES)), ids=[live.id for live in DEVICES])
def on(request: pytest.FixtureRequest) -> Runner:
    return runner(request.param)


def test_there_is_a_device():
    assert DEVICES, "the test dependencies bring an OpenCL device"


def shares() -> list[tuple[int, int]]:
    """Deal the covering set out to the devices, so that together they show all of it."""
    return [(i, i % max(1, len(DEVICES))) for i in range(len(covering_set()))]


@pytest.mark.every(9)
@pytest.mark.parametrize(("entry", "device"), shares())
def test_every_pair_of_choices_is_right(entry: int, device: int):
    config, name = covering_set()[entry]
    for seed, case in enumerate(CASES):
        case.seed = seed
        runner(device).check(config, name, case)
    runner(device).kernels.clear()


# All variants on two devices take 20 minutes; every third meets each precision and transpose.
SWEPT = VARIANTS[::3]


# Drivers compile each config for seconds; the first half has the default one.
@pytest.mark.thorough
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("name", "half"), [(name, half) for name in SWEPT for half in (0, 1)])
def test_many_configs_are_right(on: Runner, name: str, half: int):
    """Every op pair in every precision, larger tiles, and the default config."""
    portable, of = Portable(), variant(name)
    drawn = small_space(name).sample(6, seed=7) + unpruned(of, on.live.spec).sample(12, seed=8)
    few = [config for config in drawn if cost(config, name) <= 800][:6]
    for config in [portable.default(of, on.live.spec), *few][half::2]:
        for case in (*CASES, Case(300, 260, 70, alpha=2, beta=1), Case(257, 255, 65, pad=1)):
            on.check(config, name, case)
    on.kernels.clear()


# Two configs as different as can be: all through shared memory in the plainest way, and
# A in vectors, twice buffered, while B comes through the cache.
PLAIN = Config(
    "portable",
    {
        "block_m": 16, "block_n": 16, "block_k": 8, "threads_m": 4, "threads_n": 4,
        "fragment_vector": 1, "strided": 0, "read_a_m": 4, "read_b_n": 8, "read_vector": 1,
        "pad": 0, "shared_buffers": 1, "prefetch": 0, "unroll_k": 4, "swizzle_rows": 1,
    },
)  # fmt: skip
MIXED = PLAIN.replace(
    block_m=32, threads_m=8, fragment_vector=2, strided=1, read_a_m=8, read_b_n=0, read_vector=2,
    pad=1, shared_buffers=2, prefetch=1, swizzle_rows=8,
)  # fmt: skip
DIRECT = PLAIN.replace(read_a_m=0, read_b_n=0, block_k=4, fragment_vector=2, swizzle_rows=8)

PAIRED = [(PLAIN, "sTN"), (MIXED, "cCT"), (DIRECT, "dNT")]

sizes = st.integers(0, 70)
scalars = st.sampled_from([0, 1, -1, 2, 1j, 3 - 2j])


@pytest.mark.parametrize(("config", "name"), PAIRED)
@settings(max_examples=40)
@given(
    case=st.builds(
        Case,
        m=sizes,
        n=sizes,
        k=sizes,
        alpha=scalars,
        beta=scalars,
        pad=st.integers(0, 5),
        offset=st.integers(0, 5),
        seed=st.integers(0, 99),
    )
)
def test_any_shape_is_right(config: Config, name: str, case: Case):
    for index in range(len(DEVICES)):
        runner(index).check(config, name, case)


def plain_loop(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the sum over l of column l times row l, each product by the plain formula."""
    total = np.zeros((a.shape[0], b.shape[1]), np.result_type(a, b))
    with np.errstate(invalid="ignore"):
        for left, right in zip(a.T[:, :, None], b[:, None, :], strict=True):
            if np.iscomplexobj(total):
                total.real += left.real * right.real
                total.real -= left.imag * right.imag
                total.imag += left.real * right.imag
                total.imag += left.imag * right.real
            else:
                total += left * right
    return total


@pytest.mark.parametrize(("config", "name"), PAIRED)
def test_inf_and_nan_propagate_as_in_a_plain_loop(on: Runner, config: Config, name: str):
    """One Inf and one NaN reach their row and column, and padding makes no more of them."""
    of, case = variant(name), Case(21, 19, 13)  # nothing divides: all padding is at work
    rng = np.random.default_rng(3)
    shape_a = (case.k, case.m) if of.trans_a.transposed else (case.m, case.k)
    shape_b = (case.n, case.k) if of.trans_b.transposed else (case.k, case.n)
    a = rng.integers(1, 5, shape_a).astype(of.precision.dtype)
    b = rng.integers(1, 5, shape_b).astype(of.precision.dtype)
    a[-1, -1], a[0, 2], b[-1, 0], b[3, -1] = np.inf, -np.inf, np.nan, 0
    expected = plain_loop(apply(of.trans_a, a), apply(of.trans_b, b))
    c = np.zeros((case.m, case.n), of.precision.dtype)
    memory = (laid_out(matrix, case, 0.0) for matrix in (a, b, c))
    result = on.launch(config, of, case, *memory)[: c.size].reshape(c.shape, order="F")
    np.testing.assert_array_equal(result, expected)
    assert np.isfinite(result).any()
    assert np.isinf(result.real).any()
    assert np.isnan(result.real).any()


@pytest.mark.parametrize(("config", "name"), PAIRED)
@pytest.mark.parametrize("case", [Case(9, 7, 5, 0.0, 2.0), Case(9, 7, 0, 1.0, 2.0)], ids=str)
def test_nothing_is_read_for_an_empty_sum(on: Runner, config: Config, name: str, case: Case):
    """With alpha = 0 or k = 0 NaN in A and B stays there, and C is scaled."""
    of = variant(name)
    poison = np.full(100, np.nan, of.precision.dtype)
    c = np.arange(63, dtype=of.precision.dtype)
    result = on.launch(config, of, case, (poison, 9), (poison, 9), (c, 9))
    np.testing.assert_array_equal(result, 2 * c)


def test_same_config_same_bits(on: Runner):
    """Random reals, summed twice, give the same bits."""
    of, case = variant("sTN"), Case(45, 37, 51)
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((51, 45), (51, 37)))
    memory = [laid_out(m, case, 0.0) for m in (a, b, np.zeros((45, 37), np.float32))]
    first, second = (on.launch(PLAIN, of, case, *memory) for _ in range(2))
    assert first.tobytes() == second.tobytes()
    # Nor is it far from the sum: k roundings of numbers of this size.
    got = first[: 45 * 37].reshape(45, 37, order="F")
    np.testing.assert_allclose(got, a.T @ b, rtol=0, atol=51 * 2.0**-22)


def test_default_runs_everywhere(on: Runner):
    portable = Portable()
    for letter in PRECISIONS:
        of = variant(f"{letter}NN")
        config = portable.default(of, on.live.spec)
        used = portable.resources(config, of)
        assert used.threads <= on.live.spec.max_threads_per_block
        assert used.shared_bytes <= on.live.spec.shared_bytes_per_block
