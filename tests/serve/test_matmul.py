"""matmul() beside NumPy's, by shape."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw

relaxed = settings(max_examples=40)
sizes = st.integers(0, 9)


@st.composite
def operands(draw, kind=np.asarray):
    """Return integers that multiply exactly, in two shapes that fit."""
    k, batch = draw(sizes), draw(st.lists(st.integers(0, 3), max_size=2))
    given = []
    for ends in ((draw(sizes), k), (k, draw(sizes))):
        if draw(st.booleans()):
            shape = tuple(1 if draw(st.booleans()) else size for size in batch)
            given.append(shape[draw(st.integers(0, len(shape))) :] + ends)
        else:
            given.append((k,))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    dtype = draw(st.sampled_from(["f4", "f8", "c8", "c16"]))
    return [rng.integers(-9, 9, shape).astype(dtype) for shape in given]


def agree(made, a, b):
    expected = np.matmul(a, b)
    assert made.shape == expected.shape
    assert made.dtype == expected.dtype
    assert np.array_equal(made, expected)


@relaxed
@given(operands())
def test_products_are_numpys(live, both):
    agree(tw.matmul(*both, device=live), *both)


@relaxed
@given(operands())
def test_products_of_arrays_on_an_opencl_device_are_numpys(live, both):
    array = pytest.importorskip("pyopencl.array")
    if 0 in both[0].shape + both[1].shape:
        return  # pyopencl has no arrays without elements
    there = [array.to_device(live.queue, x) for x in both]
    made = tw.matmul(*there)
    agree(made.get(), *both)


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_products_of_arrays_on_a_cuda_device_are_numpys(cuda, library):
    module = pytest.importorskip(library)

    def there(x):
        return module.asarray(x, **({"device": "cuda"} if library == "torch" else {}))

    @relaxed
    @given(operands())
    def compare(both):
        made = tw.matmul(*map(there, both))
        agree(made.cpu().numpy() if library == "torch" else made.get(), *both)

    compare()


def test_pairs_of_doubles_multiply_as_vectors_and_matrices():
    a, b = np.arange(6.0).reshape(2, 3), np.arange(3.0)
    made = tw.matmul(tw.DoubleDouble(a), tw.DoubleDouble(b))
    assert np.array_equal(made.hi, a @ b)
    assert tw.matmul(tw.DoubleDouble(b), tw.DoubleDouble(b)).shape == ()


def test_what_is_no_matrix_is_refused_by_name():
    with pytest.raises(ValueError, match="b has no dimensions"):
        tw.matmul(np.ones(3), np.float64(2))
    with pytest.raises(TypeError, match="a is a list"):
        tw.matmul([1.0], [2.0])
    with pytest.raises(TypeError, match="b is None"):
        tw.matmul(np.ones(3), None)
    with pytest.raises(TypeError, match="b is a list"):
        tw.matmul(np.ones(3), [2.0])
    with pytest.raises(ValueError, match=r"b\.shape=\(4, 2\) does not fit a\.shape=\(3,\)"):
        tw.matmul(np.ones(3), np.ones((4, 2)))
    with pytest.raises(ValueError, match=r"b\.shape=\(4,\) does not fit a\.shape=\(2, 3\)"):
        tw.matmul(np.ones((2, 3)), np.ones(4))


class Filed:
    """What h5py and Zarr give of a file: parts of it are NumPy arrays."""

    def __init__(self, x):
        self.shape, self.dtype, self.ndim, self._x = x.shape, x.dtype, x.ndim, x

    def __getitem__(self, key):
        return self._x[key]


def test_vectors_in_files_are_read():
    x, v = np.arange(15.0).reshape(3, 5), np.arange(5.0)
    assert tw.matmul(x, Filed(v)).tolist() == (x @ v).tolist()
    assert tw.matmul(Filed(v), x.T.copy()).tolist() == (v @ x.T).tolist()


def test_a_vector_of_another_kind_is_named():
    class Labelled(Filed):
        def __getitem__(self, key):
            return self

    with pytest.raises(TypeError, match=r"b is a Labelled; give np\.asarray\(b\)"):
        tw.matmul(np.ones((3, 5)), Labelled(np.ones(5)))
