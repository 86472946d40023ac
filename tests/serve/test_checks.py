"""What a call looks at before anything is computed."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest

import tilewright as tw


def test_what_another_thread_imports_meanwhile_is_nobodys_library(monkeypatch):
    for name in ("cupy", "torch", "numpy.ma"):
        begun = ModuleType(name)
        begun.__spec__ = ModuleSpec(name, None)
        begun.__spec__._initializing = True
        monkeypatch.setitem(sys.modules, name, begun)
    x = np.eye(3)
    assert np.array_equal(tw.grouped_gemm([x], [x])[0], x)
    assert np.array_equal(tw.gemm(x.astype("f2"), x.astype("f2")), x)
    assert np.array_equal(tw.gemm(x, x, epilogue=tw.Epilogue(activation="relu")), x)
    with pytest.raises(TypeError, match="give NumPy arrays only"):
        tw.gemm("a", "b")


def test_types_are_told_apart_by_what_they_are():
    """Double-double's have names of their parts, as have other structures."""
    x, fields = np.ones((2, 2)), np.zeros((2, 2), [("hi", "f4")])
    for a, b in ((x, fields), (fields, x)):
        with pytest.raises(ValueError, match=r"b\.dtype=.* but a\.dtype="):
            tw.gemm(a, b)
    with pytest.raises(ValueError, match="a is real but b is complex"):
        tw.gemm(tw.DoubleDouble(x), tw.DoubleDouble(x + 0j))


@pytest.mark.parametrize("dtype", ["f8", "i1"])
@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_masked_scalar_is_refused(dtype, name):
    a = np.ones((2, 2), dtype)
    c = np.ones((2, 2), "i4" if dtype == "i1" else dtype)
    with pytest.raises(TypeError, match=f"{name} is masked; give a"):
        tw.gemm(a, a, c, **{name: np.ma.masked})
