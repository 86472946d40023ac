"""8- and 16-bit arrays on tensor cores: what is launched, where it goes, and that it is right."""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

import tilewright as tw
from tests.serve.routes.split.test_chain_on_cuda import EmulatedStream
from tests.stencil.emulator import compiler
from tilewright.backend import Kernel, LaunchError, Operand
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.portfolio import reload
from tilewright.precision import SHORT
from tilewright.serve import calls
from tilewright.serve.arrays.device import View
from tilewright.serve.laid_out import ALPHA, BETA, A, B, C
from tilewright.serve.narrow import calls as narrow_calls
from tilewright.serve.narrow import serve as narrow
from tilewright.serve.narrow.arrays import NumPyLike, TorchTensors
from tilewright.serve.narrow.products import Matrix, Product, Stored, repeated, steps
from tilewright.serve.tensor_cores import has_wgmma
from tilewright.stencil import TensorMap

H100 = replace(architecture_spec("sm_90a"), multiprocessors=132, name="H100")


# -- what the copy engine takes ----------------------------------------------------------


@pytest.mark.parametrize(
    ("matrix", "right"),
    [
        (Matrix(256, 40, 64, 64, 1), Stored(256, True, 64)),
        (Matrix(256, 40, 64, 1, 48), Stored(256, False, 48)),
        (Matrix(258, 40, 64, 67, 1), Stored(258, True, 67)),  # aligned to nothing
        (Matrix(256, 40, 64, 128, 2), None),  # every second element
        (Matrix(256, 40, 64, -64, 1), None),
        (Matrix(256, 40, 64, 0, 1), None),  # one row, again and again
        (Matrix(256, 45, 1, 1, 45), Stored(256, True, 1)),  # k = 1: either way
        (Matrix(256, 1, 45, 45, 1), Stored(256, True, 48)),
    ],
)
def test_numbers_are_taken_in_place_as_blas_does(matrix, right):
    assert matrix.stored(2) == right


# -- on emulated tensor cores ------------------------------------------------------------


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    if compiler() is None:
        pytest.skip("needs g++ or clang++")
    return EmulatedStream(tmp_path_factory.mktemp("kernels"))


def nothing_ships(monkeypatch):
    """Let defaults be compiled: machine code needs a driver."""
    for module in ("serve.kernels", "serve.routes.realigned", "portfolio.held"):
        monkeypatch.setattr(import_module(f"tilewright.{module}"), "shipped", lambda *_: None)


def entries(emulated, monkeypatch):
    """Return the list that names of launched kernels go to."""
    found, launch = [], emulated.launch
    monkeypatch.setattr(emulated, "launch", lambda k, *x: found.append(k.entry) or launch(k, *x))
    return found


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("dtype", "out", "trans", "shape", "copies"),
    [
        ("float16", None, "NN", (35, 48, 64), 0),  # ld of 64 and 48 elements
        ("float16", "float32", "TT", (40, 33, 48), 0),  # of 40 and 48
        ("bfloat16", None, "NC", (33, 31, 56), 0),
        ("int8", None, "NT", (20, 30, 64), 0),  # both along k
        ("int8", None, "TN", (32, 48, 65), 2),  # transposed
        ("float8_e4m3fn", None, "NT", (20, 30, 64), 0),
        ("float8_e5m2", "float32", "NN", (20, 30, 70), 2),
    ],
)
def test_numpy_arrays_are_multiplied_as_they_are(
    emulated, monkeypatch, dtype, out, trans, shape, copies
):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    usual = {"int8": "int32"}.get(dtype, ml_dtypes.bfloat16 if "8" in dtype else kind)
    nothing_ships(monkeypatch)
    monkeypatch.setattr(narrow, "_floats", None)  # nothing is widened
    monkeypatch.setattr(narrow, "_integers", None)
    m, n, k = shape
    rng = np.random.default_rng(3)
    x, y = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))
    a = np.array(x if trans[0] == "N" else x.T, kind, order="C")
    b = np.array(y if trans[1] == "N" else y.T, kind, order="C")
    launched = entries(emulated, monkeypatch)
    given = {"trans_a": trans[0], "trans_b": trans[1], "device": emulated}
    c = tw.gemm(a, b, out_dtype=out, alpha=2, **given)
    assert launched == ["realign"] * copies + ["gemm"]
    wanted = np.dtype(out or usual)
    assert c.dtype == wanted
    np.testing.assert_array_equal(c, (2.0 * (x @ y)).astype(wanted))
    old = rng.integers(-9, 9, (m, n)).astype(wanted)
    spaced = np.zeros((2 * m, n + 3), wanted)[::2, 1:-2]  # BLAS could not take it
    spaced[...] = old
    assert tw.gemm(a, b, spaced, alpha=-1, beta=3, **given) is spaced
    np.testing.assert_array_equal(spaced, (-1.0 * (x @ y) + 3 * old.astype(float)).astype(wanted))


def test_what_multiplies_nothing_is_not_for_tensor_cores(emulated, monkeypatch):
    monkeypatch.setattr(narrow, "on_host", None)
    a, c = np.full((4, 3), np.nan, np.float16), np.ones((4, 4), np.float16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(narrow, "_floats", lambda *x: np.full((4, 4), 7.0))
        for given in ({"alpha": 0, "beta": 2}, {"alpha": 0.0}):
            tw.gemm(a, a, c, trans_b="T", device=emulated, **given)
            assert (c == 7).all()
        tw.gemm(a[:, :0], a[:, :0], c, trans_b="T", device=emulated)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"alpha": 1j}, "alpha=1j is complex but the arrays are real"),
        ({"alpha": 1e39}, r"alpha=1e\+39 is beyond float32"),
        ({"beta": 1}, "beta=1 needs c"),
        ({"trans_a": "X"}, "trans_a='X'"),
    ],
)
def test_wrong_arguments_are_named_before_anything_is_launched(emulated, given, message):
    a = np.ones((4, 4), np.float16)
    with pytest.raises(ValueError, match=message):
        tw.gemm(a, a, device=emulated, **given)


# -- arrays on a device, acted ------------------------------------------------------------


class ActedPlan:
    """What a plan is made of, and what it was started with."""

    bytes = 0

    def __init__(self, device, steps, space, begins, repeats=()):
        self.repeats = repeats
        self.live, self.steps, self.space, self.begins = device, list(steps), space, begins
        device.plans.append(self)


class ActedDevice:
    """A Hopper GPU that runs nothing."""

    id, dialect, ordinal, portfolio_key = "cuda:0", "cuda", 0, ""
    spec = replace(H100, name="acted")

    def __init__(self):
        self.plans, self.started, self.remembered, self.compiled = [], [], [], 0

    def compile(self, source):
        self.compiled += 1
        return Kernel(None, source.entry, 0.0)

    @property
    def launched(self):
        """The names and arguments of the last plan that was started."""
        return [(kernel.entry, arguments) for kernel, _, arguments in self.started[-1][0].steps]


class Acted:
    """An array on it."""

    def __init__(self, shape, dtype, address=4096, strides=None):
        self.shape, self.dtype, self.address = shape, np.dtype(dtype), address
        size = self.dtype.itemsize
        self.strides = strides or (shape[1] * size, size)


class ActedArrays:
    """The library of such arrays."""

    def check(self, name, x):
        pass

    def steps(self, x):
        return x.strides

    def shared(self, x, y):
        return x.address == y.address

    def out_name(self, dtype):
        return str(dtype)

    def view(self, name, x):
        return View(x, x.address, x.shape, x.strides, x.dtype, 0)

    def new(self, like, shape, name):
        made = Acted(shape, name, 65536)
        return View(made, made.address, shape, made.strides, made.dtype, 0, made_here=True)

    def stream(self, ordinal):
        return 11

    def memory(self, ordinal, size):
        raise AssertionError(f"{size} bytes are asked for, which no test has")


@pytest.fixture
def acted(monkeypatch):
    live = ActedDevice()
    monkeypatch.setattr("tilewright.backend.cuda.device.device_at", lambda ordinal: live)
    monkeypatch.setattr(narrow, "arrays_of", lambda *x: ActedArrays())
    nothing_ships(monkeypatch)
    monkeypatch.setattr(narrow_calls, "Plan", ActedPlan)
    monkeypatch.setattr(calls, "_plans", OrderedDict())

    def enqueue(device, plan, native, stream, memory):
        live.started.append((plan, native, stream))

    monkeypatch.setattr(narrow_calls, "enqueue", enqueue)
    monkeypatch.setattr(narrow_calls.warm, "remember", lambda *x: live.remembered.append(x))
    return live


def maps(arguments):
    return [x for x in arguments if isinstance(x, TensorMap)]


def test_aligned_arrays_take_one_launch_on_the_callers_stream(acted):
    a, b = Acted((40, 64), "float16"), Acted((64, 48), "float16", 8192)
    c = tw.gemm(a, b, alpha=2.5)
    assert (c.shape, c.dtype) == ((40, 48), np.float16)
    [(plan, native, stream)] = acted.started
    [(entry, values)] = acted.launched
    assert (entry, stream, native.stream) == ("gemm", 11, 11)
    assert plan.space.pool_bytes == 0
    assert values[:4] == (48, 40, 64, ALPHA.real)  # a row-major result: C^T = B^T A^T
    assert [x.memory for x in maps(values)] == [A, B]
    assert (native.a, native.b, native.c) == (8192, 4096, 65536)
    assert [x.sizes[:2] for x in maps(values)] == [(48, 64), (64, 40)]
    assert [x.strides[0] for x in maps(values)] == [96, 128]
    assert values[6:9] == (BETA.real, C, 48)
    assert (native.alpha[0], native.beta[0]) == (2.5, 0)


def test_equal_calls_are_laid_out_once(acted):
    """Other arrays, scalars and results; where they begin counts, where C does not."""
    for a, c, alpha in ((4096, 65536, 1), (16384, 65538, -2.0), (4096 + 32, 77824, 1)):
        x, y = Acted((64, 64), "float16", a), Acted((64, 64), "float16", 32768)
        tw.gemm(x, y, Acted((64, 64), "float16", c), alpha=alpha)
    assert len(acted.plans) == 1
    assert [native.b for _, native, _ in acted.started] == [4096, 16384, 4128]
    assert [native.c for _, native, _ in acted.started] == [65536, 65538, 77824]
    compiled = acted.compiled
    tw.gemm(Acted((64, 64), "float16", 4098), y)
    assert len(acted.plans) == 2
    assert acted.plans[1].begins == (0, 2)
    assert acted.compiled == compiled + 1  # a kernel for what is not aligned


def test_calls_are_remembered_with_what_their_scalars_may_be(acted):
    a, b = Acted((64, 64), "float16"), Acted((64, 64), "float16", 32768)
    c = tw.gemm(a, b, alpha=3, out_dtype="float32")
    given, used, plan, *about = acted.remembered[0]
    assert given == (a, b, None, 3.0, 0.0, "N", "N", "ieee", "float32", None)
    assert (used, plan) == (c, acted.plans[0])
    most = float(np.finfo(np.float32).max)
    extents = [2 * 64 * 64, 2 * 64 * 64, 4 * 64 * 64]
    assert about == [(64, 64), np.dtype("float32"), 0, True, False, False, most, *extents]


def test_calls_that_reload_interrupts_are_not_remembered(acted, monkeypatch):
    monkeypatch.setattr(ActedArrays, "stream", lambda *_: reload() or 11)
    tw.gemm(Acted((64, 64), "float16"), Acted((64, 64), "float16", 32768))
    assert acted.started
    assert not acted.remembered


def test_products_of_integers_have_integers_for_scalars(acted):
    a, b = Acted((64, 64), "int8"), Acted((64, 64), "int8", 32768)
    c = Acted((64, 64), "int32", 65536)
    tw.gemm(a, b, c, trans_b="T", alpha=-3, beta=2**31 - 1)
    [(_, values)] = acted.launched
    assert (values[3], values[6]) == (np.int32(ALPHA.real), np.int32(BETA.real))
    assert isinstance(values[3], np.int32)
    assert acted.started[0][1].alpha[0] == -3
    _, _, _, *about = acted.remembered[0]
    assert about[5:7] == [True, 2.0**31 - 1]


def test_a_named_result_has_a_plan_of_its_own(acted):
    a, b = Acted((64, 64), "float16"), Acted((64, 64), "float16", 32768)
    for out in (None, "float32", None):
        assert tw.gemm(a, b, out_dtype=out).dtype == np.dtype(out or "float16")
    assert len(acted.plans) == 2


def test_what_does_not_lie_right_is_copied_in_the_plans_memory(acted):
    a, b = Acted((40, 63), "int8", 4098), Acted((48, 63), "int8", 8192, (64, 1))
    tw.gemm(a, b, trans_b="T")
    (first, copy), (second, values) = acted.launched
    assert (first, second) == ("realign", "gemm")
    assert copy[:3] == (63, 40, B + 2)
    assert copy[4:6] == (1, 63)
    assert acted.plans[0].space.need("realigned b", 1) == copy[6]
    assert maps(values)[1].memory == copy[6]
    assert maps(values)[1].strides[0] == 64


def test_operands_without_a_unit_stride_are_copied(acted):
    """Of 16 bits: every second element, or rows from the last to the first."""
    for strides, step in (((256, 4), 2), ((-128, 2), 1)):
        a = Acted((64, 64), "float16", 65536, strides)
        tw.gemm(a, Acted((64, 64), "float16", 32768))
        (first, copy), (second, values) = acted.launched
        assert (first, second) == ("realign", "gemm")
        assert copy[:6] == (64, 64, B, 0, step, strides[0] // 2)
        assert maps(values)[1].memory == copy[6]


@pytest.mark.parametrize("wrong", ["a", "b", "ab"])
@pytest.mark.parametrize("order", ["row", "column"])
def test_plans_know_whose_copy_is_whose(acted, wrong, order):
    """A row-major result exchanges the operands, and with them the copies."""
    a = Acted((64, 64), "int8", 4098 if "a" in wrong else 4096)
    b = Acted((64, 64), "int8", 32770 if "b" in wrong else 32768)
    c = Acted((64, 64), "int32", 65536, (256, 4) if order == "row" else (4, 256))
    tw.gemm(a, b, c, trans_b="T")
    _, native, _ = acted.started[0]
    assert [native.a, native.b] == [x.address for x in ((b, a) if order == "row" else (a, b))]
    *copies, (_, values) = acted.launched
    read = [x.memory for x in maps(values)]
    for which, (base, given) in enumerate(zip((A, B), (native.a, native.b), strict=True)):
        copied = [arguments for _, arguments in copies if arguments[2] >> 45 == base >> 45]
        if given % 16:
            assert [x[2] for x in copied] == [base + 2]
            assert [x[6] for x in copied] == [read[which]]
        else:
            assert copied == []
            assert read[which] == base
    assert len(copies) == len(wrong)


def test_arrays_that_lie_in_reverse_are_looked_at_each_time(acted):
    a = Acted((64, 64), "float16", 65536, (-128, 2))
    tw.gemm(a, Acted((64, 64), "float16", 32768))
    assert len(acted.started) == 1
    assert acted.remembered == []


def test_dlpack_arrays_are_multiplied_in_place(acted, monkeypatch):
    """What DLPack exports is looked at as memory; a type it tells itself is no other way in."""
    from tilewright.serve.narrow.arrays import ExportedArrays

    class Adapter:
        stream = 1

        def view(self, name, x):
            return View(x, x.address, x.shape, x.strides, x.dtype, 0)

        def new(self, like, shape, dtype):
            return ActedArrays().new(like, shape, str(dtype))

    monkeypatch.setattr(narrow, "arrays_of", lambda *x: ExportedArrays(Adapter()))
    a, b = Acted((64, 64), "int8"), Acted((64, 64), "int8", 32768)
    c = Acted((64, 64), "int32", 65536)
    assert tw.gemm(a, b, c, trans_b="T") is c
    made = tw.gemm(a, b, trans_b="T")
    assert (made.shape, made.dtype) == ((64, 64), np.int32)
    assert [stream for _, _, stream in acted.started] == [1, 1]
    with pytest.raises(ValueError, match=r"c\.dtype=float64 does not hold"):
        tw.gemm(a, b, Acted((64, 64), "float64", 65536))
    with pytest.raises(ValueError, match="c overlaps a"):
        tw.gemm(a, b, Acted((16, 64), "int32", 4096), trans_a="T")


def test_other_devices_and_results_are_served_in_single_precision(acted, monkeypatch):
    """As is a C that BLAS could not take, or arrays where a device is named."""
    monkeypatch.setattr(narrow, "_floats", lambda *x: 5)
    monkeypatch.setattr(ActedArrays, "cast", lambda self, x, name: (x, name), raising=False)
    monkeypatch.setattr(ActedArrays, "put", lambda self, c, x: setattr(c, "put", x), raising=False)
    a, b = Acted((64, 64), "float16"), Acted((64, 64), "float16", 32768)
    c = Acted((64, 64), "float16", 65536, (256, 4))
    tw.gemm(a, b, c)
    assert c.put == 5
    assert tw.gemm(a, b, device="cuda:0") == (5, "float16")
    acted.spec = replace(H100, compute_capability=80)
    assert tw.gemm(a, b) == (5, "float16")
    assert acted.started == []


def test_a_product_beyond_the_copy_engine_is_none_for_it():
    small = Matrix(256, 64, 64, 64, 1)
    for wrong in (replace(small, side=2**31), replace(small, step_side=2**40)):
        assert not Product(SHORT["fp16"], 1, 0, wrong, small, Operand(0, 0, 64)).fits()
    assert Product(SHORT["fp16"], 1, 0, small, small, Operand(0, 0, 64)).fits()


def test_only_hopper_through_cuda_serves(live, acted):
    assert has_wgmma(acted)
    assert not has_wgmma(live)
    assert not has_wgmma(SimpleNamespace(dialect="cuda", spec=architecture_spec("sm_80")))


def test_memory_is_asked_for_where_something_is_copied(acted):
    asked = []
    odd = Matrix(256, 40, 63, 63, 1)
    product = Product(SHORT["int8"], 1, 0, odd, odd, Operand(0, 0, 40))
    space = SimpleNamespace(need=lambda name, size: asked.append((name, size)) or 1024)
    made = steps(acted, product, space)
    assert asked == [("realigned a", 64 * 40), ("realigned b", 64 * 40)]
    assert [kernel.entry for kernel, _, _ in made] == ["realign", "realign", "gemm"]


def test_operands_of_a_batch_that_are_copied_first_are_copied_at_once(acted):
    """Of 8 bits every one that does not run along k in aligned columns."""
    repeats = ((3, 256 * 64, 256 * 64, 256 * 256),)
    for first, second in ((Matrix(256, 40, 63, 63, 1),) * 2, (Matrix(256, 40, 64, 1, 48),) * 2):
        product = Product(SHORT["int8"], 1, 0, first, second, Operand(0, 0, 40))
        space = SimpleNamespace(need=lambda name, size: 1024)
        made, left = repeated(acted, product, space, repeats)
        assert [kernel.entry for kernel, _, _ in made] == ["realign", "realign", "gemm"]
        assert left == ()


def test_a_map_of_all_matrices_that_the_driver_refuses_is_of_one(acted, monkeypatch):
    class Refusing(ActedPlan):
        def __init__(self, *about, repeats):
            if not repeats:
                raise LaunchError("no such map")
            super().__init__(*about, repeats)

    monkeypatch.setattr(narrow_calls, "Plan", Refusing)
    monkeypatch.setattr(narrow_calls, "repeated", lambda *x: (steps(*x[:3]), ()))
    one = Matrix(A, 64, 64, 64, 1)
    product = Product(SHORT["bf16"], ALPHA.real, BETA.real, one, one, Operand(C, 0, 64))
    bytes_ = ((3, 8192, 8192, 8192),)
    assert narrow_calls._planned(acted, product, bytes_).repeats == bytes_


def test_a_plan_laid_out_while_portfolios_are_read_anew_serves_no_later_call(acted, monkeypatch):
    made = narrow_calls._made
    monkeypatch.setattr(narrow_calls, "_made", lambda *x, **y: (made(*x, **y), tw.reload())[0])
    one = Matrix(A, 64, 64, 64, 1)
    product = Product(SHORT["bf16"], ALPHA.real, BETA.real, one, one, Operand(C, 0, 64))
    first = narrow_calls._planned(acted, product, ())
    assert narrow_calls._planned(acted, product, ()) is not first


@pytest.mark.parametrize(("name", "kind"), [("cupy", NumPyLike), ("torch", TorchTensors)])
def test_an_allocator_is_the_librarys_own_by_whose_attributes_arenas_know_it(
    monkeypatch, name, kind
):
    adapter = SimpleNamespace(memory=lambda ordinal, size: (0, None))
    monkeypatch.setitem(sys.modules, f"tilewright.serve.arrays.{name}", adapter)
    monkeypatch.setattr(f"tilewright.serve.arrays.{name}", adapter, raising=False)
    assert kind(None).memory is adapter.memory
