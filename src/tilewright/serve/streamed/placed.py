"""Matrices in the memory of CUDA devices, of which parts are used in place or copied to others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tilewright.backend import Operand
from tilewright.serve.streamed.tiling import Piece, longest

__all__ = ["DeviceLines", "PlacedMatrix"]

# Bytes: kernels that copy by 16 take operands that begin and go on at multiples of it.
_ALIGNMENT = 16


class DeviceLines(NamedTuple):
    """Lines of a matrix on a device.

    Parameters
    ----------
    live : CUDADevice
        Where they are.
    address, step : int
        Of the first one, and bytes from one to the next.
    shape : (int, int)
        Lines, and elements of each.
    itemsize : int
        Bytes of an element.
    """

    live: Any
    address: int
    step: int
    shape: tuple[int, int]
    itemsize: int


class PlacedMatrix:
    """A matrix on a device, seen as `HostMatrix` shows those of the host.

    Parameters
    ----------
    live : CUDADevice
        Where it is.
    operand : Operand
        Its address, and elements from a line to the next.
    row_major : bool
        Whether lines are rows.
    itemsize : int
        Bytes of an element.
    """

    def __init__(self, live: Any, operand: Operand, row_major: bool, itemsize: int) -> None:
        self.live, self.row_major = live, row_major
        self._operand, self.itemsize = operand, itemsize

    def is_on(self, live: Any) -> bool:
        """Whether it is on this device, as aligned as copies are: bits may depend on it."""
        step = self._operand.ld * self.itemsize
        aligned = self._operand.memory % _ALIGNMENT == step % _ALIGNMENT == 0
        return bool(aligned and live.backend == "cuda" and live.ordinal == self.live.ordinal)

    def is_wider_than(self, rows: Sequence[Piece], columns: Sequence[Piece]) -> bool:
        """Whether parts of these rows and columns are no dense matrices, as tiles are not."""
        return bool(self._operand.ld > longest(columns if self.row_major else rows))

    def operand(self, rows: Piece, columns: Piece) -> Operand:
        """Return a part as a kernel's operand."""
        return Operand(self._address(rows, columns), 0, self._operand.ld)

    def lines(self, rows: Piece, columns: Piece) -> DeviceLines:
        """Return a part as lines."""
        (top, bottom), (left, right) = (rows, columns) if self.row_major else (columns, rows)
        shape = bottom - top, right - left
        step, size = self._operand.ld * self.itemsize, self.itemsize
        return DeviceLines(self.live, self._address(rows, columns), step, shape, size)

    def _address(self, rows: Piece, columns: Piece) -> int:
        line, within = (rows, columns) if self.row_major else (columns, rows)
        elements = line[0] * self._operand.ld + within[0]
        return int(self._operand.memory) + elements * self.itemsize
