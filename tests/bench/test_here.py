"""Benchmarks of a GPU end in a line where there is none."""

from __future__ import annotations

import sys

import pytest

from tests.bench.test_proving import script
from tilewright.backend import BackendError


def test_without_a_gpu_a_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    here = script("hopper/here")
    live = object()
    monkeypatch.setattr(sys, "argv", ["benchmarks/some.py"])
    monkeypatch.setattr("tilewright.backend.device", lambda name: live)
    assert here.first_gpu() is live
    for reason in (ValueError("device='cuda:0' is not here"), BackendError("no driver")):

        def refuse(name: str, reason: Exception = reason) -> None:
            raise reason

        monkeypatch.setattr("tilewright.backend.device", refuse)
        with pytest.raises(SystemExit) as ended:
            here.first_gpu()
        assert str(ended.value) == f"some.py: {reason}"
