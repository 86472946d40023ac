"""seen.c: arrays and tensors that are looked at where their fields lie, by functions in C."""

from __future__ import annotations

import ctypes
import struct
from types import SimpleNamespace

import numpy as np
import pytest

from tests.core.inside.arrays import F4, STRIDED, Tensor, fresh, now
from tests.core.inside.remembering import again, pair, plan_of, remember
from tilewright.serve import warm
from tilewright.serve.arrays.inside import _number, _place, _places_in

pytestmark = pytest.mark.usefixtures("known", "knowing")


class Pointer(bytes):
    """What `cupy.cuda.MemoryPointer` has, as its memory: a word, address and device."""

    def __new__(cls, ptr, device_id):
        made = super().__new__(cls, struct.pack("<QQii", 5, ptr, device_id, -1))
        made.ptr, made.device_id = ptr, device_id
        return made


class Array(bytes):
    """What `cupy.ndarray` has, as its memory; vectors begin with where they begin and end."""

    def __new__(cls, shape, dtype=F4, at=None, device=0, strides=None, data=None):
        strides = strides or tuple(np.zeros(shape, dtype).strides)
        held = [(ctypes.c_int64 * len(some))(*some) for some in (shape, strides)]
        ends = [ctypes.addressof(x) + size for x in held for size in (0, *[ctypes.sizeof(x)] * 2)]
        data = data or Pointer(fresh() if at is None else at, device)
        made = super().__new__(cls, struct.pack("<10Q", 7, *ends, 1, id(dtype), id(data)))
        made.shape, made.strides, made.dtype, made.data, made.held = (
            shape, strides, dtype, data, held,
        )  # fmt: skip
        return made


class Told(Tensor):
    """A tensor of which functions tell, and no attributes, what is to be unusual of it."""

    __slots__ = ("itself",)
    is_neg = is_conj = property()

    def __init__(self, shape, dtype=F4, neg=False, conj=False, requires_grad=False, **other):
        super().__init__(shape, dtype, **other)
        del self.requires_grad
        self.itself = SimpleNamespace(neg=neg, conj=conj, requires_grad=requires_grad)


def _told(name, address):
    return getattr(ctypes.cast(address, ctypes.py_object).value, name)


_asks = ctypes.PYFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
_is_neg, _is_conj = (
    _asks(lambda at, name=name: _told(name, ctypes.c_void_p.from_address(at).value))
    for name in ("neg", "conj")
)
_requires_grad = _asks(lambda at: _told("requires_grad", at))


def arrays():
    return [
        Array((3, 5), at=1 << 20, device=9), Array((7, 2, 4), np.dtype("f8"), at=3 << 20, device=4),
        Array((6, 9, 8, 2), np.dtype("c8"), at=5 << 20, device=6),
    ]  # fmt: skip


@pytest.fixture(scope="session")
def known():
    tensors = [Told((3, 4)) for _ in range(3)]
    at = _place(tensors, [_number(id(x.itself)) for x in tensors])
    functions = [
        ctypes.cast(one, ctypes.c_void_p).value for one in (_is_neg, _is_conj, _requires_grad)
    ]
    grad = {"grad": lambda: now.grad, "part": STRIDED, "inside": (at, *functions)}
    cupy = {"part": Pointer, "inside": _places_in(arrays())}
    for which, kind, about in ((warm.CUPY, Array, cupy), (warm.TORCH, Told, grad)):
        warm.know(which, kind, lambda _: 7, lambda shape, *_, of=kind: of(shape), None, **about)


def test_places_are_found():
    head = 32  # of bytes
    words = [9, 8, 1, 4]
    assert _places_in(arrays()) == (*(head + 8 * at for at in words), head + 8, head + 16)


@pytest.mark.parametrize("other", [Array((4, 8), strides=(4, 8)), Array((4, 8), at=5)])
def test_places_that_are_not_the_only_ones_are_none(other):
    with pytest.raises(ValueError, match="unpack"):
        _places_in([other, other])


@pytest.mark.parametrize("kind", [Array, Told])
def test_a_call_is_repeated_elsewhere(driver, device, kind):
    a, b = pair(kind)
    c = kind((8, 4))
    remember(plan_of(driver, device), a, b, c)
    (x, y), z = pair(kind), kind((8, 4))
    assert again(x, y, z) is z
    places = [v.data.ptr if kind is Array else v.data_ptr() for v in (x, y, z)]
    assert [driver.launches[0].word(i) for i in range(3)] == places
    assert again(x, y) is None


def test_arrays_of_other_layouts_are_other_calls(driver, device):
    a, b = pair(Array)
    remember(plan_of(driver, device), a, b)
    assert again(a, b) is not None
    for other in (
        Array((8, 7)), Array((8, 6), np.dtype("f8")), Array((8, 6), at=(1 << 30) + 4),
        Array((8, 6), strides=(28, 4)), Array((8, 6), device=1), Array((8, 6, 1)), Array((8,)),
        Array((8, 6), data=b"no pointer"), Array((8, 6), at=0), Array((1,) * 5),
    ):  # fmt: skip
        assert again(other, b) is None
    assert len(driver.launches) == 1


def test_unusual_tensors_take_a_closer_look(driver, device):
    a, b = pair(Told)
    remember(plan_of(driver, device), a, b)
    wanted = Told((8, 6), requires_grad=True)
    assert again(Told((8, 6), neg=True), b) is None
    assert again(Told((8, 6), conj=True), b) is None
    assert again(wanted, b) is None
    now.grad = False
    assert again(wanted, b) is not None
    assert again(Told((8, 6), neg=True), b) is None
    assert again(Told((8, 6), conj=True), b) is None
