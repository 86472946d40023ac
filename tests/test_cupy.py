"""CuPy's products within the context: which are served, and by which accuracy."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module with NumPy's arrays as CuPy's; `calls` has the accuracies of served ones."""
    pretended = ModuleType("cupy")
    pretended.ndarray = np.ndarray  # type: ignore[attr-defined]
    pretended.matmul = np.matmul  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", pretended)
    monkeypatch.delitem(sys.modules, "tilewright.cupy", raising=False)
    module: Any = importlib.import_module("tilewright.cupy")
    module.calls = []

    def counted(a: Any, b: Any, *, accuracy: str) -> Any:
        module.calls.append(accuracy)
        return np.matmul(a, b)

    monkeypatch.setattr(module, "served_matmul", counted)
    yield module
    sys.modules.pop("tilewright.cupy", None)


def test_products_of_one_dtype_are_served_and_all_else_is_cupys(served: Any) -> None:
    cupy = served.cupy
    a, b = np.ones((3, 4)), np.ones((4, 5))
    with served.matmul("fp64"):
        assert cupy.matmul(a, b).shape == (3, 5)
        assert cupy.matmul(a.astype("f4"), b.astype("f4")).dtype == np.float32
        assert served.calls == ["fp64", "ieee"]
        cupy.matmul(a.astype("f4"), b)
        cupy.matmul(a.astype("i4"), b.astype("i4"))
        cupy.matmul(a, b, out=np.empty((3, 5)))
        cupy.matmul(a.tolist(), b)
    cupy.matmul(a, b)
    assert len(served.calls) == 2
    assert cupy.matmul is np.matmul


def test_blocks_may_end_in_any_order(served: Any) -> None:
    first, second = served.matmul("fp32"), served.matmul("fp64")
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert served.cupy.matmul is not np.matmul
    second.__exit__(None, None, None)
    assert served.cupy.matmul is np.matmul


def test_cupys_own_is_back_after_an_error(served: Any) -> None:
    with pytest.raises(ValueError, match="mismatch"), served.matmul():
        served.cupy.matmul(np.ones((3, 4)), np.ones((3, 4)))
    assert served.cupy.matmul is np.matmul
    with pytest.raises(ValueError, match="accuracy='tf16' is unknown"), served.matmul("tf16"):
        pass


@pytest.mark.gpu
def test_cupys_arrays_have_gemms_bits() -> None:
    cupy = pytest.importorskip("cupy")
    import tilewright as tw
    from tilewright.cupy import matmul

    a, b = cupy.random.standard_normal((2, 2048, 2048)).astype("f4")
    theirs = cupy.matmul(a, b)
    with matmul(accuracy="fp32"):
        ours = cupy.matmul(a, b)
    assert cupy.array_equal(ours, tw.gemm(a, b, accuracy="fp32"))
    assert cupy.array_equal(cupy.matmul(a, b), theirs)
