"""What a prepared CUDA launch tells the driver besides grid and arguments."""

from __future__ import annotations

import contextlib
import ctypes
import struct
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tilewright.backend.cuda import driver
from tilewright.backend.cuda.launch import ArgumentBlock, PreparedLaunch, _Config
from tilewright.precision import DOUBLE_DOUBLE
from tilewright.serve.double_double import DoubleDouble
from tilewright.stencil import Launch


def device(capability):
    return SimpleNamespace(
        id="cuda:0", context=0, current=contextlib.nullcontext,
        spec=SimpleNamespace(multiprocessors=4, compute_capability=capability),
    )  # fmt: skip


def test_double_double_scalars_reach_the_launch_whole():
    third = DoubleDouble(1) / 3
    for scalar in DOUBLE_DOUBLE["w"].scalar(third):
        assert scalar.nbytes == 16
    block = ArgumentBlock(DOUBLE_DOUBLE["e"].scalar(third))
    words = struct.unpack("<2d", ctypes.string_at(block.pointers[0], 16))
    assert words == (1 / 3, float(third.lo))
    assert block.pointers[0] % 8 == 0


def test_a_second_function_follows_with_the_same_arguments(monkeypatch):
    """On a grid of so many blocks for each of the first's; it may begin early."""
    started = []

    def start(config, function, arguments, extra):
        found = _Config.from_address(config.value)
        told = function.value, found.grid_x, found.block_x, found.attribute_count
        started.append((*told, arguments))
        return 0

    monkeypatch.setattr("tilewright.backend.cuda.launch._calls", lambda: (start, lambda at: 0))
    launch = Launch((9, 1), (32, 1), second_blocks=4, second_threads=256)
    PreparedLaunch(device(90), 1, launch, (), 0, 0, 2)._start(0)
    first, second = started
    assert first[:4] == (1, 9, 32, 0)
    assert second[:4] == (2, 36, 256, 1)
    assert first[4] is second[4]
    started.clear()
    alone = replace(launch, second_blocks=0)
    PreparedLaunch(device(90), 1, alone, (), 0, 0, 2)._start(0)
    assert [one[0] for one in started] == [1]


def test_a_captured_stream_is_asked_for_no_number(monkeypatch):
    """The driver refuses, and what was captured so far is lost."""
    asked = []

    def number_of(stream, into):
        asked.append(stream.value)
        into._obj.value = 7
        return 0

    def is_capturing(stream, into):
        into._obj.value = int(stream.value == 5)
        return 0

    monkeypatch.setattr(driver, "_stream_calls", lambda: (number_of, is_capturing))
    assert driver.stream_state(5) is None
    assert driver.stream_state(6) == 7
    assert asked == [6]


@pytest.mark.parametrize(
    ("capability", "early", "told"),
    [(90, True, True), (100, True, True), (80, True, False),
     (90, False, False)],
)  # fmt: skip
def test_a_launch_may_begin_early_where_the_device_can(monkeypatch, capability, early, told):
    """CUlaunchAttribute: its number, padding to 8 bytes, and 64 bytes of value."""
    calls = (lambda *_: 0, lambda at: 0)
    monkeypatch.setattr("tilewright.backend.cuda.launch._calls", lambda: calls)
    prepared = PreparedLaunch(device(capability), 1, Launch((9, 1), (32, 1), early=early), ())
    config = prepared._starts[0].config
    assert config.attribute_count == told
    if told:
        words = (ctypes.c_uint32 * 18).from_address(config.attributes)
        assert list(words) == [6, 0, 1, *[0] * 15]
