"""Processes that end with the one that started them."""

from __future__ import annotations

import os
import threading
import time

__all__ = ["end_with"]

# Seconds between two looks at the parent.
_SECONDS = 0.5


def end_with(parent: int) -> None:
    """End this process when the one with the id `parent` ends, whatever it is doing then.

    A thread watches, rather than Linux's death signal: that one fires when the *thread* that
    started this process ends.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
