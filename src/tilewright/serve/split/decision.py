"""What a guard decided, and on what grounds."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tilewright.dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tilewright.backend import Event, LiveDevice

__all__ = [
    "DECISION_WORDS",
    "ROUTES",
    "TERMS_BF16",
    "TERMS_FP16",
    "Decision",
    "Grounds",
    "OfParts",
    "words_on",
]

# guard.h: what `decide` writes, and its numbers.
DECISION_WORDS = 8
ROUTES = ("ieee", "fp16x3", "bf16x6")
TERMS_FP16, TERMS_BF16, TERMS_A_CUT = 128, 64, 128


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


@dataclass(frozen=True)
class OfParts:
    """The guard of ``accuracy="fp32"``.

    Parameters
    ----------
    k : int
        Real terms of a sum.
    exchanged : bool
        Whether the kernels' A was the caller's b.
    """

    k: int
    exchanged: bool

    def variant(self, words: NDArray[np.int32]) -> str:
        """Return ``"ieee"``, or the name of a scheme."""
        return ROUTES[words[0]]

    def _words(self, words: NDArray[np.int32]) -> tuple[int, ...]:
        route, finite, seen, wide, *of_sides = (int(word) for word in words)
        if self.exchanged:
            of_sides = [of_sides[at] for at in (1, 0, 3, 2)]
        return route, finite, seen, wide, *of_sides

    def reason(self, words: NDArray[np.int32]) -> str:
        """Return why, in one sentence."""
        route, finite, seen, wide, cut_a, cut_b, short_a, short_b = self._words(words)
        if not finite:
            return "there is infinity or NaN among the operands"
        if route == 0 and seen >= TERMS_BF16:
            return "both operands' elements fit one part: single precision may add them exactly"
        if route == 0:
            return (
                f"only {max(0, seen)} terms are sure to count in every sum, of {TERMS_BF16} that"
                " make single precision err more than parts do"
            )
        if route == 1:
            short = " and one operand's elements fit one part" if short_a or short_b else ""
            return f"{seen if short else wide} terms or more count in every sum{short}"
        if not (short_a or short_b) and wide < TERMS_FP16:
            return (
                f"in {max(0, wide)} terms, fewer than {TERMS_FP16}, both factors have digits"
                " enough that FP16 parts may leave out what single precision keeps"
            )
        if seen < TERMS_FP16:
            return f"{seen} terms are sure to count in every sum, fewer than {TERMS_FP16}"
        return (
            f"up to {max(cut_a, cut_b)} elements of a sum are too small for FP16 beside the"
            f" largest, more than one in {TERMS_A_CUT} of {seen} terms"
        )

    def numbers(self, words: NDArray[np.int32]) -> dict[str, Any]:
        """Return what was counted."""
        names = ("finite", "terms", "wide_terms", "cut_a", "cut_b", "short_a", "short_b")
        return dict(zip(names, self._words(words)[1:], strict=True)) | {"k": self.k}

    def lines(self, words: NDArray[np.int32]) -> list[str]:
        """Return what was counted beside what it was compared with."""
        _, finite, seen, wide, cut_a, cut_b, short_a, short_b = self._words(words)
        return [
            f"  operands are finite            {'yes' if finite else 'no'}",
            f"  terms of a sum, k              {self.k}",
            f"  sure to count in every sum     {max(0, seen)}"
            f"  (bf16x6 from {TERMS_BF16}, fp16x3 from {TERMS_FP16} on)",
            f"  ... with both factors wide     {max(0, wide)}  (fp16x3 from {TERMS_FP16} on)",
            f"  cut by FP16, of a row of a     {cut_a}  (fp16x3 up to {seen // TERMS_A_CUT})",
            f"  ... of a column of b           {cut_b}",
            f"  elements fit one part          a: {'yes' if short_a else 'no'},"
            f" b: {'yes' if short_b else 'no'}  (of one: width does not matter)",
        ]


class Decision:
    """Which arithmetic served one call of `tilewright.gemm`, and why.

    Give an empty one as ``report``.  The decision is made on the device while the call is
    under way; the first look at it waits for the device::

        told = tw.Decision()
        c = tw.gemm(a, b, accuracy="fp32", report=told)
        print(told.variant, told.reason)
    """

    def __init__(self) -> None:
        self._live: LiveDevice | None = None
        self._memory: Any = None
        self._event: Event | None = None
        self._words: NDArray[np.int32] | None = None
        self._grounds: Grounds = OfParts(0, False)
        self._variant = "ieee"
        self._reason = "nothing was multiplied"

    # -- told by gemm() --------------------------------------------------------------------

    def begin(self, accuracy: str) -> None:
        """Forget an earlier call; say what serves if nothing else is told."""
        self.words()
        self.__init__()  # type: ignore[misc]  # the same as a new one
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
