"""What every route makes: launches, laid out for one call, in memory that has names.

Memory is a plan's (`tilewright.serve.plan`), whose addresses are made up, or one call's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tilewright.backend import Kernel
from tilewright.dataclass import dataclass
from tilewright.serve.arrange import Repeat
from tilewright.stencil import Launch

__all__ = ["Laid", "MemorySpace", "Step"]

Step = tuple[Kernel, Launch, tuple[Any, ...]]
"""A kernel with its grid and its arguments."""


class MemorySpace(Protocol):
    """Where a route's memory besides the operands comes from."""

    def need(self, name: str, size: int, *, zeroed: bool = False) -> Any:
        """Return a piece of a name, of at least so many bytes."""

    @property
    def zero(self) -> Any:
        """Return memory with one int, 0, that nobody writes."""


@dataclass(frozen=True)
class Laid:
    """Launches of a call.

    Parameters
    ----------
    steps : sequence
        The first one first.
    name : str
        What a timeline calls them.
    arithmetic : str
        Which scheme was laid out; empty for IEEE arithmetic.
    why : str
        Why that, in one sentence.
    guarded : bool
        Whether the device decides while the call is under way.
    repeats : tuple of Repeat
        How all of them are repeated, in elements, the slowest first.
    """

    steps: Sequence[Step]
    name: str = "gemm"
    arithmetic: str = ""
    why: str = ""
    guarded: bool = False
    repeats: tuple[Repeat, ...] = ()
