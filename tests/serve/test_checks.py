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
