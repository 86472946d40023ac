"""The devices that stencils' tests run on, without a GPU and with one."""

from __future__ import annotations

import pytest

from tests.stencil.emulator import EmulatedDevice
from tilewright.backend import LiveDevice
from tilewright.stencil.simt_async import SimtAsync


@pytest.fixture
def copying(cuda: LiveDevice) -> LiveDevice:
    """A GPU that copies to shared memory asynchronously."""
    if not SimtAsync().suits(cuda.spec):
        pytest.skip(f"{cuda} does not copy asynchronously")
    return cuda


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> EmulatedDevice:
    return EmulatedDevice(tmp_path_factory.mktemp("kernels"), multiprocessors=8)
