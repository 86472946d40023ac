"""Plans of products on tensor cores: the operands' addresses are in tensor maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.library.plan import Plan
from tilewright.stencil.wgmma.call import ALIGNMENT
from tilewright.timeline import traced

if TYPE_CHECKING:
    from tilewright.backend.cuda.launch import PreparedLaunch
    from tilewright.library.gemm import Prepared
    from tilewright.library.narrow_units import Ready
    from tilewright.library.scratch import Scratch

__all__ = ["CopiedPlan", "NarrowPlan"]

# Where tilewright.stencil.wgmma.call has the scalars, the maps and C's address.
_ALPHA, _A, _B, _BETA, _C = 3, 4, 5, 6, 7

# Where realign.cl has the address it reads from.
_COPIED = 2


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


class CopiedPlan(NarrowPlan):
    """The same with copies of operands before it, in scratch memory of one stream.

    It is good for as long as the scratch memory stays where it is.

    Parameters
    ----------
    launches : Ready
        The copies, then the product.
    copied : tuple of bool
        Whether the caller's a, and his b, are copied.
    scratch : Scratch
        Whose memory the copies are in; its `prepared` keeps `launches` while they are good.
    stream : int
        Its stream.
    plan : tuple
        Parameters of `NarrowPlan` but the launch.
    """

    def __init__(
        self,
        launches: Ready,
        copied: tuple[bool, bool],
        scratch: Scratch,
        stream: int,
        plan: tuple[Any, ...],
    ) -> None:
        self._launches, self._copied = launches, copied
        self._scratch, self._stream = scratch, stream
        super().__init__(launches.launches[-1], *plan)
        self._enqueue = traced("launch", self._enqueue_all)
        # Only what is taken in place has to be aligned.
        wanted = (0 if here else self._misaligned for here in copied)
        self._misaligned_a, self._misaligned_b = wanted
        self._misaligned = 0

    def _slots(self, exchanged: bool) -> tuple[Any, Any, Any]:
        a, b, c = super()._slots(exchanged)
        # Copies come in the kernel's order, which an exchange turns round.
        copies = list(self._launches.launches[:-1])
        found = {"a": a, "b": b}
        for name in "ba" if exchanged else "ab":
            if self._copied["ab".index(name)]:
                found[name] = copies.pop(0).arguments.slot(_COPIED)
        return found["a"], found["b"], c

    def start(self, a: int, b: int, c: int, alpha: Any, beta: Any, stream: int) -> bool:
        """Enqueue all; return False where a closer look is needed first."""
        if stream != self._stream or a & self._misaligned_a or b & self._misaligned_b:
            return False
        with self._scratch.lock:
            if self._scratch.prepared.get(id(self._launches)) is not self._launches:
                return False
            return super().start(a, b, c, alpha, beta, stream)

    def _enqueue_all(self, stream: int) -> None:
        *copies, product = self._launches.launches
        for launch in copies:
            with launch.lock:
                launch.enqueue(stream)
        product.enqueue(stream)  # whose lock `start` holds
