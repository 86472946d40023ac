"""The numerics contract of gemm(), as properties: any precision, shape, stride and scalar.

The oracle is a product in a wider format; the error is judged componentwise against
|alpha||A||B| + |beta||C|, with the bound that holds for any order of summation.
"""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tests.portfolio.examples import forget
from tilewright.backend import devices
from tilewright.precision import PRECISIONS
from tilewright.serve import host_blas, warm
from tilewright.tuning.verify import error_bound

DEVICES = [d.id for d in devices()]
# Kernels compile on first use; hypothesis must not take that for a slow test.
relaxed = settings(max_examples=120)

sizes = st.integers(0, 200)
letters = st.sampled_from("NTC")
layouts = st.sampled_from(["row", "column", "padded rows", "padded columns", "strided", "reversed"])
scalars = st.sampled_from([0, 1, -1, 0.5, 2 - 1j])


@pytest.fixture(autouse=True, params=["kernels", "host BLAS"])
def served(request, monkeypatch):
    """The contract is one, whoever serves on a CPU."""
    monkeypatch.setattr(host_blas, "_serves", request.param == "host BLAS")


by_kernels = pytest.mark.parametrize("served", ["kernels"], indirect=True)


@pytest.fixture
def live(everywhere):
    """NumPy arrays are for every device, whatever its backend."""
    return everywhere


def draw_matrix(rng, shape, dtype):
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def laid_out(values, layout):
    """Return an array equal to `values` whose memory is laid out as named."""
    m, n = values.shape
    if layout == "row":
        return np.array(values, order="C")
    if layout == "column":
        return np.array(values, order="F")
    whole = np.full((2 * m + 3, 2 * n + 5), np.nan, values.dtype)
    if layout == "padded rows":
        view = whole[1 : m + 1, 2 : n + 2]
    elif layout == "padded columns":
        view = np.asfortranarray(whole)[1 : m + 1, 2 : n + 2]
    elif layout == "strided":
        view = whole[: 2 * m : 2, : 2 * n : 2]
    else:
        view = whole[:m, :n][::-1, ::-1]
    view[...] = values
    return view


def op(letter, x):
    return {"N": x, "T": x.T, "C": x.conj().T}[letter]


def wide(x):
    return x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble)


@relaxed
@given(
    letter=st.sampled_from(list(PRECISIONS)),
    m=sizes,
    n=sizes,
    k=sizes,
    trans=st.tuples(letters, letters),
    layout=st.tuples(layouts, layouts, layouts),
    alpha=scalars,
    beta=scalars,
    device=st.sampled_from(DEVICES),
    seed=st.integers(0, 2**32 - 1),
)
def test_gemm_is_blas(letter, m, n, k, trans, layout, alpha, beta, device, seed):
    precision = PRECISIONS[letter]
    if not precision.is_complex:
        alpha, beta = complex(alpha).real, complex(beta).real
    rng = np.random.default_rng(seed)
    a = draw_matrix(rng, (m, k) if trans[0] == "N" else (k, m), precision.dtype)
    b = draw_matrix(rng, (k, n) if trans[1] == "N" else (n, k), precision.dtype)
    old = draw_matrix(rng, (m, n), precision.dtype)
    if beta == 0:
        old[...] = np.nan  # beta = 0 must not read C
    c = laid_out(old, layout[2])

    given_a, given_b = laid_out(a, layout[0]), laid_out(b, layout[1])
    result = tw.gemm(
        given_a,
        given_b,
        c,
        alpha=alpha,
        beta=beta,
        trans_a=trans[0],
        trans_b=trans[1],
        device=device,
    )

    assert result is c
    assert np.array_equal(given_a, a)  # inputs are left alone
    assert np.array_equal(given_b, b)
    x, y = wide(op(trans[0], a)), wide(op(trans[1], b))
    right = alpha * (x @ y)
    size = abs(alpha) * (np.abs(x) @ np.abs(y))
    if beta != 0:
        right = right + beta * wide(old)
        size = size + abs(beta) * np.abs(wide(old))
    # k + 4: two scalings and one addition after the sum; 2: a complex scalar is two terms.
    bound = 2 * error_bound(k + 4, precision.unit_roundoff, precision.is_complex)
    assert np.all(np.abs(result - right) <= bound * size)


@relaxed
@given(
    letter=st.sampled_from("sdcz"),
    m=st.integers(1, 60),
    n=st.integers(1, 60),
    k=st.integers(1, 60),
    trans=st.tuples(st.sampled_from("NT"), st.sampled_from("NT")),
    spoilers=st.lists(
        st.tuples(
            st.booleans(),
            st.floats(0, 1, exclude_max=True),
            st.floats(0, 1, exclude_max=True),
            st.sampled_from([np.nan, np.inf, -np.inf]),
        ),
        max_size=4,
    ),
    alpha=st.sampled_from([1, -2]),
    seed=st.integers(0, 2**32 - 1),
)
def test_nan_and_inf_propagate_as_in_a_plain_loop(letter, m, n, k, trans, spoilers, alpha, seed):
    dtype = PRECISIONS[letter].dtype
    rng = np.random.default_rng(seed)
    a = draw_matrix(rng, (m, k) if trans[0] == "N" else (k, m), dtype)
    b = draw_matrix(rng, (k, n) if trans[1] == "N" else (n, k), dtype)
    for in_a, row, column, value in spoilers:
        x = a if in_a else b
        x[int(row * x.shape[0]), int(column * x.shape[1])] = value
    with np.errstate(invalid="ignore"):
        loop = np.zeros((m, n), wide(a).dtype)
        for at in range(k):
            loop += np.outer(wide(op(trans[0], a))[:, at], wide(op(trans[1], b))[at])
    with np.errstate(all="raise"):  # the caller's settings are for the caller's arithmetic
        got = tw.gemm(a, b, alpha=alpha, trans_a=trans[0], trans_b=trans[1])
    for mine, right in ((got.real, alpha * loop.real), (got.imag, alpha * loop.imag)):
        finite = np.isfinite(right)
        assert np.array_equal(np.isfinite(mine), finite)
        assert np.array_equal(mine[~finite], right[~finite].astype(mine.dtype), equal_nan=True)


@pytest.mark.parametrize("letter", list(PRECISIONS))
def test_alpha_zero_reads_neither_input(live, letter):
    dtype = PRECISIONS[letter].dtype
    a = np.full((30, 20), np.nan, dtype)
    c = np.ones((30, 30), dtype)
    tw.gemm(a, a, c, alpha=0, beta=3, trans_b="T", device=live)
    assert np.array_equal(c, np.full((30, 30), 3, dtype))


def test_empty_sum_still_scales_c(live):
    c = np.full((5, 7), 2, np.float32)
    tw.gemm(np.empty((5, 0), "f4"), np.empty((0, 7), "f4"), c, beta=0.5, device=live)
    assert np.array_equal(c, np.ones((5, 7), "f4"))


def test_beta_one_with_nothing_to_add_changes_no_bit(live):
    c = np.array([[-0.0, np.inf], [np.nan, 1e-45]], np.float32)
    before = c.tobytes()
    tw.gemm(np.empty((2, 0), "f4"), np.empty((0, 2), "f4"), c, beta=1, device=live)
    assert c.tobytes() == before


def test_an_imaginary_part_of_zero_makes_no_nan(live):
    b = np.array([[complex(1, 1)]], np.complex64)
    c = np.array([[complex(np.inf, 1)]], np.complex64)
    got = tw.gemm(b, b, c, alpha=2, beta=1, device=live)  # (1 + i)^2 = 2i
    assert got[0, 0].real == np.inf
    assert got[0, 0].imag == 5


def test_blocks_of_one_matrix_may_meet_but_not_overlap(live):
    rng = np.random.default_rng(0)
    whole = rng.standard_normal((90, 80))
    right = whole.copy()
    right[40:, 30:] -= right[40:, :30] @ right[10:40, 30:]
    tw.gemm(whole[40:, :30], whole[10:40, 30:], whole[40:, 30:], alpha=-1, beta=1, device=live)
    assert np.allclose(whole, right, rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="c overlaps a"):
        tw.gemm(whole[:40, :40], whole[:40, :40].copy(), whole[30:70, 30:70], device=live)


def test_equal_data_give_equal_bits(live):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 150, 150)).astype("f4")
    first = tw.gemm(a, b, device=live)
    for _ in range(5):
        assert np.array_equal(tw.gemm(a, b, device=live), first)


def test_result_is_new_and_row_major_beside_its_inputs(live):
    a = np.ones((3, 4), "c8")
    got = tw.gemm(a, a, trans_b="C", device=live)
    assert got.dtype == np.complex64
    assert got.flags.c_contiguous
    assert np.array_equal(got, np.full((3, 3), 4))


def test_read_only_inputs_are_fine(live):
    a = np.eye(5, dtype="f4")
    a.flags.writeable = False
    assert np.array_equal(tw.gemm(a, a, device=live), a)


WRONG = [
    ({"a": np.ones(3, "f4")}, "a.shape"),
    ({"b": np.ones((4, 3), "f4")}, "inner sizes"),
    ({"b": np.ones((3, 3), "f8")}, "b.dtype=float64 but a.dtype=float32"),
    ({"a": np.ones((3, 3), int), "b": np.ones((3, 3), int)}, "a.dtype=int64"),
    ({"c": np.ones((2, 3), "f4")}, "c.shape"),
    ({"beta": 1}, "beta=1 needs c"),
    ({"alpha": 1j}, "alpha"),
    ({"alpha": "two"}, "alpha"),
    ({"trans_a": "X"}, "trans_a='X'"),
    ({"trans_b": "R"}, "trans_b='R'"),
    ({"accuracy": "fast"}, "accuracy='fast'"),
    ({"device": "abacus"}, "device='abacus'"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG, ids=[m for _, m in WRONG])
def test_a_wrong_argument_is_named(changes, message):
    arguments = {"a": np.ones((3, 3), "f4"), "b": np.ones((3, 3), "f4"), **changes}
    with pytest.raises(ValueError, match=message.replace("(", r"\(")) as caught:
        tw.gemm(arguments.pop("a"), arguments.pop("b"), arguments.pop("c", None), **arguments)
    assert "\n" not in str(caught.value)


def test_read_only_c_is_refused():
    c = np.zeros((3, 3), "f4")
    c.flags.writeable = False
    with pytest.raises(ValueError, match="c is read-only"):
        tw.gemm(np.eye(3, dtype="f4"), np.eye(3, dtype="f4"), c)


def test_mixed_kinds_are_refused():
    with pytest.raises(TypeError, match="list"):
        tw.gemm([[1.0]], np.ones((1, 1)))


@by_kernels
@pytest.mark.parametrize("trans", ["NN", "TN", "NT", "TT"])
def test_operands_longer_than_a_buffer_may_be_are_cut(monkeypatch, trans):
    """Devices limit one buffer (PoCL to a fraction of the memory): a slice may span more."""
    live = devices()[-1]
    monkeypatch.setattr(live, "max_allocation", 20_000)
    rng = np.random.default_rng(0)
    whole = rng.standard_normal((300, 400))
    a = whole[:90, 3:40] if trans[0] == "N" else whole[:37, 5:95]
    b = whole[200:237, :70] if trans[1] == "N" else whole[200:270, 10:47]
    c = whole[100:190, 100:170].copy()
    right = 2 * op(trans[0], a) @ op(trans[1], b) + 3 * c
    tw.gemm(a, b, c, alpha=2, beta=3, trans_a=trans[0], trans_b=trans[1], device=live)
    assert np.allclose(c, right, rtol=1e-12, atol=1e-10)


def test_masked_arrays_are_refused():
    a = np.ma.masked_array(np.ones((2, 2)), mask=[[True, False], [False, False]])
    with pytest.raises(TypeError, match="filled"):
        tw.gemm(a, a)


@pytest.mark.parametrize("side", [10**7, 2**31])
def test_a_result_without_room_is_refused_in_one_line(side):
    """2^64 bytes and more are an error of another kind to NumPy."""
    one = np.broadcast_to(np.float32(1), (side, 1))
    wanted = rf"^c would be {side} x {side} of float32, \d+ GiB,.*; give c, .*$"
    with pytest.raises(MemoryError, match=wanted):
        tw.gemm(one, one.T)
    with pytest.raises(MemoryError, match=wanted):
        tw.gemm(one, one.T, alpha=2)
    with pytest.raises(MemoryError, match=wanted):
        tw.syrk(one)


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_a_result_without_room_of_short_arrays_is_refused_in_one_line(dtype):
    one = np.broadcast_to(np.dtype(dtype).type(1), (10**7, 1))
    with pytest.raises(MemoryError, match=rf"^a\.dtype={dtype} is multiplied in float32 here, "):
        tw.gemm(one, one.T)


def test_a_c_that_overlaps_itself_is_refused():
    c = np.lib.stride_tricks.as_strided(np.zeros(3), (3, 3), (0, 8))
    with pytest.raises(ValueError, match="overlap themselves"):
        tw.gemm(np.eye(3), np.eye(3), c)


def test_no_place_for_files_is_no_obstacle(monkeypatch, tmp_path):
    """A default needs no portfolio: what was tuned is only not used, and that is said."""
    forget()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_DATA_DIR", str(tmp_path / "file"))
    tw.reload()
    with pytest.warns(RuntimeWarning, match="tuned kernels are not used"):
        got = tw.gemm(np.eye(3), np.eye(3))
    assert np.array_equal(got, np.eye(3))
    forget()


FORKED = """
import os, sys
import numpy as np
import tilewright as tw
tw.gemm(np.eye(3), np.eye(3), device=sys.argv[1])
child = os.fork()
if child == 0:
    try:
        tw.gemm(np.eye(3), np.eye(3), device=sys.argv[1])
    except BaseException as error:
        os.write(1, str(error).encode())
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_forked_child_is_told_what_to_do(cpu):
    """In a process of its own: a child of one with many threads may wait for locks of theirs."""
    ran = subprocess.run(
        [sys.executable, "-c", FORKED, cpu.id], capture_output=True, text=True, timeout=100,
        env={**os.environ, "TILEWRIGHT_HOST_BLAS": "0"},
    )  # fmt: skip
    assert "spawn" in ran.stdout, ran.stderr


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("value", [1e300, -1e39, 10**400])
def test_a_scalar_that_the_arrays_cannot_hold_is_named(name, value):
    ones = np.ones((2, 2), np.float32)
    with pytest.raises(ValueError, match=f"{name}=.*(beyond float32|not a number)"):
        tw.gemm(ones, ones, ones.copy(), **{name: value})
    infinite = tw.gemm(ones, ones, ones.copy(), **{name: np.inf})
    assert np.isinf(infinite).all()


@pytest.mark.parametrize("value", [10**400, -(10**5000)], ids=["long", "unprintable"])
def test_an_integer_beyond_any_type_is_told_in_a_short_line(value):
    ones = np.ones((2, 2), np.float32)
    with pytest.raises(ValueError, match=r"alpha=.* is beyond float32") as refused:
        tw.gemm(ones, ones, alpha=value)
    assert len(str(refused.value)) < 120


def test_lists_are_told_how_to_become_arrays():
    with pytest.raises(TypeError, match=r"b is a list; give np\.asarray\(b\)"):
        tw.gemm(np.eye(2), [[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(TypeError, match=r"c is a list; give an array to write to"):
        tw.gemm(np.eye(1), np.eye(1), [[0.0]])
    with pytest.raises(TypeError, match=r"a is builtins\.str, b is numpy\.ndarray; give NumPy"):
        tw.gemm("a", np.eye(1))
    with pytest.raises(TypeError, match=r"a is a list; give np\.asarray\(a\)"):
        tw.lu_factor([[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize("letter", ["f2", "f4", "c16"])
def test_byte_swapped_arrays_are_named(letter):
    swapped = np.eye(2, dtype=letter).astype(np.dtype(letter).newbyteorder("S"))
    native = swapped.dtype.newbyteorder("=").name
    with pytest.raises(ValueError, match=rf"a\.dtype=.* byte-swapped; .*astype\('{native}'\)"):
        tw.gemm(swapped, swapped)
    if letter != "f2":
        with pytest.raises(ValueError, match=r"b\.dtype=.* byte-swapped"):
            tw.gemm(np.eye(2, dtype=letter), swapped)
        with pytest.raises(ValueError, match=rf"c\.dtype=.*-swapped; give an array of {native}"):
            tw.gemm(np.eye(2, dtype=letter), np.eye(2, dtype=letter), swapped)
        with pytest.raises(ValueError, match=r"a\.dtype=.* byte-swapped"):
            tw.lu_factor(swapped)


def test_types_that_are_served_are_named():
    with pytest.raises(ValueError, match=r"a\.dtype=int16 .*complex128, or to float16"):
        tw.gemm(np.ones((2, 2), np.int16), np.ones((2, 2), np.int16))


def test_a_product_of_nothing_and_text_for_numbers_are_refused():
    a = np.ones((2, 2))
    for arguments in ((a, None), (None, a), (None, None), (a.astype("f2"), None)):
        with pytest.raises(TypeError, match=r"[ab] is None; give an array"):
            tw.gemm(*arguments)
    for scalar in ({"alpha": "0"}, {"beta": "2"}):
        with pytest.raises(ValueError, match="is text; give a number"):
            tw.gemm(a, a, a.copy(), **scalar)
        with pytest.raises(ValueError, match="is text; give a number"):
            tw.gemm(a.astype("f2"), a.astype("f2"), a.astype("f4"), **scalar)


def test_what_is_interrupted_writes_no_memory_afterwards(cpu, monkeypatch):
    """Ctrl-C comes between a launch and its end: the caller may give the arrays back at once."""

    def interrupted(*_):
        raise KeyboardInterrupt

    n = 400
    a, b = np.full((n, n), 2.0), np.full((n, n), 3.0)
    with host_blas.left_out(), monkeypatch.context() as patch:
        tw.gemm(a, b, device=cpu)  # compiled
        patch.setattr(type(cpu), "unwrap", interrupted)
        for _ in range(2):
            c = np.zeros((n, n))
            with pytest.raises(KeyboardInterrupt):
                tw.gemm(a, b, c, device=cpu)
            assert (c == 6 * n).all()


@pytest.mark.parametrize("accuracy", ["L0:ieee", "fp64:1048576"])
def test_names_by_which_other_calls_are_known_are_no_accuracies(monkeypatch, accuracy):
    monkeypatch.setitem(warm.looks, np.ndarray, lambda *_: "what another call computed")
    a = np.ones((3, 3))
    with pytest.raises(ValueError, match=f"accuracy='{accuracy}'"):
        tw.gemm(a, a, accuracy=accuracy)


@pytest.mark.parametrize("letter", "sdz")
@pytest.mark.parametrize("scalar", [Decimal("1e400"), np.longdouble("1e400"), Decimal("-1e999")])
def test_scalars_that_only_longer_formats_have_are_refused(letter, scalar):
    a = np.eye(2, dtype=PRECISIONS[letter].dtype)
    for name in ("alpha", "beta"):
        with pytest.raises(ValueError, match=f"{name}=.* is beyond {PRECISIONS[letter].real_name}"):
            tw.gemm(a, a, a.copy(), **{name: scalar})


@pytest.mark.parametrize("scalar", [np.inf, np.float32(np.inf), Decimal("Infinity"), -np.inf])
def test_infinite_scalars_are_numbers(scalar):
    a = np.ones((2, 2), "f4")
    assert (tw.gemm(a, a, alpha=scalar) == float(scalar)).all()
