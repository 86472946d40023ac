"""Fixtures of tests that run where libcuda.so.1 is the driver of tests."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.core.inside.arrays import know_them, now
from tests.core.inside.driver import CONTEXT, OTHER, Device, Driver
from tests.core.inside.remembering import plan_of
from tilewright.backend.cuda import driver as words
from tilewright.serve import warm
from tilewright.serve.plan import core


@pytest.fixture(scope="session")
def _driver() -> Driver:
    assert os.environ.get("FAKE_CUDA_HERE"), "run tests/core/test_native.py"
    return Driver()


@pytest.fixture
def driver(_driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """The driver of tests; it has nothing to say of statuses."""
    monkeypatch.setattr(words, "driver", lambda: None)
    for context in (CONTEXT, OTHER):  # whose arenas another test has left
        core().tilewright_arena_release(ctypes.c_void_p(context))
    _driver.reset()
    return _driver


@pytest.fixture
def device(driver: Driver) -> Device:
    """A Hopper GPU over it."""
    return Device(driver)


@pytest.fixture
def knowing(driver: Driver) -> Iterator[None]:
    """Let the table know stand-ins of CuPy and PyTorch, and nothing else."""
    know_them()
    now.streams, now.grad, now.error, now.before = {0: 7, 1: 8}, True, None, None
    now.made_on = now.memory = None
    warm.forget()
    yield
    warm.forget()


@pytest.fixture
def plan(driver: Driver, device: Device) -> Any:
    """A plan that is told all that differs from call to call."""
    return plan_of(driver, device)
