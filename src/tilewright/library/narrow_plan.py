"""Plans of products on tensor cores: the operands' addresses are in tensor maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.library.plan import Plan
from tilewright.stencil.wgmma.call import ALIGNMENT

if TYPE_CHECKING:
    from tilewright.backend.cuda.launch import PreparedLaunch
    from tilewright.library.gemm import Prepared

__all__ = ["NarrowPlan"]

# Where tilewright.stencil.wgmma.call has the scalars, the maps and C's address.
_ALPHA, _A, _B, _BETA, _C = 3, 4, 5, 6, 7


class _Map:
    """A tensor map whose address is set like an argument's; the plan's lock is held."""

    def __init__(self, launch: PreparedLaunch, position: int) -> None:
        self._launch, self._position = launch, position
        self._now: int | None = None

    @property
    def value(self) -> int | None:
        """Return where the map begins, once it was set."""
        return self._now

    @value.setter
    def value(self, address: int) -> None:
        if address != self._now:
            self._launch.move(self._position, address)
            self._now = address


class NarrowPlan(Plan):
    """One kernel, grid and argument block for calls that differ in addresses and scalars.

    Parameters
    ----------
    launch, made, shape, extents
        As of `Plan`.
    result : str
        Type of C; "int32" takes integers as scalars.
    dtype : object
        The same as the caller's library has it.
    """

    def __init__(
        self,
        launch: PreparedLaunch,
        made: Prepared,
        shape: tuple[int, int],
        extents: tuple[int, int, int],
        result: str,
        dtype: Any,
    ) -> None:
        super().__init__(launch, made, shape, extents)
        self._scalar = np.int32 if result == "int32" else np.float32
        self.dtype = dtype
        self._misaligned = ALIGNMENT - 1
        self._misaligned_c = (2 if result in ("float16", "bfloat16") else 4) - 1

    def _slots(self, exchanged: bool) -> tuple[Any, Any, Any]:
        maps = _Map(self._launch, _A), _Map(self._launch, _B)
        first, second = maps[::-1] if exchanged else maps
        return first, second, self._launch.arguments.slot(_C)

    def _scale(self, alpha: Any, beta: Any) -> bool:
        from tilewright.library.narrow import scalars_of

        try:
            values = scalars_of(alpha, beta, self, whole=self._scalar is np.int32)
        except ValueError:
            return False
        if values[0] == 0:
            return False
        for position, value in zip((_ALPHA, _BETA), values, strict=True):
            self._launch.arguments.put(position, self._scalar(value))
        self._keep(alpha, beta)
        return True
