"""JAX's products by Tilewright: values, gradients and maps of JAX's own, within `jax.jit`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tilewright.backend import LiveDevice

# Unless told otherwise JAX takes three quarters of a device's free memory at its first array,
# which tests in other processes need.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

jax = pytest.importorskip("jax")
jnp = jax.numpy
served = pytest.importorskip("tilewright.jax")

WIDE = {"float32": 1e-5, "float64": 1e-13, "complex64": 1e-5, "complex128": 1e-13}


@pytest.fixture(autouse=True)
def _precise() -> Iterator[None]:
    """Let JAX have 64 bits, and compute in all of its types' bits."""
    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        yield


def drawn(*shape: int, dtype: str = "float64", seed: int = 0) -> Any:
    """Return random numbers, as JAX's."""
    x, y = np.random.default_rng((seed, *shape)).standard_normal((2, *shape))
    return jnp.asarray((x + 1j * y if dtype[0] == "c" else x).astype(dtype))


def loss(multiply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a real function of two matrices, whose gradients depend on the product."""
    return lambda a, b: (jnp.abs(multiply(a, b)) ** 2).sum()


@pytest.mark.parametrize(
    ("a", "b", "dtype"),
    [((9, 20), (20, 7), "float32"), ((20,), (20, 7), "float32"), ((9, 20), (20,), "float32"),
     ((20,), (20,), "float32"), ((0, 3), (3, 2), "float32"), ((3, 0), (0, 2), "float32"),
     ((5, 1, 9, 20), (4, 20, 7), "float64"), ((5, 9, 20), (20,), "complex64"),
     ((1, 9, 20), (5, 20, 7), "complex128")],
)  # fmt: skip
def test_products_and_gradients_are_those_of_jax(
    a: tuple[int, ...], b: tuple[int, ...], dtype: str
) -> None:
    x, y = drawn(*a, dtype=dtype), drawn(*b, dtype=dtype, seed=1)
    made, wanted = jax.jit(served.matmul)(x, y), jnp.matmul(x, y)
    assert (made.shape, made.dtype) == (wanted.shape, wanted.dtype)
    assert np.allclose(made, wanted, rtol=WIDE[dtype], atol=20 * WIDE[dtype])
    ours, theirs = (jax.grad(loss(f), (0, 1))(x, y) for f in (served.matmul, jnp.matmul))
    for one, other in zip(ours, theirs, strict=True):
        assert np.allclose(one, other, rtol=10 * WIDE[dtype], atol=200 * WIDE[dtype])


def test_maps_and_gradients_of_gradients_are_those_of_jax() -> None:
    x, y = drawn(5, 9, 20), drawn(20, 7)
    for axes, operands in (((0, None), (x, y)), ((None, 2), (x[0], drawn(20, 7, 3)))):
        ours, theirs = (jax.vmap(f, axes)(*operands) for f in (served.matmul, jnp.matmul))
        assert np.allclose(ours, theirs, rtol=1e-13, atol=1e-12)

    def twice(multiply: Callable[[Any, Any], Any]) -> Any:
        return jax.grad(lambda a: (jax.grad(loss(multiply))(a, y) ** 2).sum())(x[0])

    assert np.allclose(twice(served.matmul), twice(jnp.matmul), rtol=1e-12)


def test_what_is_no_product_is_refused() -> None:
    a, b = drawn(2, 3), drawn(3, 2)
    for other, accuracy, says in (
        (a, "ieee", "does not fit"), (b.astype("float32"), "ieee", "convert both to one of"),
        (2.0, "ieee", "b has no dimensions"), (b, "fp7", "accuracy='fp7' is unknown"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=says):
            served.matmul(a, other, accuracy=accuracy)


def test_what_fails_while_xla_runs_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise MemoryError("there is none")

    for name in ("gemm", "with_accuracy"):  # of a host, and of a device
        monkeypatch.setattr(served, name, fails)
    with pytest.raises(jax.errors.JaxRuntimeError, match="MemoryError: there is none"):
        jax.block_until_ready(served.matmul(drawn(2, 3), drawn(3, 2)))


def test_a_registration_that_fails_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    register = jax.ffi.register_ffi_target

    def fails(*given: Any, platform: str) -> None:
        if platform == "CUDA":
            raise RuntimeError("not now")
        register(*given, platform=platform)

    # No other test has this accuracy: XLA takes a name once.
    a, b = drawn(2, 3, dtype="float32"), drawn(3, 2, dtype="float32")
    with monkeypatch.context() as patched:
        patched.setattr(jax.ffi, "register_ffi_target", fails)
        with pytest.raises(RuntimeError, match="not now"):
            served.matmul(a, b, accuracy="tf32")
    made = served.matmul(a, b, accuracy="tf32")
    assert np.allclose(made, jnp.matmul(a, b), rtol=1e-2, atol=1e-2)


@pytest.mark.gpu
def test_products_on_a_device_have_the_bits_of_gemm(cuda: LiveDevice) -> None:
    cupy = pytest.importorskip("cupy")
    import tilewright as tw

    if jax.default_backend() != "gpu":
        pytest.skip("needs JAX for CUDA")
    for dtype, accuracy in (("float32", "fp32"), ("float64", "fp64"), ("complex64", "ieee")):
        for sides in ((3000, 2000, 1000), (64, 33, 5), (1, 500, 7)):
            m, n, k = sides
            a, b = drawn(3, m, k, dtype=dtype), drawn(k, n, dtype=dtype)
            made = jax.jit(lambda x, y, of=accuracy: served.matmul(x, y, accuracy=of) * 2)(a, b)
            x, y = (cupy.asarray(np.asarray(one)) for one in (a, b))
            assert np.array_equal(made, 2 * tw.gemm(x, y, accuracy=accuracy).get())
