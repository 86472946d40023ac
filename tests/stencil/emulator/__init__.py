"""Runs a CUDA kernel source on the CPU, so that it is checked where there is no GPU."""

from tests.stencil.emulator.device import EmulatedDevice, compiler

__all__ = ["EmulatedDevice", "compiler"]
