"""Where Tilewright keeps its files, and how it writes one without leaving half of it.

Kernels are compiled from what lies in these directories and run with the user's
rights, so a directory that somebody else can write to is refused.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

__all__ = [
    "UnsafeDirectoryError",
    "cache_dir",
    "check_writable",
    "data_dir",
    "private_directory",
    "write_atomically",
]


class UnsafeDirectoryError(OSError):
    """A directory that must be private is not; the message is one line that says what to do."""


def data_dir() -> Path:
    """Return the directory of what cannot be made again: measurements.

    ``$TILEWRIGHT_DATA_DIR`` where that is set, else the platform's place for
    user data.  It is created with mode 0700 if it does not exist.

    Raises
    ------
    UnsafeDirectoryError
        As for `private_directory`.
    """
    return _chosen("TILEWRIGHT_DATA_DIR", "user_data_path")


def cache_dir() -> Path:
    """Return the directory of what can be made again: compiled kernels.

    ``$TILEWRIGHT_CACHE_DIR`` where that is set, else the platform's cache
    directory.  It is created with mode 0700 if it does not exist.

    Raises
    ------
    UnsafeDirectoryError
        As for `private_directory`.
    """
    return _chosen("TILEWRIGHT_CACHE_DIR", "user_cache_path")


def _chosen(variable: str, of_platform: str) -> Path:
    """Return the private directory named by a variable, else the platform's."""
    named = os.environ.get(variable)
    if not named:
        import platformdirs  # 5 ms of a first call that most need not wait for

        place = getattr(platformdirs, of_platform)
        return private_directory(place("tilewright", appauthor=False))
    try:
        return private_directory(Path(named).expanduser())
    except RuntimeError:  # of a user that there is not
        raise UnsafeDirectoryError(f"{variable}={named!r} is nobody's; name a directory") from None


def private_directory(path: str | os.PathLike[str]) -> Path:
    """Return a directory that only its owner, who is this user, can write to.

    A missing one is created with mode 0700.  An existing one is never changed:
    whoever gave it its mode may have had a reason, so it is checked instead.

    Raises
    ------
    UnsafeDirectoryError
        If it cannot be created, is not a directory, belongs to another user, or
        its group or everybody may write to it.
    """
    directory = Path(path)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.stat()
    except FileExistsError:
        raise UnsafeDirectoryError(f"{directory} is not a directory; move it away") from None
    except OSError as problem:
        raise UnsafeDirectoryError(
            f"{directory} cannot be created ({problem.strerror}); name another directory"
        ) from None
    if hasattr(os, "geteuid"):  # Windows keeps a user's own directories private by ACLs
        if found.st_uid != os.geteuid():
            raise UnsafeDirectoryError(
                f"{directory} belongs to another user; name a directory of your own"
            )
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UnsafeDirectoryError(
                f"{directory} can be written to by other users; run: chmod 700 {directory}"
            )
    return directory


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a file that cannot be written, before the work whose result it is to hold.

    Raises
    ------
    OSError
        If `path` is something other than a plain file, or in no directory that can be written to.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        raise OSError(f"{target} is not a plain file; name another")
    if not target.parent.is_dir():
        raise OSError(f"{target} is in no directory that is there; make it, or name another")
    if not os.access(target.parent, os.W_OK):
        raise OSError(f"{target.parent} cannot be written to; name another directory")


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that readers see the old content or all of the new.

    The bytes go to a new file in the same directory, reach the disk, and then
    take the name.  A kill at any moment leaves at most a stray ``.tmp`` file.

    Raises
    ------
    OSError
        If the directory cannot be written to, or `path` is something other than
        a plain file; the old content is still there.
    """
    check_writable(path)
    target = Path(path)
    temporary = target.with_name(f".tilewright-{secrets.token_hex(8)}.tmp")
    # 0666 less the umask: the mode that a file written plainly would have.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def _sync_directory(directory: Path) -> None:
    """Let the new name reach the disk too, where directories can be synchronised."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
