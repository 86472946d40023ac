"""The device that every stencil's tests without a GPU run on."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.stencil.contract")

from tests.stencil.emulator import EmulatedDevice  # noqa: E402


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> EmulatedDevice:
    return EmulatedDevice(tmp_path_factory.mktemp("kernels"), multiprocessors=8)
