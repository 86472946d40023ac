"""Where Tilewright keeps its files, and how it writes one without leaving half of it.

Kernels are compiled from what lies in these directories and run with the user's
rights, so a directory that somebody else can write to is refused.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

__all__ = [
    "MAKING",
    "NoDirectoryError",
    "UnsafeDirectoryError",
    "cache_dir",
    "check_writable",
    "data_dir",
    "has_room",
    "locked",
    "private_directory",
    "process_directory",
    "remove_directories_of",
    "served_instead",
    "sweep",
    "temporary_directory",
    "write_atomically",
    "write_json",
    "written_atomically",
]

# A directory this old that nobody holds is of a process that was killed; a younger one may not
# have its lock yet.
_STALE_SECONDS = 60.0


# Nothing takes longer to be written or compiled.
_MAKING_SECONDS = 3600.0

# What files and folders that are being made are called.
_TEMPORARY = ".tilewright-"
MAKING = ".making-"

_USER = os.geteuid() if hasattr(os, "geteuid") else 0

# A disk, or a user's share of it, has no more room.
_FULL = (errno.ENOSPC, errno.EDQUOT)

# Of temporary directories.
_PREFIX = f"tilewright-{_USER}-"


class UnsafeDirectoryError(OSError):
    """A directory that must be private is not; the message is one line that says what to do."""


class NoDirectoryError(UnsafeDirectoryError):
    """A directory cannot be made, or not be written to."""


def data_dir(*, to_write: bool = False) -> Path:
    """Return the directory of what cannot be made again: measurements.

    ``$TILEWRIGHT_DATA_DIR`` where that is set, else the platform's place for
    user data.  It is created with mode 0700 if it does not exist.  Where it cannot be, a
    temporary one serves until this process ends, with one warning.

    Parameters
    ----------
    to_write : bool
        Whether one that can only be read is of no use.

    Raises
    ------
    UnsafeDirectoryError
        As for `private_directory`, if others can write to it.
    """
    return _usable("TILEWRIGHT_DATA_DIR", "user_data_path", to_write=to_write)


def cache_dir() -> Path:
    """Return the directory of what can be made again: compiled kernels.

    ``$TILEWRIGHT_CACHE_DIR`` where that is set, else the platform's cache
    directory.  It is created with mode 0700 if it does not exist.  Where it cannot be, or
    nothing can be written to it, a temporary one serves until this process ends, with one
    warning.

    Raises
    ------
    UnsafeDirectoryError
        As for `private_directory`, if others can write to it.
    """
    return _usable("TILEWRIGHT_CACHE_DIR", "user_cache_path", to_write=True)


def _usable(variable: str, of_platform: str, *, to_write: bool) -> Path:
    """Return the chosen directory, or the one that serves instead."""
    try:
        chosen = _chosen(variable, of_platform)
        if to_write and not os.access(chosen, os.W_OK | os.X_OK):
            raise NoDirectoryError(f"{chosen} cannot be written to")
    except NoDirectoryError as problem:
        return served_instead(problem)
    return chosen


def served_instead(problem: NoDirectoryError) -> Path:
    """Return the temporary directory that serves where another cannot; the first time, say so."""
    serving = temporary_directory()
    _warn_once(
        f"{problem}: {serving} serves until this process ends; to keep what is made, set"
        " TILEWRIGHT_CACHE_DIR (compiled kernels) and TILEWRIGHT_DATA_DIR (measurements)"
    )
    return serving


_warned: list[str] = []


def _warn_once(text: str) -> None:
    if not _warned:
        import warnings

        _warned.append(text)
        warnings.warn(text, RuntimeWarning, stacklevel=4)


@lru_cache(maxsize=1)
def temporary_directory() -> Path:
    """Return a private directory that is removed when this process ends.

    Raises
    ------
    NoDirectoryError
        If the system has no place for temporary files.
    """
    import tempfile  # most processes need none

    try:
        return process_directory(Path(tempfile.gettempdir()), _PREFIX)
    except OSError as problem:
        raise NoDirectoryError(
            f"there is no directory for temporary files ({problem.strerror});"
            " set TILEWRIGHT_CACHE_DIR and TILEWRIGHT_DATA_DIR"
        ) from None


def process_directory(parent: Path, prefix: str) -> Path:
    """Return a new private directory that is removed when this process ends.

    Those of processes that were killed are removed here.

    Raises
    ------
    OSError
        If it cannot be made.
    """
    _remove_abandoned(parent, prefix)
    import secrets  # most processes need none

    made = parent / f"{prefix}{os.getpid()}-{secrets.token_hex(8)}"
    made.mkdir(mode=0o700)
    held = contextlib.ExitStack()
    with contextlib.suppress(OSError):  # some network file systems have no locks
        held.enter_context(locked(made / ".lock"))
    process = os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # a forked child is not the owner
            held.close()
            _remove_tree(made)

    atexit.register(remove)
    return made


def remove_directories_of(process: int, *, prefix: str) -> None:
    """Remove the directories below the cache and the temporary one of a process that was killed."""
    import tempfile

    for parent, name in ((cache_dir(), prefix), (Path(tempfile.gettempdir()), _PREFIX)):
        for one in parent.glob(f"{name}{process}-*"):
            with contextlib.suppress(OSError), locked(one / ".lock", wait=False):
                _remove_tree(one)


def _remove_abandoned(parent: Path, prefix: str) -> None:
    """Remove this user's process directories that no process holds."""
    for one in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            found = one.lstat()
            old = time.time() - found.st_mtime > _STALE_SECONDS
            if not (old and stat.S_ISDIR(found.st_mode) and found.st_uid == _USER):
                continue
            with locked(one / ".lock", wait=False):
                _remove_tree(one)


def _remove_tree(directory: Path) -> None:
    import shutil

    shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock among processes, where the system has such locks; it ends with its holder.

    Parameters
    ----------
    path : Path
        The lock's file, which is made if it is not there and stays.
    wait : bool
        Whether to wait for another holder.

    Raises
    ------
    BlockingIOError
        If another process holds it and `wait` is false.
    OSError
        If the file cannot be made.
    """
    try:
        import fcntl
    except ImportError:  # not on POSIX
        yield
        return
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def has_room(directory: Path, size: int) -> bool:
    """Whether files of `size` bytes can be written in a directory, and others' as well.

    Four times as much has to be free: other processes write at the same time.  One part is
    reserved for a moment, for quotas and limits of the process count, too, of which the free
    space of a file system says nothing.
    """
    import shutil
    import tempfile

    try:
        if shutil.disk_usage(directory).free < 4 * size:
            return False
        with tempfile.TemporaryFile(dir=directory) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            return True
    except OSError:
        return False


def _chosen(variable: str, of_platform: str) -> Path:
    """Return the private directory named by a variable, else the platform's."""
    named = os.environ.get(variable)
    if not named:
        import platformdirs  # 5 ms of a first call that most need not wait for

        place = getattr(platformdirs, of_platform)("tilewright", appauthor=False)
        if not place.is_absolute():  # "~", of a user without a home
            raise NoDirectoryError("this user has no home directory")
        return private_directory(place)
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
        raise NoDirectoryError(f"{directory} cannot be made ({problem.strerror})") from None
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

    Raises
    ------
    OSError
        As of `written_atomically`.
    """
    with written_atomically(path) as file:
        file.write(data)


@contextlib.contextmanager
def written_atomically(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Give a new file to a ``with`` block, which takes the name when all of it is written.

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
    import secrets

    temporary = target.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}.tmp")
    # 0666 less the umask: the mode that a file written plainly would have.
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as problem:
        temporary.unlink(missing_ok=True)
        if isinstance(problem, OSError) and problem.errno in _FULL and problem.filename is None:
            problem.filename = str(target)  # the system names none where writing fails
        raise
    _sync_directory(target.parent)


def write_json(path: str | os.PathLike[str], document: Any) -> None:
    """Write a JSON document as `write_atomically` does."""
    import json  # a process that serves writes none

    write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())


def sweep(directory: Path) -> None:
    """Remove what killed processes left of files and folders that they were making."""
    for name in (f"{_TEMPORARY}*.tmp", f"{MAKING}*"):
        for one in directory.glob(name):
            with contextlib.suppress(OSError):
                if time.time() - one.lstat().st_mtime > _MAKING_SECONDS:
                    _remove_tree(one) if one.is_dir() else one.unlink()


def _sync_directory(directory: Path) -> None:
    """Let the new name reach the disk too, where directories can be synchronised."""
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
