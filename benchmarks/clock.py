"""A benchmark's budget of time, and its progress."""

from __future__ import annotations

import time

__all__ = ["Clock"]


class Clock:
    """How much of the budget is left, and progress lines."""

    def __init__(self, seconds: float) -> None:
        self.started, self.seconds = time.monotonic(), seconds

    @property
    def left(self) -> float:
        """Seconds."""
        return self.seconds - (time.monotonic() - self.started)

    def say(self, *words: object) -> None:
        """Print a line with the time before it."""
        print(f"[{time.monotonic() - self.started:6.1f} s]", *words, flush=True)
