"""Real disks that are full or read-only: a small file system of its own where the user is root."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["fill", "small_disk"]


def _run(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@contextmanager
def small_disk(folder: Path, size: str, *, read_only: bool = False) -> Iterator[Path]:
    """Mount a file system of memory in a folder; skip the test where that is not allowed."""
    folder.mkdir(mode=0o700, exist_ok=True)
    options = f"size={size},mode=700"
    if os.geteuid() != 0 or not _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)):
        pytest.skip("mounting a file system needs root")
    try:
        if read_only:
            assert _run("mount", "-o", "remount,ro", str(folder))
        yield folder
    finally:
        assert _run("umount", "-l", str(folder))


def fill(folder: Path, leave: int = 0) -> None:
    """Fill the disk that a folder is on but for some bytes."""
    left = os.statvfs(folder)
    size = left.f_bavail * left.f_frsize - leave
    with (folder / "fill").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
