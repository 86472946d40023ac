"""What a prepared CUDA launch tells the driver besides grid and arguments."""

from __future__ import annotations

import contextlib
import ctypes
from types import SimpleNamespace

import pytest

from tilewright.backend.cuda.launch import PreparedLaunch
from tilewright.stencil import Launch


def device(arch):
    return SimpleNamespace(
        id="cuda:0", arch=arch, context=0, current=contextlib.nullcontext,
        spec=SimpleNamespace(multiprocessors=4),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "early", "told"),
    [("sm_90a", True, True), ("sm_100", True, True), ("sm_80", True, False),
     ("sm_90a", False, False)],
)  # fmt: skip
def test_a_launch_may_begin_early_where_the_device_can(monkeypatch, arch, early, told):
    """CUlaunchAttribute: its number, padding to 8 bytes, and 64 bytes of value."""
    calls = (lambda *_: 0, lambda at: 0)
    monkeypatch.setattr("tilewright.backend.cuda.launch._calls", lambda: calls)
    prepared = PreparedLaunch(device(arch), 1, Launch((9, 1), (32, 1), early=early), ())
    config = prepared._starts[0].config
    assert config.attribute_count == told
    if told:
        words = (ctypes.c_uint32 * 18).from_address(config.attributes)
        assert list(words) == [6, 0, 1, *[0] * 15]
