"""The device that every stencil's tests without a GPU run on."""

from __future__ import annotations

import pytest

from tests.stencil.emulator import EmulatedDevice


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> EmulatedDevice:
    return EmulatedDevice(tmp_path_factory.mktemp("kernels"), multiprocessors=8)
