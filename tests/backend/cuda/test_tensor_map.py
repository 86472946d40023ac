"""Tensor maps: what is handed to the driver, and how a launch passes what it makes."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.backend import LaunchError
from tilewright.backend.cuda import tensor_map
from tilewright.backend.cuda.launch import ArgumentBlock
from tilewright.stencil import TensorMap

MAP = TensorMap(0x7000, 64, "float16", (100, 33, 2), (256, 8448), (64, 16, 1), 128)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Stand in for the driver; the list is what it was asked."""
    calls: list[tuple[Any, ...]] = []

    def encode(*arguments: Any) -> tuple[int]:
        calls.append(arguments)
        ctypes.memset(arguments[0], 0xA5, 128)
        return (0,)

    fake = SimpleNamespace(cuTensorMapEncodeTiled=encode)
    monkeypatch.setattr(tensor_map, "driver", lambda: fake)
    return calls


def test_the_driver_is_asked_in_its_words(asked: list[tuple[Any, ...]]) -> None:
    tensor_map.encoded(MAP)
    _, kind, rank, address, sizes, strides, box, steps, *rest = asked[0]
    assert (kind, rank, address) == (6, 3, 0x7040)
    assert list(sizes) == [100, 33, 2]
    assert list(strides)[:2] == [256, 8448]
    assert list(box) == [64, 16, 1]
    assert list(steps) == [1, 1, 1]
    assert rest == [0, 3, 2, 0], "any other fill is NaN"


def test_every_element_type_and_pattern_has_a_name_there(asked: list[tuple[Any, ...]]) -> None:
    for element in tensor_map.TYPES:
        piece = 16 // replace(MAP, element=element).element_bytes
        for swizzle in (0, 32, 64, 128):
            tensor_map.encoded(replace(MAP, element=element, box=(piece, 1, 1), swizzle=swizzle))
    assert len(asked) == 4 * len(tensor_map.TYPES)


def test_a_launch_passes_the_map_itself(asked: list[tuple[Any, ...]]) -> None:
    """128 bytes at a multiple of 64, beside numbers and addresses."""
    block = ArgumentBlock((np.int64(7), MAP, 0x1234, np.float32(1)))
    at = block.pointers[1]
    assert at % 64 == 0
    assert ctypes.string_at(at, 128) == b"\xa5" * 128
    assert ctypes.c_int64.from_address(block.pointers[0]).value == 7
    assert ctypes.c_uint64.from_address(block.pointers[2]).value == 0x1234


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"offset": 8}, "address"),
        ({"sizes": (0, 33, 2)}, "sizes"),
        ({"strides": (250, 8448)}, "strides"),
        ({"box": (64, 257, 1)}, "box"),
        ({"swizzle": 64}, "rows of 128 bytes"),
        ({"strides": (256,)}, "one stride fewer"),
        ({"element": "float8"}, "element"),
    ],
)
def test_what_the_copy_engine_does_not_take_is_said(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tensor_map.encoded(replace(MAP, **changes))


def test_without_a_driver_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_map, "driver", lambda: None)
    with pytest.raises(LaunchError, match="not here"):
        tensor_map.encoded(MAP)
