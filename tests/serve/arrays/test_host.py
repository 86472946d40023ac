"""gemm() on other libraries' arrays in the host's memory: in place, results of their kind."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw

DEVICE = "opencl"


class Foreign:
    """An array of another library, which shares its memory by DLPack alone."""

    __module__ = "foreign"

    def __init__(self, array, *, legacy=False, place=(1, 0), why=""):
        self._array, self._legacy, self._place, self._why = array, legacy, place, why

    @property
    def dtype(self):
        return self._array.dtype

    def __dlpack_device__(self):
        return self._place

    def __dlpack__(self, *, stream=None, **newer):
        assert stream is None, "the host has no streams"
        if self._why:
            raise BufferError(self._why)
        if self._legacy:
            if newer:
                raise TypeError("unexpected keyword argument")
            return self._array.__dlpack__()
        return self._array.__dlpack__(**newer)


@pytest.fixture
def foreign(monkeypatch):
    """The library that such arrays are of."""
    library = types.ModuleType("foreign")
    library.from_dlpack = lambda x: Foreign(np.from_dlpack(x))
    monkeypatch.setitem(sys.modules, "foreign", library)
    return library


def integers(rng, shape, kind):
    return rng.integers(-8, 9, shape).astype(kind)


@settings(max_examples=30)
@given(
    st.tuples(*[st.integers(0, 20)] * 3), st.sampled_from(["f4", "f8", "c8", "c16"]),
    st.booleans(), st.booleans(), st.integers(0, 2**32),
)  # fmt: skip
def test_c_is_written_where_it_is(sizes, kind, legacy, transposed, seed):
    m, n, k = sizes
    rng = np.random.default_rng(seed)
    a = integers(rng, (k, m), kind).T if transposed else integers(rng, (m, k), kind)
    whole = integers(rng, (k + 3, 2 * n + 1), kind)
    b = whole[3:, 1 : n + 1]
    c = integers(rng, (m, n), kind)
    wanted = 2 * a @ b + 3 * c
    ours, theirs, target = (Foreign(x, legacy=legacy) for x in (a, b, c))
    made = tw.gemm(ours, theirs, target, alpha=2, beta=3, device=DEVICE)
    assert made is target
    np.testing.assert_array_equal(c, wanted)


@pytest.mark.parametrize("kind", ["f4", "c16", "f2", "i1"])
def test_a_new_result_is_of_their_kind(foreign, kind):
    a = integers(np.random.default_rng(0), (5, 7), kind)
    made = tw.gemm(Foreign(a), Foreign(a), trans_b="T", device=DEVICE)
    assert type(made) is Foreign
    wide = a.astype("c16" if kind == "c16" else "i8")
    np.testing.assert_array_equal(np.from_dlpack(made), wide @ wide.T)


def test_bfloat16_comes_back_as_bfloat16():
    """Of PyTorch, whose bfloat16 NumPy's own import does not know."""
    torch = pytest.importorskip("torch")
    a = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    made = tw.gemm(a, a, trans_b="T", device=DEVICE)
    assert made.dtype == torch.bfloat16
    assert torch.equal(made, a @ a.T)


@pytest.mark.parametrize("kind", ["float32", "complex128"])
def test_tensors_of_pytorch_on_the_cpu(kind):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, kind)
    a = torch.arange(12).reshape(3, 4).to(dtype)
    c = torch.ones((4, 4), dtype=dtype)
    at = c.data_ptr()
    assert tw.gemm(a, a, c, trans_a="T", beta=2, device=DEVICE) is c
    assert c.data_ptr() == at
    assert torch.equal(c, a.T @ a + 2)
    made = tw.gemm(a.T, a, device=DEVICE)
    assert isinstance(made, torch.Tensor)
    assert torch.equal(made, a.T @ a)
    with pytest.raises(ValueError, match=r"a cannot be shared through DLPack: .*grad"):
        tw.gemm(a.clone().requires_grad_(), a, trans_b="T", device=DEVICE)


def test_what_cannot_be_is_named(foreign):
    eye = np.eye(3)
    fixed = np.eye(3)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="c is read-only"):
        tw.gemm(Foreign(eye), Foreign(eye), Foreign(fixed), device=DEVICE)
    with pytest.raises(ValueError, match="b cannot be shared through DLPack: detach it"):
        tw.gemm(Foreign(eye), Foreign(eye, why="detach it"), device=DEVICE)
    with pytest.raises(ValueError, match=r"a\.dtype=int64 has no GEMM here"):
        tw.gemm(Foreign(eye.astype("i8")), Foreign(eye), device=DEVICE)
    with pytest.raises(ValueError, match="c overlaps a"):
        tw.gemm(Foreign(eye), Foreign(fixed.copy()), Foreign(eye), device=DEVICE)
    with pytest.raises(TypeError, match=r"on DLPack device \(8, 0\)"):
        tw.gemm(Foreign(eye, place=(8, 0)), Foreign(eye, place=(8, 0)), device=DEVICE)
    del foreign.from_dlpack
    with pytest.raises(ValueError, match="c is missing and Foreign has no way to make it"):
        tw.gemm(Foreign(eye), Foreign(eye), device=DEVICE)


def test_what_is_read_may_be_read_only():
    fixed = np.eye(3)
    fixed.flags.writeable = False
    c = np.zeros((3, 3))
    tw.gemm(Foreign(fixed), Foreign(fixed), Foreign(c), device=DEVICE)
    np.testing.assert_array_equal(c, fixed)
