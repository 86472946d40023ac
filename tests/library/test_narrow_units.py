"""8- and 16-bit arrays on tensor cores: what is launched, where it goes, and that it is right."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import tilewright as tw
from tests.split.test_chain_on_cuda import EmulatedStream
from tests.stencil.emulator import compiler
from tilewright.backend import Operand
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.library import narrow, narrow_calls
from tilewright.library.narrow_units import Laid, Matrix, Product, serves, steps
from tilewright.library.on_device import View
from tilewright.library.plan import Plans
from tilewright.library.scratch import scratch_of
from tilewright.problem import Trans
from tilewright.stencil import TensorMap

H100 = replace(architecture_spec("sm_90a"), multiprocessors=132, name="H100")


# -- what the copy engine takes ----------------------------------------------------------


@pytest.mark.parametrize(
    ("matrix", "size", "right"),
    [
        (Matrix(256, 40, 64, 64, 1), 2, Laid(256, True, 64)),
        (Matrix(256, 40, 64, 1, 48), 2, Laid(256, False, 48)),  # 16 bits in either order
        (Matrix(256, 40, 64, 1, 48), 1, None),  # 8 bits along k only
        (Matrix(256, 40, 64, 80, 1), 1, Laid(256, True, 80)),
        (Matrix(256, 40, 64, 68, 1), 2, None),  # columns of 136 bytes
        (Matrix(258, 40, 64, 64, 1), 2, None),  # an address that is no multiple of 16
        (Matrix(256, 40, 64, 128, 2), 2, None),  # every second element
        (Matrix(256, 40, 64, -64, 1), 2, None),
        (Matrix(256, 40, 64, 0, 1), 2, None),  # one row, again and again
        (Matrix(256, 1, 45, 45, 1), 1, Laid(256, True, 48)),  # one column: no second one is there
        (Matrix(256, 64, 1, 1, 64), 1, None),  # k = 1 lies along the side
        (Matrix(256, 45, 1, 1, 45), 2, Laid(256, False, 48)),
    ],
)
def test_operands_are_taken_in_place_by_the_rules_of_the_copy_engine(matrix, size, right):
    assert matrix.laid(size) == right


# -- on emulated tensor cores ------------------------------------------------------------


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    if compiler() is None:
        pytest.skip("needs g++ or clang++")
    return EmulatedStream(tmp_path_factory.mktemp("kernels"))


def entries(emulated, monkeypatch):
    """Return the list that names of launched kernels go to."""
    found, launch = [], emulated.launch
    monkeypatch.setattr(emulated, "launch", lambda k, *x: found.append(k.entry) or launch(k, *x))
    return found


@pytest.mark.every(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "out", "trans", "shape", "copies"),
    [
        ("float16", None, "NN", (35, 48, 64), 0),  # ld of 64 and 48 elements
        ("float16", "float32", "TT", (40, 33, 45), 1),  # of 40 and 45
        ("bfloat16", None, "NC", (33, 31, 50), 2),
        ("int8", None, "NT", (20, 30, 64), 0),  # both along k
        ("int8", None, "TN", (32, 48, 65), 2),  # turned
    ],
)
def test_numpy_arrays_are_multiplied_as_they_are(
    emulated, monkeypatch, dtype, out, trans, shape, copies
):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    kind = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
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
    wanted = np.dtype("int32") if dtype == "int8" else np.dtype(out or kind)
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


class ActedLaunch:
    """What a prepared launch does, written down."""

    def __init__(self, live, kernel, arguments):
        self.live, self.kernel, self.lock = live, kernel, threading.Lock()
        self.values = list(arguments)
        self.arguments = SimpleNamespace(slot=self.slot, put=self.values.__setitem__)

    def slot(self, position):
        launch = self

        class Slot:
            def __setattr__(self, name, value):
                launch.values[position] = value

        return Slot()

    def move(self, position, address):
        self.values[position] = replace(self.values[position], memory=address)

    def enqueue(self, stream):
        assert self.lock.locked()
        self.live.log.append((self.kernel.entry, stream, tuple(self.values)))


class ActedDevice:
    """A Hopper GPU that runs nothing."""

    id, dialect, ordinal, spec = "cuda:0", "cuda", 0, H100

    def __init__(self):
        self.log, self.compiled, self.prepared, self.end = [], 0, 0, 1 << 20

    def compile(self, source):
        self.compiled += 1
        return SimpleNamespace(entry=source.entry, defines=source.defines)

    def prepare(self, kernel, launch, arguments):
        self.prepared += 1
        return ActedLaunch(self, kernel, arguments)

    def allocate(self, size):
        self.end += -(-size // 256) * 256
        return self.end - -(-size // 256) * 256

    def finish(self):
        pass

    def free(self, memory):
        pass


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

    def key(self, a, b, c, trans, out):
        return tuple((x.shape, x.strides, x.dtype) for x in (a, b, c) if x is not None), trans, out


@pytest.fixture
def acted(monkeypatch):
    live = ActedDevice()
    monkeypatch.setattr("tilewright.backend.cuda.device.device_at", lambda ordinal: live)
    monkeypatch.setattr(narrow, "arrays_of", lambda *x: ActedArrays())
    live.plans = Plans()
    live.plans.get(None)  # the first look finds the store changed
    monkeypatch.setattr(narrow_calls, "plans", live.plans)
    return live


def key_of(*arrays, trans=(Trans.N, Trans.N), out=None):
    return ActedArrays().key(*(*arrays, None)[:3], trans, out)


def test_aligned_arrays_take_one_launch_on_the_callers_stream(acted):
    a, b = Acted((40, 64), "float16"), Acted((64, 48), "float16", 8192)
    c = tw.gemm(a, b)
    assert (c.shape, c.dtype) == ((40, 48), np.float16)
    [(entry, stream, values)] = acted.log
    assert (entry, stream) == ("gemm", 11)
    assert values[:4] == (48, 40, 64, 1)  # a row-major result: C^T = B^T A^T
    maps = [x for x in values if isinstance(x, TensorMap)]
    assert [x.memory for x in maps] == [8192, 4096]
    assert [x.sizes[:2] for x in maps] == [(48, 64), (64, 40)]
    assert [x.strides[0] for x in maps] == [96, 128]
    assert values[7:9] == (65536, 48)


def test_a_plan_repeats_the_call_elsewhere_with_other_scalars(acted):
    a, b, c = (Acted((64, 64), "float16", at) for at in (4096, 32768, 65536))
    tw.gemm(a, b, c)
    plan = acted.plans.get(key_of(a, b, c))
    compiled, prepared = acted.compiled, acted.prepared
    assert plan.start(16384, 20480, 77824, 2.5, -1, 9)
    assert (acted.compiled, acted.prepared) == (compiled, prepared)
    _, stream, values = acted.log[-1]
    assert stream == 9
    assert [x.memory for x in values[4:6]] == [20480, 16384]  # exchanged
    assert (values[3], values[6], values[7]) == (2.5, -1, 77824)
    assert plan.start(16384, 20480, 77824 + 2, 1, 0, 9)  # C need not be aligned
    for wrong in (
        (16384 + 2, 20480, 77824, 1, 0),  # a copy is needed
        (16384, 20480, 16384 + 128, 1, 0),  # overlaps a
        (16384, 20480, 77824, 0, 1),  # nothing to multiply
        (16384, 20480, 77824, 1j, 0),
        (16384, 20480, 77824, 1e39, 0),
        (16384, 20480, 77824, "x", 0),
    ):
        assert not plan.start(*wrong, 9)
    assert len(acted.log) == 3


def test_plans_of_integers_take_integers(acted):
    a, b = Acted((64, 64), "int8"), Acted((64, 64), "int8", 32768)
    made = tw.gemm(a, b, trans_b="T")
    assert made.dtype == np.int32
    plan = acted.plans.get(key_of(a, b, trans=(Trans.N, Trans.T)))
    assert plan.dtype == np.int32
    assert plan.start(4096, 32768, 65536, -3, 0, 1)
    assert acted.log[-1][2][3] == np.int32(-3)
    assert not plan.start(4096, 32768, 65536, 0.5, 0, 1)
    assert not plan.start(4096, 32768, 65536, 2**31, 0, 1)


def test_a_named_result_has_a_plan_of_its_own(acted):
    a, b = Acted((64, 64), "float16"), Acted((64, 64), "float16", 32768)
    assert tw.gemm(a, b, out_dtype="float32").dtype == np.float32
    assert acted.plans.get(key_of(a, b)) is None
    assert acted.plans.get(key_of(a, b, out="float32")).dtype == np.float32


def test_what_does_not_lie_right_is_copied_and_laid_out_once(acted):
    """The second call is a plan: other arrays, other scalars, the same scratch memory."""
    a, b = Acted((40, 63), "float16", 4098), Acted((63, 48), "float16", 8192)
    tw.gemm(a, b)
    _, _, copy = acted.log[0]
    assert copy[:3] == (63, 40, 4098)
    assert copy[4:6] == (1, 63)
    assert acted.log[1][2][5].memory == copy[6]
    assert acted.log[1][2][5].strides[0] == 2 * 64
    plan = acted.plans.get(key_of(a, b))
    assert plan.start(20002, 40960, 65538, 3, 0, 11)
    assert acted.prepared == 2
    assert [entry for entry, _, _ in acted.log] == ["realign", "gemm"] * 2
    assert acted.log[2][2][2] == 20002
    values = acted.log[3][2]
    assert [x.memory for x in values[4:6]] == [40960, copy[6]]
    assert (values[3], values[7]) == (3, 65538)
    assert not plan.start(20002, 40962, 65538, 3, 0, 11)  # b is taken in place
    assert not plan.start(20002, 40960, 65538, 3, 0, 12)  # another stream's memory
    scratch_of(acted, 11).need("aligned b", 1 << 16)  # which moves it
    assert not plan.start(20002, 40960, 65538, 3, 0, 11)
    tw.gemm(a, b)
    assert acted.plans.get(key_of(a, b)) is not plan
    assert acted.plans.get(key_of(a, b)).start(4098, 8192, 65536, 1, 0, 11)


@pytest.mark.parametrize("wrong", ["a", "b", "ab"])
@pytest.mark.parametrize("order", ["row", "column"])
def test_plans_know_whose_copy_is_whose(acted, wrong, order):
    """A row-major result exchanges the operands, and with them the copies."""
    a = Acted((64, 64), "float16", 4098 if "a" in wrong else 4096)
    b = Acted((64, 64), "float16", 32770 if "b" in wrong else 32768)
    c = Acted((64, 64), "float16", 65536, (128, 2) if order == "row" else (2, 128))
    tw.gemm(a, b, c)
    first = [(entry, values) for entry, _, values in acted.log]
    acted.log.clear()
    plan = acted.plans.get(key_of(a, b, c))
    assert plan.start(a.address + 64, b.address + 128, c.address + 256, 1, 0, 11)
    moved = {a.address: a.address + 64, b.address: b.address + 128, c.address: c.address + 256}
    assert len(first) == len(acted.log) == len(wrong) + 1
    for (entry, old), (again, _, values) in zip(first, acted.log, strict=True):
        assert entry == again
        for x, y in zip(old, values, strict=True):
            if isinstance(x, TensorMap):
                assert y == replace(x, memory=moved.get(x.memory, x.memory))
            else:
                assert y == moved.get(x, x)


def test_calls_without_a_key_are_kept_by_what_they_are(acted, monkeypatch):
    """Arrays through DLPack, and such as lie in reverse: equal ones are laid out once."""
    monkeypatch.setattr(ActedArrays, "key", lambda *x: None)
    a, b = Acted((40, 63), "float16", 4098), Acted((63, 48), "float16", 8192)
    for _ in range(3):
        tw.gemm(a, b)
    assert acted.prepared == 2
    assert len({values for _, _, values in acted.log}) == 2


def test_dlpack_arrays_are_multiplied_in_place(acted, monkeypatch):
    """What DLPack exports is looked at as memory; a type it tells itself is no other way in."""
    from tilewright.library.narrow_arrays import ExportedArrays

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
    assert [stream for _, stream, _ in acted.log] == [1, 1]
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
    assert acted.log == []


def test_a_product_beyond_the_copy_engine_is_none_for_it():
    small = Matrix(256, 64, 64, 64, 1)
    for wrong in (replace(small, side=2**31), replace(small, step_side=2**40)):
        assert not Product("float16", "float16", 1, 0, wrong, small, Operand(0, 0, 64)).fits()
    assert Product("float16", "float16", 1, 0, small, small, Operand(0, 0, 64)).fits()


def test_only_hopper_through_cuda_serves(live, acted):
    assert serves(acted)
    assert not serves(live)
    assert not serves(SimpleNamespace(dialect="cuda", spec=architecture_spec("sm_80")))


def test_memory_is_asked_for_where_something_is_copied(acted):
    asked = []
    odd = Matrix(256, 40, 63, 63, 1)
    product = Product("int8", "int32", 1, 0, odd, odd, Operand(0, 0, 40))
    made = steps(acted, product, lambda name, size: asked.append((name, size)) or 1024)
    assert asked == [("aligned a", 64 * 40), ("aligned b", 64 * 40)]
    assert [source.entry for source, _, _ in made] == ["realign", "realign", "gemm"]


def test_a_moved_tensor_map_is_told_to_the_driver(monkeypatch):
    from tilewright.backend.cuda import launch

    seen = []
    fake = SimpleNamespace(
        cuTensorMapReplaceAddress=lambda at, address: seen.append((at.value, address.value)) or 0
    )
    monkeypatch.setattr(launch, "library", lambda: fake)
    map_bytes = (ctypes.c_char * 128)()
    monkeypatch.setattr(launch, "encoded", lambda tensor: map_bytes)
    tensor = TensorMap(4096, 0, "float16", (64, 64, 1), (128, 8192), (64, 64, 1), 128)
    block = launch.ArgumentBlock([np.int64(1), tensor])
    assert block.move(1, 8192) == 0
    assert seen == [(ctypes.addressof(map_bytes), 8192)]
