"""Processes that end with the one that started them, whatever becomes of it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial

# prctl(2): the signal that a process gets when its parent ends; Linux only.
_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, if only by a signal.

    Parameters
    ----------
    parent : int
        The parent's number: where it has ended before this call, so does this process.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a command that ends with this process, in a group with all that it starts."""
    at_first = partial(end_with_parent, os.getpid())
    return subprocess.Popen(command, start_new_session=True, preexec_fn=at_first)


def end(child: subprocess.Popen[bytes]) -> None:
    """Kill what `started` returned, and what it started, and wait for it."""
    with contextlib.suppress(ProcessLookupError):  # all of them have ended
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
