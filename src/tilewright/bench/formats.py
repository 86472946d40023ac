"""Number formats of the matrix units: how they lie in memory, and what they are called where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["FORMATS", "Format", "by_element", "format_of", "random_values"]


def _bf16(values: NDArray[Any]) -> NDArray[Any]:
    """Return the bits of bfloat16, ties to even; NaN stays NaN."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)


def _from_bf16(stored: NDArray[Any]) -> NDArray[Any]:
    return (stored.astype(np.uint32) << 16).view(np.float32)


def _tf32(values: NDArray[Any]) -> NDArray[Any]:
    """Return floats of which the last 13 bits are zero, ties to even."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + (0xFFF + (bits >> 13 & 1))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(values), rounded, bits).astype(np.uint32).view(np.float32)


@dataclass(frozen=True)
class Format:
    """One format of A and B.

    Parameters
    ----------
    name : str
        ``"f16"``, ``"bf16"``, ``"tf32"`` or ``"s8"``.
    element : str
        As tensor maps name it.
    storage : str
        NumPy's type of what lies in memory.
    result : str
        NumPy's type of C.
    arithmetic : str
        As bounds name it.
    store, values : callable
        From float32 numbers to what lies in memory, and from there to what is multiplied.
    """

    name: str
    element: str
    storage: str
    result: str
    arithmetic: str
    store: Callable[[NDArray[Any]], NDArray[Any]]
    values: Callable[[NDArray[Any]], NDArray[Any]]

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of A or B."""
        return np.dtype(self.storage).itemsize

    @property
    def aligned(self) -> int:
        """Elements of 16 bytes, of which the copy engine wants leading dimensions."""
        return 16 // self.element_bytes


def _as(name: str) -> Callable[[NDArray[Any]], NDArray[Any]]:
    return lambda values: values.astype(name)


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("f16", "float16", "float16", "float32", "fp16", _as("float16"), _as("float32")),
        Format("bf16", "bfloat16", "uint16", "float32", "bf16", _bf16, _from_bf16),
        Format("tf32", "float32", "float32", "float32", "tf32", _tf32, _as("float32")),
        Format("s8", "int8", "int8", "int32", "int8", _as("int8"), _as("float32")),
    )
}


def format_of(name: str) -> Format:
    """Return a format by name.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    if name not in FORMATS:
        raise ValueError(f"format={name!r} is unknown; use one of {', '.join(FORMATS)}")
    return FORMATS[name]


# How results lie in memory, by the names of their types.
_RESULTS = {f.element: f for f in FORMATS.values()} | {
    name: Format(name, name, name, name, "ieee", _as(name), _as(name))
    for name in ("float32", "int32")
}


def by_element(name: str) -> Format:
    """Return how elements of a type lie in memory, results among them.

    Raises
    ------
    ValueError
        If no result has it.
    """
    if name not in _RESULTS:
        raise ValueError(f"result={name!r} is unknown; use one of {', '.join(_RESULTS)}")
    return _RESULTS[name]


def random_values(rng: np.random.Generator, shape: tuple[int, int], form: Format) -> NDArray[Any]:
    """Return random numbers as they lie in memory: normal ones, or all bytes of integers."""
    if form.result == "int32":
        return rng.integers(-128, 128, shape, np.int8)
    return form.store(rng.standard_normal(shape, np.float32))
