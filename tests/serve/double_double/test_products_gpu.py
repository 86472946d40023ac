"""Products of double-double matrices on GPUs, through CUDA and through their OpenCL driver."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tests.double_double.oracle import eta_of, plain, spoilt, wide
from tests.serve.double_double.variants import MIXED, PLAIN, variant
from tilewright.backend import LiveDevice, devices
from tilewright.double_double import random
from tilewright.precision import DOUBLE_DOUBLE
from tilewright.stencil import stencil
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.verify import certify, screen

GPUS = [d for d in devices() if d.spec.kind == "gpu"]
E, W = DOUBLE_DOUBLE["e"], DOUBLE_DOUBLE["w"]

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not GPUS, reason="needs a GPU")]

everywhere = pytest.mark.parametrize("live", GPUS, ids=lambda d: d.id)


@cache
def fastest() -> str:
    """Return the device that most tests run on: CUDA's, where there is one."""
    return min(GPUS, key=lambda d: d.backend != "cuda").id


# Each letter, each operation on either side, both ways through the portable text.
@everywhere
@pytest.mark.parametrize("name", ["eNN", "eTT", "fNT", "fTN", "wCN", "wNT", "vNC", "vTN"])
def test_every_precision_keeps_every_bit(live: LiveDevice, name: str) -> None:
    of, family = variant(name), stencil("portable")
    config = MIXED if name == "fNT" else PLAIN
    screen(live, live.compile(family.source(config, of, live.dialect)), family, config, of)


@everywhere
@pytest.mark.parametrize("name", ["eNN", "fTT"])
def test_what_is_served_keeps_the_whole_contract(live: LiveDevice, name: str) -> None:
    """Bit for bit on integers of 82 bits, scalars, padding, NaN; bounded on random data."""
    of, family = variant(name), stencil("portable")
    config = family.default(of, live.spec)
    certify(live, live.compile(family.source(config, of, live.dialect)), family, config, of)


@pytest.mark.parametrize("name", ["eNT", "fTN"])
def test_asynchronous_copies_of_pairs(cuda: LiveDevice, name: str) -> None:
    """The whole contract by one block for a tile, every bit by clusters that split k."""
    of, family = variant(name), SimtAsync()
    if not family.suits(cuda.spec):
        pytest.skip(f"{cuda} does not copy asynchronously")
    space = family.space(of, cuda.spec)
    starts = [config for config in family.starts(of, cuda.spec) if config in space]
    for check, split in ((certify, 1), (screen, 2)):
        for config in [c for c in starts if c.integer("cluster_k") == split][:1]:
            kernel = cuda.compile(family.source(config, of, cuda.dialect))
            check(cuda, kernel, family, config, of)


sizes = st.integers(1, 90)


@pytest.mark.parametrize(("accuracy", "trans"), [("accurate", "NN"), ("fast", "TT")])
@settings(max_examples=40)
@given(m=sizes, n=sizes, k=sizes, seed=st.integers(0, 99))
def test_integers_are_bit_exact(
    accuracy: str, trans: str, m: int, n: int, k: int, seed: int
) -> None:
    """A of 80 bits, B of 15: sums fit 106 bits, so there is one right pair."""
    rng = np.random.default_rng(seed)
    x, y = wide(rng, (m, k), 80), rng.integers(-(2**14), 2**14, (k, n)).astype(object)
    a, b = (tw.DoubleDouble(v.T if trans == "TT" else v) for v in (x, y))
    found = tw.gemm(a, b, trans_a=trans[0], trans_b=trans[1], accuracy=accuracy, device=fastest())
    assert (found == tw.DoubleDouble(x @ y)).all()


@pytest.mark.parametrize("phi", [0, 0.5, 1, 2, 4])
@pytest.mark.parametrize("accuracy", ["accurate", "fast"])
def test_eta_is_small_whatever_the_spread(accuracy: str, phi: float) -> None:
    """At k = 4096: what is proven, and what is asked for of the default for phi up to 2."""
    rng = np.random.default_rng(5)
    a, b = (tw.DoubleDouble(random(rng, s, E, phi)) for s in ((48, 4096), (4096, 40)))
    options: dict[str, Any] = {"trans_a": "T", "trans_b": "T"} if accuracy == "fast" else {}
    if options:
        given_a, given_b = a.T.copy(), b.T.copy()
    else:
        given_a, given_b = a, b
    eta = eta_of(tw.gemm(given_a, given_b, accuracy=accuracy, device=fastest(), **options), a, b)
    assert 0 < eta <= (4 if accuracy == "accurate" else 32) * 4098 * 2.0**-106
    if phi <= 2:
        assert eta <= (2.0**-100 if accuracy == "accurate" else 2.0**-98)


def test_cancellation_keeps_the_digits_that_are_left() -> None:
    """[X, -X (1 + d)] [Y; Y] = -d X Y: most digits cancel, and d of 2^-60 remains."""
    rng = np.random.default_rng(6)
    x, y = (tw.DoubleDouble(random(rng, (40, 40), E)) for _ in range(2))
    left = -(x * tw.DoubleDouble(1.0, 2.0**-60))
    a = tw.DoubleDouble.of_words(np.concatenate([x.words, left.words], axis=1))
    b = tw.DoubleDouble.of_words(np.concatenate([y.words, y.words], axis=0))
    c = tw.gemm(a, b, device=fastest())
    assert eta_of(c, a, b) <= 2.0**-100
    right = (x.hi @ y.hi) * -(2.0**-60)
    assert np.abs(c.hi - right).max() < 1e-9 * np.abs(right).max()


@pytest.mark.parametrize(("accuracy", "trans"), [("accurate", "N"), ("fast", "T")])
def test_inf_and_nan_are_those_of_a_plain_loop(accuracy: str, trans: str) -> None:
    a, b = spoilt(70, 70, 70)
    x, y = (tw.DoubleDouble(v.T if trans == "T" else v) for v in (a, b))
    c = tw.gemm(x, y, trans_a=trans, trans_b=trans, accuracy=accuracy, device=fastest())
    right = plain(a, b)
    np.testing.assert_array_equal(c.hi, right)
    assert (c.lo[~np.isfinite(right)] == 0).all()
    assert np.isinf(right).sum() > 60
    assert np.isnan(right).sum() > 60


@pytest.mark.parametrize("accuracy", ["accurate", "fast"])
def test_large_ones_from_the_host_are_copied_whole(cuda: LiveDevice, accuracy: str) -> None:
    """48 MiB, where other precisions go over the bus in pieces; integers keep every bit."""
    rng = np.random.default_rng(11)
    high, low = (rng.integers(-(2**39), 2**39, (1024, 1024)).astype(float) for _ in range(2))
    a = tw.DoubleDouble(high * 2.0**41, low)
    scale = np.repeat([1.0, 2.0], 512)
    c = tw.gemm(a, tw.DoubleDouble(np.diag(scale)), accuracy=accuracy, device=cuda)
    assert (c == a * tw.DoubleDouble(scale)).all()


def test_cupys_words_are_multiplied_where_they_are(cuda: LiveDevice) -> None:
    pytest.importorskip("cupy")
    rng = np.random.default_rng(8)
    for row in (E, W):
        a, b = (tw.DoubleDouble(random(rng, s, row)) for s in ((33, 70), (70, 41)))
        there = tw.gemm(a.on_cuda(), b.on_cuda(), alpha=2)
        assert type(there.words).__module__.startswith("cupy")
        assert (there.on_host() == tw.gemm(a, b, alpha=2, device=cuda)).all()
        more = (there + there * 0.5 - there / 3).T[1:, ::2].on_host()
        once = there.on_host()
        right = (once + once * 0.5 - once / 3).T[1:, ::2]
        assert (abs(more - right) <= abs(right) * 1e-30).all()


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("accuracy", ["ieee", "fast"])
def test_calls_like_one_made_before_are_started_by_the_core(
    cuda: LiveDevice, is_complex: bool, accuracy: str
) -> None:
    """Whatever the accuracy, with other numbers and scalars at other addresses."""
    from tilewright.serve import warm

    pytest.importorskip("cupy", exc_type=ImportError)
    started, again = [], None

    def noted(*given):
        made = again(*given)
        started.append(made is not None)
        return made

    rng = np.random.default_rng(3)

    def drawn():
        x = rng.standard_normal((70, 70))
        return tw.DoubleDouble(x + 1j * rng.standard_normal((70, 70)) if is_complex else x) / 3

    with pytest.MonkeyPatch.context() as patch:
        for number in range(4):
            a, b = drawn(), drawn()
            there = [x.on_cuda() for x in (a, b, b)]
            made = [tw.gemm(*there[:2], accuracy=accuracy), tw.gemm(*there, alpha=3, beta=-1,
                    accuracy=accuracy), tw.herk(there[0], accuracy=accuracy)]  # fmt: skip
            assert made[1] is there[2]
            right = [
                tw.gemm(a, b, accuracy=accuracy, device=cuda),
                tw.gemm(a, b, b.copy(), alpha=3, beta=-1, accuracy=accuracy, device=cuda),
                tw.herk(a, accuracy=accuracy, device=cuda),
            ]
            for x, y in zip(made, right, strict=True):
                assert type(x) is tw.DoubleDouble
                assert (x.on_host() == y).all()
            if not number:
                again = warm.again  # now that the core knows them
                patch.setattr(warm, "again", noted)
                patch.setitem(warm.looks, tw.DoubleDouble, noted)
    assert started.count(True) == started.count(False) == 9  # the host's are not known
