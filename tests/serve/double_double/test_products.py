"""Products of double-double matrices: every stencil, transpose and spread, against exact ones."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tests.double_double.exactly import eta_by_balls, integer_matrix, nearest
from tests.double_double.oracle import eta_of, plain, wide
from tests.serve.double_double.variants import MIXED, PLAIN, variant
from tilewright.backend import Kernel, LiveDevice, devices
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.double_double import error_of_product, random
from tilewright.precision import DOUBLE_DOUBLE, precision
from tilewright.problem import Trans, transposes_of
from tilewright.space import Config
from tilewright.stencil import Stencil, Variant, stencil
from tilewright.tuning.matrices import Matrix
from tilewright.tuning.verify import Bench, Check, certify, error_bound, screen

E, W = DOUBLE_DOUBLE["e"], DOUBLE_DOUBLE["w"]
PHIS = (0, 0.5, 1, 2, 4)


@cache
def live() -> LiveDevice:
    """Return a CPU: GPUs have tests of their own, and the packed stencil is for CPUs."""
    return next(d for d in devices() if d.spec.kind == "cpu")


@cache
def compiled(config: Config | None, name: str) -> tuple[LiveDevice, Kernel, Stencil, Config, Any]:
    """Return what checks take: the packed stencil's default where no config is given."""
    family, of = stencil("portable" if config else "packed"), variant(name)
    chosen = config or family.default(of, live().spec)
    kernel = live().compile(family.source(chosen, of, "opencl"))
    return live(), kernel, family, chosen, of


@pytest.mark.every(4)
@pytest.mark.parametrize("name", ["eNN", "eTN", "fNT", "fTT"])
def test_packed_kernels_keep_the_whole_contract(name):
    """Bit for bit on integers of 82 bits, scalars, padding, NaN; bounded on random data."""
    assert 0 < certify(*compiled(None, name)) < error_bound(100, 2.0**-103, False)


@pytest.mark.every(4)
@pytest.mark.parametrize(("config", "name"), [(PLAIN, "eTN"), (MIXED, "fNT"), (PLAIN, "wCN")])
def test_portable_kernels_keep_the_whole_contract(config, name):
    certify(*compiled(config, name))


def test_blocks_of_pairs_have_sides_of_their_own():
    """Sides that are no multiples of 16: every bit is right, and only pairs have them."""
    config = PLAIN.replace(block_m=24, block_n=40)
    screen(*compiled(config, "fTT"))
    device = architecture_spec("sm_90a")
    with_sides = [c for c in stencil("portable").starts(variant("eNN"), device)
                  if c.integer("block_m") % 16 or c.integer("block_n") % 16]  # fmt: skip
    assert with_sides
    for letter, known in (("e", True), ("d", False)):
        space = stencil("portable").space(Variant(precision(letter), Trans.N, Trans.N), device)
        assert all((c in space) is known for c in with_sides)


@pytest.mark.every(8)
@pytest.mark.parametrize("letter", list(DOUBLE_DOUBLE))
def test_every_transpose_is_right(letter):
    for a, b in transposes_of(DOUBLE_DOUBLE[letter]):
        screen(*compiled(PLAIN, f"{letter}{a}{b}"))
        if letter in "ef":
            screen(*compiled(None, f"{letter}{a}{b}"))


def unrolled(config: Config) -> int:
    """Return what the time to compile a config grows with on a CPU."""
    if config.stencil == "packed":
        return config.integer("micro_vectors") * config.integer("micro_n")
    threads = config.integer("threads_m") * config.integer("threads_n")
    tile = config.integer("block_m") * config.integer("block_n") // threads
    return tile * config.integer("unroll_k")


@pytest.mark.every(8)
@pytest.mark.parametrize("letter", ["e", "f"])
@pytest.mark.parametrize("family", ["packed", "portable"])
def test_drawn_configs_are_right(family, letter):
    of = variant(f"{letter}NT")
    chosen = stencil(family)
    drawn = chosen.space(of, live().spec).sample(100, seed=3)
    for config in sorted(drawn, key=unrolled)[:3]:
        kernel = live().compile(chosen.source(config, of, "opencl"))
        screen(live(), kernel, chosen, config, of)


sizes = st.integers(1, 40)


@pytest.mark.parametrize("accuracy", ["accurate", "fast"])
@settings(max_examples=60)
@given(m=sizes, n=sizes, k=sizes, a=st.sampled_from("NT"), b=st.sampled_from("NT"),
       seed=st.integers(0, 99))  # fmt: skip
def test_integers_are_bit_exact(accuracy, m, n, k, a, b, seed):
    """A of 80 bits, B of 20: sums fit 106 bits, so the product is FLINT's to the last bit."""
    rng = np.random.default_rng(seed)
    x, y = (
        tw.DoubleDouble(wide(rng, (m, k), 80)),
        tw.DoubleDouble(rng.integers(-(2**14), 2**14, (k, n))),
    )
    right = nearest(integer_matrix(x) * integer_matrix(y))
    left, other = (x if a == "N" else x.T.copy()), (y if b == "N" else y.T.copy())
    found = tw.gemm(left, other, trans_a=a, trans_b=b, accuracy=accuracy, device="opencl")
    assert (found == right).all()


@pytest.mark.parametrize("phi", PHIS)
@pytest.mark.parametrize("accuracy", ["accurate", "fast"])
def test_eta_is_small_whatever_the_spread(accuracy, phi):
    rng = np.random.default_rng(4)
    a, b = (tw.DoubleDouble(random(rng, s, E, phi)) for s in ((30, 200), (200, 25)))
    c = tw.gemm(a, b, accuracy=accuracy, device="opencl")
    eta = eta_by_balls(c, a, b)
    steps = 4 if accuracy == "accurate" else 32
    assert eta <= steps * 202 * 2.0**-106  # proven
    assert eta <= 2.0**-100  # asked for
    assert eta == pytest.approx(eta_of(c, a, b), rel=1e-3)  # two oracles agree


@pytest.mark.parametrize("phi", [0, 0.5, 1, 2])
@pytest.mark.parametrize("accuracy", ["accurate", "fast"])
def test_the_contract_at_k_4096(accuracy, phi):
    """2^-100 in eta, for numbers of one exponent and of many."""
    rng = np.random.default_rng(5)
    a, b = (tw.DoubleDouble(random(rng, s, E, phi)) for s in ((48, 4096), (4096, 40)))
    assert eta_of(tw.gemm(a, b, accuracy=accuracy, device="opencl"), a, b) <= 2.0**-100


@pytest.mark.every(4)
@pytest.mark.parametrize(("k", "phi"), [(16384, 4), (16384, 2), (1024, 4)])
@pytest.mark.parametrize("letter", ["e", "f"])
def test_errors_of_one_chain_grow_with_the_root_of_k(letter, k, phi):
    """Some elements of a long product, summed as GPU kernels sum, against exact sums."""
    rng = np.random.default_rng(11)
    a, b = (random(rng, s, E, phi) for s in ((32, k), (k, 32)))
    c = Matrix.result(np.zeros((32, 32), E.dtype))
    bench = Bench(*compiled(PLAIN, f"{letter}NN"))
    got = c.view(bench.run(Check(32, 32, k), Matrix.place(a), Matrix.place(b), c))
    error, size = error_of_product(np.ascontiguousarray(got), a, b)
    eta = np.max(np.abs(error) / size)
    assert 2.0**-106 < eta <= (1 if letter == "e" else 4) * 2.0**-100 * math.sqrt(k / 1024)


@pytest.mark.parametrize("accuracy", ["accurate", "fast"])
def test_cancellation_keeps_the_digits_that_are_left(accuracy):
    """[X, -X (1 + d)] [Y; Y] = -d X Y: most digits cancel, and d of 2^-60 remains."""
    rng = np.random.default_rng(6)
    x, y = (tw.DoubleDouble(random(rng, (20, 20), E)) for _ in range(2))
    a = tw.DoubleDouble.of_words(
        np.concatenate([x.words, (-(x * tw.DoubleDouble(1.0, 2.0**-60))).words], axis=1)
    )
    b = tw.DoubleDouble.of_words(np.concatenate([y.words, y.words], axis=0))
    c = tw.gemm(a, b, accuracy=accuracy, device="opencl")
    assert eta_by_balls(c, a, b) <= 2.0**-100
    right = (x.hi @ y.hi) * -(2.0**-60)
    assert np.abs(c.hi - right).max() < 1e-9 * np.abs(right).max()


@pytest.mark.parametrize("config", [None, PLAIN, MIXED], ids=["packed", "plain", "mixed"])
@pytest.mark.parametrize("letter", ["e", "f"])
def test_inf_and_nan_are_those_of_a_plain_loop(config, letter):
    """And so is overflow; sums beside them keep all their digits."""
    where = compiled(config, f"{letter}NN")
    rng = np.random.default_rng(7)
    a, b = rng.integers(1, 9, (21, 70)) * 1.0, rng.integers(1, 9, (70, 19)) * 1.0
    a[3, 5], a[4, 60], b[7, 2], b[66, 3], a[9, 0], a[9, 69] = (
        np.inf,
        -np.inf,
        np.nan,
        0,
        1e308,
        1e308,
    )
    a[4, 66] = np.inf
    b[7, 4], a[11, 7] = np.inf, 0
    a[9, 1:69] = 0
    right = plain(a, b)
    bench = Bench(*where)

    def laid(x: np.ndarray) -> Matrix:
        return Matrix.place(tw.DoubleDouble(x).words.view(E.dtype)[..., 0])

    c = Matrix.result(np.zeros((21, 19), E.dtype))
    got = c.view(bench.run(Check(21, 19, 70), laid(a), laid(b), c))
    np.testing.assert_array_equal(got["hi"], right)
    assert (got["lo"][~np.isfinite(right)] == 0).all()
    assert np.isinf(right).sum() > 30
    assert np.isnan(right).sum() > 20


def test_scalars_and_c_are_double_double():
    rng = np.random.default_rng(8)
    a, b = (tw.DoubleDouble(random(rng, s, E)) for s in ((9, 7), (7, 8)))
    before = tw.DoubleDouble(random(rng, (9, 8), E))
    third, tenth = tw.DoubleDouble(1) / 3, "0.1"
    c = before.copy()
    result = tw.gemm(a, b, c, alpha=third, beta=tenth, device="opencl")
    assert result is c
    right = (a @ b) * third + before * tenth
    assert (abs(c - right) <= abs(right) * 1e-30).all()


def test_complex_products_and_their_conjugates():
    rng = np.random.default_rng(9)
    a, b = (tw.DoubleDouble(random(rng, s, W)) for s in ((6, 9), (5, 9)))
    c = tw.gemm(a, b, trans_b="C", alpha=1j, device="opencl")
    right = ((a[:, None, :] * b.conj()[None, :, :]).sum(axis=2)) * 1j
    assert (abs(c - right) <= abs(right) * 1e-29).all()
    assert c.is_complex


def test_views_are_multiplied_in_place():
    rng = np.random.default_rng(10)
    whole = tw.DoubleDouble(random(rng, (20, 20), E))
    before = whole.copy()
    c = whole[10:, :8]
    tw.gemm(whole[2:9, 10:].T, whole[2:9, 10:18], c, alpha=-1, beta=1, device="opencl")
    right = before[10:, :8] - before[2:9, 10:].T @ before[2:9, 10:18]
    assert (abs(whole[10:, :8] - right) <= 1e-30).all()
    whole[10:, :8] = before[10:, :8]
    assert (whole == before).all()


def test_pyopencl_words():
    import pyopencl as cl

    queue = cl.CommandQueue(cl.Context([live().raw]))  # type: ignore[attr-defined]
    rng = np.random.default_rng(11)
    a, b = (tw.DoubleDouble(random(rng, s, E)) for s in ((9, 7), (7, 8)))
    there = tw.gemm(a.on_opencl(queue), b.on_opencl(queue))
    assert (there.on_host() == a @ b).all()
    with pytest.raises(TypeError, match="bring it to the host"):
        _ = there + 1


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"accuracy": "ham"}, ValueError, "accuracy='ham' is unknown for double-double"),
        ({"alpha": "ham"}, ValueError, "alpha: 'ham' is not a real number"),
        ({"alpha": 1j}, ValueError, "complex but the arrays are real"),
        ({"alpha": [1, 2]}, ValueError, r"alpha has shape \(2,\)"),
        ({"b": np.zeros((3, 3))}, TypeError, "b is a ndarray, and others are DoubleDouble"),
        ({"b": tw.DoubleDouble(np.zeros((3, 3)) * 1j)}, ValueError, "a is real but b is complex"),
        ({"b": tw.DoubleDouble(np.zeros((4, 3)))}, ValueError, "does not fit"),
    ],
)
def test_wrong_arguments_are_named(change, error, message):
    x = tw.DoubleDouble(np.eye(3))
    with pytest.raises(error, match=message):
        tw.gemm(**({"a": x, "b": x} | change))


def test_other_arrays_have_one_accuracy():
    with pytest.raises(ValueError, match="accuracy='fast' is unknown for DGEMM; use one of ieee"):
        tw.gemm(np.eye(2), np.eye(2), accuracy="fast")


@pytest.mark.thorough
def test_tuning_finds_a_config_that_gemm_then_uses(data):
    result = tw.tune(tw.Problem(64, 64, 64, "f"), device="opencl", budget="4s")
    assert result.winner.ok
    assert 0 < result.winner.error < 2.0**-100
    a = tw.DoubleDouble(np.eye(64))
    assert (tw.gemm(a, a, accuracy="fast", device="opencl") == a).all()


def test_scalars_beyond_double_double_are_refused_and_infinities_are_not():
    a = tw.DoubleDouble(np.eye(2))
    for value in (10**400, "1e400", Fraction(10**400), -(10**5000)):
        with pytest.raises(ValueError, match=r"alpha=.* is beyond double-double"):
            tw.gemm(a, a, alpha=value)
    for value in (np.inf, "-inf", np.array(np.nan), np.longdouble(np.inf)):
        assert not np.isfinite(tw.gemm(a, a, alpha=value).hi).all()


def test_what_is_refused_names_what_pairs_have():
    a = tw.DoubleDouble(np.eye(2))
    z = tw.DoubleDouble(np.eye(2) + 0j)
    with pytest.raises(ValueError, match=r"give DoubleDouble\(a\.hi \+ 0j, a\.lo\)"):
        tw.gemm(a, z)
    with pytest.raises(ValueError, match=r"give DoubleDouble\(b\.hi \+ 0j, b\.lo\)"):
        tw.gemm(z, a)
    assert (tw.gemm(tw.DoubleDouble(a.hi + 0j, a.lo), z) == z).all()
    with pytest.raises(ValueError, match="is for float32 to complex128 matrices in the host"):
        tw.gemm(a, a, max_device_memory=1 << 20)
    with pytest.raises(ValueError, match="of float32 to complex128, and these are DoubleDouble"):
        tw.gemm(a, a, device=[tw.device("opencl").id])
