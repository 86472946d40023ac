"""Which arithmetic served a call, and on what grounds: what a report is told, and asked."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilewright.backend import Event, LiveDevice

__all__ = ["DECISION_WORDS", "Decision", "Grounds", "words_on"]

# guard.h: what `decide` writes; residues write as many.
DECISION_WORDS = 8

# Words whose decisions were read, for later calls, which allocate none then.
_spare: weakref.WeakKeyDictionary[LiveDevice, list[Any]] = weakref.WeakKeyDictionary()


def words_on(live: LiveDevice, first: NDArray[np.int32] | None = None) -> Any:
    """Return memory where a decision will be written, with its first words if there are any."""
    spare = _spare.setdefault(live, [])
    try:
        words = spare.pop()
    except IndexError:
        words = live.allocate(4 * DECISION_WORDS)
    if first is not None:
        live.write(words, first)
    return words


class Grounds(Protocol):
    """What the words mean that a guard leaves on the device."""

    def variant(self, words: NDArray[np.int32]) -> str:
        """Return which arithmetic served."""

    def reason(self, words: NDArray[np.int32]) -> str:
        """Return why, in one sentence."""

    def numbers(self, words: NDArray[np.int32]) -> dict[str, Any]:
        """Return what was measured as plain values."""

    def lines(self, words: NDArray[np.int32]) -> list[str]:
        """Return what was measured beside what it was compared with."""


class Decision:
    """Which arithmetic served one call of `tilewright.gemm`, and why.

    Give an empty one as ``report``.  The decision is made on the device while the call is
    under way; the first look at it waits for the device::

        told = tw.Decision()
        c = tw.gemm(a, b, accuracy="fp32", report=told)
        print(told.variant, told.reason)
    """

    def __init__(self) -> None:
        self._reading = threading.Lock()  # of whichever thread asks first
        self._forget()

    def _forget(self) -> None:
        self._live: LiveDevice | None = None
        self._memory: Any = None
        self._event: Event | None = None
        self._words: NDArray[np.int32] | None = None
        self._grounds: Grounds  # of `pending`
        self._variant = "ieee"
        self._reason = "nothing was multiplied"

    # -- told by gemm() --------------------------------------------------------------------

    def begin(self, accuracy: str) -> None:
        """Forget an earlier call; say what serves if nothing else is told."""
        self.words()
        self._forget()
        if accuracy == "ieee":
            self._reason = "accuracy is 'ieee'"

    def fixed(self, variant: str, reason: str) -> None:
        """Tell a decision that the host made."""
        self._variant, self._reason = variant, reason

    def pending(self, live: LiveDevice, memory: Any, event: Event, grounds: Grounds) -> None:
        """Tell where on a device the decision will be once an event has come, and what it means.

        The memory is this object's from now on.
        """
        self._live, self._memory, self._event = live, memory, event
        self._grounds = grounds
        # Nobody need ever look; the process's end frees everything by itself.
        self._unread = weakref.finalize(self, live.free, memory)
        self._unread.atexit = False

    # -- asked by whoever wants to know ----------------------------------------------------

    def words(self) -> NDArray[np.int32] | None:
        """Return what the guard left, once the device is done; None where the host decided."""
        with self._reading:
            if self._words is None and self._live is not None:
                words = np.empty(DECISION_WORDS, np.int32)
                assert self._event is not None
                self._event.wait()
                self._live.download(self._memory, words)
                self._unread.detach()
                _spare.setdefault(self._live, []).append(self._memory)
                self._words, self._live, self._memory, self._event = words, None, None, None
            return self._words

    @property
    def variant(self) -> str:
        """``"ieee"``, the name of a scheme, or ``"residues"``."""
        words = self.words()
        return self._variant if words is None else self._grounds.variant(words)

    @property
    def reason(self) -> str:
        """Why, in one sentence."""
        words = self.words()
        return self._reason if words is None else self._grounds.reason(words)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        words = self.words()
        told: dict[str, Any] = {"variant": self.variant, "reason": self.reason}
        return told if words is None else told | self._grounds.numbers(words)

    def explain(self) -> str:
        """Return a table of what was measured and what it was compared with."""
        words = self.words()
        lines = [] if words is None else self._grounds.lines(words)
        return "\n".join([f"{self.variant}: {self.reason}", *lines])

    def __repr__(self) -> str:
        return f"<Decision {self.variant}: {self.reason}>"

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy is told, in another process, too: the decision, once it is made."""
        self.words()
        told = ("_variant", "_reason", "_words", "_grounds")
        return {name: value for name, value in vars(self).items() if name in told}

    def __setstate__(self, told: dict[str, Any]) -> None:
        self.__init__()  # type: ignore[misc]
        vars(self).update(told)
