"""One tuner or benchmark a device at a time: under each other's load both would time wrong."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path

from tilewright.backend import LiveDevice, devices
from tilewright.paths import data_dir, locked, private_directory

__all__ = ["alike", "alone_on"]

# A lock may be taken again by what its holder starts, such as the tuner of a benchmark.
_of_process: dict[Path, threading.RLock] = {}
_depth: dict[Path, int] = {}
_making = threading.Lock()


def _on_standard_error(line: str) -> None:
    sys.stderr.write(f"tilewright: {line}\n")


def alike(live: LiveDevice) -> list[LiveDevice]:
    """Return the other GPUs of this host whose times may be compared with a CUDA device's."""
    return [
        one
        for one in (devices() if live.backend == "cuda" else ())
        if one.id != live.id and one.fingerprint == live.fingerprint
    ]


@contextmanager
def alone_on(
    live: LiveDevice, what: str, tell: Callable[[str], None] = _on_standard_error
) -> Iterator[None]:
    """Measure on a device while no other process of this user does.

    Parameters
    ----------
    live : LiveDevice
        The device.
    what : str
        What it is used for, to tell others.
    tell : callable
        Called with a line that says who has it, where one has to wait.

    Notes
    -----
    Those that share a data directory exclude each other, and a lock ends with its process,
    however that ends.
    """
    path = private_directory(data_dir(to_write=True) / "locks") / live.hardware_key
    with _making:
        mine = _of_process.setdefault(path, threading.RLock())
    with mine:
        if _depth.get(path):
            yield
            return
        _depth[path] = 1
        try:
            with _held(path, live, tell):
                _sign(path, what)
                yield
        finally:
            _depth[path] = 0


@contextmanager
def _held(path: Path, live: LiveDevice, tell: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock's file; wait for another holder, and say for whom."""
    with ExitStack() as held:
        try:
            held.enter_context(locked(path, wait=False))
        except BlockingIOError:
            tell(f"{live.id} is in use by {_holder(path)}; waiting until it ends")
            held.enter_context(locked(path))
        except OSError:  # some network file systems have no locks
            pass
        yield


def _sign(path: Path, what: str) -> None:
    """Write down who has the device; a full disk must not keep anybody from it."""
    with suppress(OSError):
        began = datetime.now().astimezone().isoformat(timespec="seconds")
        path.write_text(json.dumps({"process": os.getpid(), "what": what, "since": began}))


def _holder(path: Path) -> str:
    """Return who has a device, in words."""
    try:
        told = json.loads(path.read_text())
        return f"process {int(told['process'])} ({told['what']}, since {told['since']})"
    except (OSError, ValueError, KeyError, TypeError):  # it has not signed yet
        return "another process"
