"""The device that all tests of this folder run the kernels' text on."""

from __future__ import annotations

import pytest

from tests.stencil.emulator import EmulatedDevice, compiler


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> EmulatedDevice:
    if compiler() is None:
        pytest.skip("needs g++ or clang++")
    return EmulatedDevice(tmp_path_factory.mktemp("kernels"), words="wgmma_words.h")


@pytest.fixture
def emulated(emulator: EmulatedDevice) -> EmulatedDevice:
    """Orders of threads are drawn by the number of a launch: alike whatever ran before."""
    emulator.launches = 0
    return emulator
