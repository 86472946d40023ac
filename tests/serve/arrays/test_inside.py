"""What lies where in the arrays of the libraries that are installed."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from tests.serve.arrays.test_device import imported
from tilewright.serve.arrays.inside import of_cupy, of_torch


def words(x, at, count=1):
    return (ctypes.c_int64 * count).from_address(id(x) + at)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:::cupy")
def test_cupys_fields_are_its_attributes(cuda):
    cupy = imported("cupy")
    found = of_cupy(cupy)
    assert found is not None
    whole = cupy.ones((6, 8), "c8")
    for x in (whole, whole.T, whole[1:, ::2], whole[:, 3], cupy.ones((0, 4, 2), "f2")):
        for at, right in zip(found[2:4], (x.shape, x.strides), strict=True):
            first, end = words(x, at, 2)
            assert (end - first) // 8 == x.ndim
            assert tuple((ctypes.c_int64 * x.ndim).from_address(first)) == right
        assert [words(x, at)[0] for at in found[:2]] == [id(x.data), id(x.dtype)]
        assert words(x.data, found[4])[0] == x.data.ptr
        assert words(x.data, found[5])[0] & 0xFFFFFFFF == x.data.device_id


def test_pytorchs_functions_are_its_attributes():
    torch = pytest.importorskip("torch")
    found = of_torch(torch)
    if found is None:
        pytest.skip("this PyTorch has no such functions")
    kind = ctypes.PYFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)
    is_neg, is_conj, requires_grad = map(kind, found[1:])
    x = torch.ones((2, 3), dtype=torch.complex64)
    wanted = torch.ones(2, requires_grad=True)
    for one in (x, x.conj(), x.conj().imag, x.imag, wanted, wanted * 2, wanted.detach()):
        at = id(one) + found[0]
        assert (is_neg(at), is_conj(at)) == (one.is_neg(), one.is_conj())
        assert requires_grad(words(one, found[0])[0]) == one.requires_grad


def test_gradients_are_wanted_where_they_are_recorded():
    torch = pytest.importorskip("torch")
    from tilewright.serve.arrays.torch import narrow_view

    x = torch.ones((2, 3), requires_grad=True)
    assert narrow_view(x) is None
    with torch.no_grad():
        assert narrow_view(x) is not None


@pytest.mark.parametrize("of", [of_cupy, of_torch])
def test_libraries_that_are_otherwise_are_asked_for_attributes(of):
    def refuses(*given, **options):
        raise RuntimeError("no memory of somebody's")

    for library in (
        SimpleNamespace(), SimpleNamespace(zeros=refuses),
        SimpleNamespace(cuda=SimpleNamespace(UnownedMemory=refuses)), Mock(),
    ):  # fmt: skip
        assert of(library) is None
