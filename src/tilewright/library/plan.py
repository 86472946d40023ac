"""Plans: calls of gemm() that were made once, ready to be made again at little cost.

A warm call looks its plan up by the arrays' layout, writes three addresses (and the
scalars, if they changed) into the laid-out arguments, and launches.  Nothing is checked
twice: a plan exists only for a call that passed every check, and what the layout does not
fix (alignment, overlap, scalars) is looked at by `Plan.start`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from tilewright.portfolio.find import generation
from tilewright.timeline import on_change, traced

if TYPE_CHECKING:
    from tilewright.backend.cuda.launch import PreparedLaunch
    from tilewright.library.gemm import Prepared

__all__ = ["Plan", "Plans", "plans"]

# Where the ABI of tilewright.stencil.base has the scalars and the matrices' addresses.
_ALPHA, _A, _B, _BETA, _C = 3, 5, 8, 11, 13

# Some hundred layouts are alive in any program we know of.
_MOST_PLANS = 4096
_MOST_DISTANCES = 256


class Plan:
    """One kernel, grid and argument block for calls that differ in addresses and scalars.

    Parameters
    ----------
    launch : PreparedLaunch
        What is enqueued.
    made : Prepared
        Where it comes from; alpha is not 0.
    shape : tuple of int
        Of the result, as the caller sees it.
    extents : tuple of int
        Bytes from the first to the last of the caller's a, b and c.
    """

    def __init__(
        self,
        launch: PreparedLaunch,
        made: Prepared,
        shape: tuple[int, int],
        extents: tuple[int, int, int],
    ) -> None:
        self.shape = shape
        self._made = made  # keeps the kernel loaded
        self._launch = launch
        self._lock = launch.lock
        self._enqueue = traced("launch", launch.enqueue)  # itself, unless a timeline is recorded
        self.dtype: Any = None  # of a new result, as the caller's library has it; None: as a's
        self._a, self._b, self._c = self._slots(made.exchanged)
        self._size_a, self._size_b, self._size_c = extents
        self._misaligned = made.call.precision.element_bytes - 1  # a power of two, less one
        self._misaligned_c = self._misaligned
        self._apart: set[tuple[int, int]] = set()
        # What the block holds now; None stands for objects whose value may change.
        self._alpha: Any = None
        self._beta: Any = None

    def _slots(self, exchanged: bool) -> tuple[Any, Any, Any]:
        """Return where the addresses of the caller's a, b and c are written."""
        slot = self._launch.arguments.slot
        first, second = (_B, _A) if exchanged else (_A, _B)
        return slot(first), slot(second), slot(_C)

    def accept(self, a: int, b: int, c: int) -> None:
        """Remember that arrays so far from one another share no element."""
        if len(self._apart) >= _MOST_DISTANCES:
            self._apart.clear()
        self._apart.add((c - a, c - b))

    def start(self, a: int, b: int, c: int, alpha: Any, beta: Any, stream: int) -> bool:
        """Enqueue the product; return False where a closer look is needed first.

        Parameters
        ----------
        a, b, c : int
            Addresses of the caller's arrays.
        alpha, beta : scalar
            As the caller gave them.
        stream : int
            Address of a stream.
        """
        if (a | b) & self._misaligned or c & self._misaligned_c:
            return False
        end = c + self._size_c
        if ((a < end and c < a + self._size_a) or (b < end and c < b + self._size_b)) and (
            c - a,
            c - b,
        ) not in self._apart:
            return False
        with self._lock:
            if (alpha is not self._alpha or beta is not self._beta) and not self._scale(
                alpha, beta
            ):
                return False
            self._a.value = a
            self._b.value = b
            self._c.value = c
            self._enqueue(stream)
        return True

    def _scale(self, alpha: Any, beta: Any) -> bool:
        """Write other scalars; False where they are not for this plan."""
        from tilewright.library.gemm import check_scalars

        precision = self._made.call.precision
        try:
            check_scalars(alpha, beta, precision, self)  # there is a C by now, given or new
        except ValueError:
            return False
        if complex(alpha) == 0:
            return False
        for position, value in zip((_ALPHA, _BETA), (alpha, beta), strict=True):
            for part, number in enumerate(precision.scalar(value)):
                self._launch.arguments.put(position + part, number)
        self._keep(alpha, beta)
        return True

    def _keep(self, alpha: Any, beta: Any) -> None:
        """Remember which scalars the block holds."""
        fixed = (int, float, complex)
        self._alpha = alpha if type(alpha) in fixed else None
        self._beta = beta if type(beta) in fixed else None


class Plans:
    """Plans by what calls must have in common; forgotten when other kernels are to serve."""

    def __init__(self) -> None:
        self._plans: dict[Hashable, Plan] = {}
        self._seen = generation()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._plans)

    def get(self, key: Hashable) -> Plan | None:
        """Return the plan for a call, or None if it has to be made."""
        if self._seen != generation():
            self.clear()
        return self._plans.get(key)

    def remember(self, key: Hashable, make: Callable[[], Plan]) -> Plan:
        """Return the plan for a call that has just been made in full."""
        with self._lock:
            found = self._plans.get(key)
            if found is None:
                if len(self._plans) >= _MOST_PLANS:
                    self._plans.clear()
                found = self._plans[key] = make()
            return found

    def replace(self, key: Hashable, plan: Plan) -> None:
        """Keep a plan for a call, in another one's place if that is no longer good."""
        with self._lock:
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = plan

    def clear(self) -> None:
        """Forget all plans: the next calls choose anew."""
        with self._lock:
            self._seen = generation()
            self._plans.clear()


plans = Plans()
on_change(plans.clear)  # plans keep functions that record, or that do not
