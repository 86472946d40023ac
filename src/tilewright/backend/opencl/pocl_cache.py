"""PoCL's compile cache: a directory of each process's own, kept in ours in checked pieces.

PoCL loads whatever lies in its cache directory: a file that is damaged, half written or just
being removed by another process ends the process that loads it.  So PoCL gets a new directory in
each process.  What it compiles there is packed under our own key, with a digest, and unpacked
before PoCL looks for it in the next process.  PoCL 3 writes::

    XX/YYYY..../program.bc                     a program, named by a digest of what it is made of
    XX/YYYY..../KERNEL/8-1-1-goffs0/KERNEL.so  a kernel, once for each local size and range of grids
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from tilewright.backend.base import HostError
from tilewright.backend.cache import KernelCache
from tilewright.paths import (
    NoDirectoryError,
    cache_dir,
    has_room,
    process_directory,
    served_instead,
)

__all__ = [
    "PREFIX",
    "ROOM_BYTES",
    "Compiled",
    "PoclCache",
    "pocl_cache",
    "roomy_directory",
    "starting",
]

T = TypeVar("T")

# Of the directories of all processes.
PREFIX = "pocl-"

_VARIABLE = "POCL_CACHE_DIR"

# LLVM ends the process when it cannot write.  A large kernel of the portable stencil takes PoCL
# 2.4 MB with all that is between; several processes may be compiling.
ROOM_BYTES = 16 * 2**20

# PoCL compiles kernels for grids that are less wide than this apart (POCL: "smallgrid").
_SMALL_GRID = 2**16 - 1


class Compiled:
    """What PoCL has of one program.

    Parameters
    ----------
    folder : Path
        Where it is in PoCL's directory.
    save : callable
        Packs the files of a folder and keeps them.
    is_kept : bool
        Whether all that there is was unpacked.
    """

    def __init__(
        self, folder: Path, save: Callable[[Path, list[Path]], None], *, is_kept: bool
    ) -> None:
        self.folder = folder
        self.users = 1
        self._save = save
        self._saved = len(self._files()) if is_kept else 0
        self._launched: set[tuple[str, tuple[int, ...], bool]] = set()
        self._first: list[Any] = []

    def begun(self, event: Any) -> None:
        """Note the event of a launch that PoCL may still compile for, in a thread of its own."""
        self._first.append(event)

    def is_needed(self) -> bool:
        """Whether PoCL may still compile here: it ends the process where its files are gone."""
        self._first = [one for one in self._first if one.command_execution_status > 0]
        return bool(self._first)

    def launching(
        self, kernel: str, size: tuple[int, ...], block: tuple[int, ...]
    ) -> Callable[[], None] | None:
        """Prepare for a launch; return what is to be called once it has ended, if anything.

        Parameters
        ----------
        kernel : str
            Its name in the program.
        size, block : tuple of int
            Global and local size.

        Raises
        ------
        HostError
            If PoCL will have to compile and there is no room for it.
        """
        small = max(size) < _SMALL_GRID
        if (kernel, block, small) in self._launched:
            return None
        name = "-".join(map(str, (*block, 1, 1)[:3])) + "-goffs0" + small * "-smallgrid"
        if not any(self.folder.glob(f"{kernel}/{name}/*.so")):
            check_room(self.folder)
        self._launched.add((kernel, block, small))
        return self.save

    def save(self) -> None:
        """Keep what has been compiled since it was last kept."""
        files = self._files()
        if len(files) > self._saved:
            self._saved = len(files)
            with contextlib.suppress(OSError):  # at worst it is compiled again
                self._save(self.folder, files)

    def _files(self) -> list[Path]:
        return [one for one in self.folder.rglob("*") if one.suffix in (".bc", ".so")]


def check_room(directory: Path) -> None:
    """Refuse to compile where it would end the process.

    Raises
    ------
    HostError
        If there is too little room.
    """
    if not has_room(directory, ROOM_BYTES):
        raise HostError(
            f"nothing can be compiled: {directory} is nearly full; make room, or name another"
            " folder in TILEWRIGHT_CACHE_DIR"
        )


class PoclCache:
    """The directory that this process's PoCL writes to.

    Parameters
    ----------
    directory : Path
        A new one.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.RLock()  # a kernel may be collected inside
        self._compiled: dict[str, Compiled] = {}
        self._leaving: dict[str, Compiled] = {}  # used no more; removed once nothing compiles there
        self._process = os.getpid()
        atexit.register(self._save_all)

    def build(
        self, key: str, cache: KernelCache, make: Callable[[], T]
    ) -> tuple[T, Compiled | None]:
        """Build a program with what is kept of it.

        Parameters
        ----------
        key : str
            Of everything that makes it, and of no kernel: programs may have several.
        cache : KernelCache
            Where it is kept.
        make : callable
            Lets PoCL build it.

        Returns
        -------
        tuple
            What `make` returned, and what PoCL has of it; None if that is somewhere else, as
            where PoCL was started before this package was.

        Raises
        ------
        HostError
            If there is no room.
        """
        with self._lock:
            check_room(self.directory)  # PoCL writes 1 MB even where it compiles nothing
            self._remove_left()
            if key in self._leaving:
                self._compiled[key] = self._leaving.pop(key)
            found = self._compiled.get(key)
            before = self._programs()
            if found is not None:
                found.users += 1
            unpacked = [] if found is not None else self._unpack(key, cache)
            try:
                made = make()
            except BaseException:
                self._left(key)
                check_room(self.directory)  # what a compiler says of a full disk is no log
                raise
            if found is None:
                found = self._found(key, cache, before, unpacked)
            return made, found

    def _found(
        self, key: str, cache: KernelCache, before: set[Path], unpacked: list[Path]
    ) -> Compiled | None:
        fresh = [one for one in self._programs() - before if one not in unpacked]
        if not fresh and not unpacked:
            return None
        # Another version of PoCL names the same program otherwise, and compiles it.
        folder = (fresh or unpacked)[0]
        found = Compiled(folder, self._saver(key, cache), is_kept=not fresh)
        self._compiled[key] = found
        return found

    def drop_with(self, user: object, key: str) -> None:
        """Remove a program's files once nobody uses it any more: tuning builds thousands."""
        weakref.finalize(user, self._left, key).atexit = False

    def _left(self, key: str) -> None:
        with self._lock:
            found = self._compiled.get(key)
            if found is None or os.getpid() != self._process:
                return
            found.users -= 1
            if found.users == 0:
                self._leaving[key] = self._compiled.pop(key)
                self._remove_left()

    def _remove_left(self) -> None:
        for key, one in list(self._leaving.items()):
            if not one.is_needed():
                del self._leaving[key]
                shutil.rmtree(one.folder, ignore_errors=True)

    def _programs(self) -> set[Path]:
        return set(self.directory.glob("??/*"))

    def _saver(self, key: str, cache: KernelCache) -> Callable[[Path, list[Path]], None]:
        def save(folder: Path, files: list[Path]) -> None:
            with self._lock:
                cache.save(key, pack(folder.relative_to(self.directory), folder, files))

        return save

    def _unpack(self, key: str, cache: KernelCache) -> list[Path]:
        """Put what is kept of a program where PoCL looks for it; return its folder, or nothing."""
        kept = cache.load(key)
        if kept is None:
            return []
        try:
            return [unpack(kept, self.directory)]
        except OSError:  # no room: compiling will say so
            return []

    def _save_all(self) -> None:
        if os.getpid() == self._process:
            for one in list(self._compiled.values()):
                one.save()


def pack(name: Path, folder: Path, files: list[Path]) -> bytes:
    """Return a program's files as one text: a line of names and sizes, then their contents."""
    contents = {str(one.relative_to(folder)): one.read_bytes() for one in sorted(files)}
    head = {"program": str(name), "files": [[one, len(text)] for one, text in contents.items()]}
    return json.dumps(head).encode() + b"\n" + b"".join(contents.values())


def unpack(packed: bytes, directory: Path) -> Path:
    """Write a program's files below a directory and return their folder.

    Raises
    ------
    OSError
        If one cannot be written.
    """
    line, _, rest = packed.partition(b"\n")
    head = json.loads(line)
    folder = directory / str(head["program"])
    for name, size in head["files"]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rest[:size])
        rest = rest[size:]
    return folder


@lru_cache(maxsize=1)
def pocl_cache() -> PoclCache | None:
    """Return this process's directory for PoCL; None where the user has named one.

    Raises
    ------
    OSError
        If none can be made.
    """
    if _VARIABLE in os.environ:
        return None
    return PoclCache(process_directory(roomy_directory(), PREFIX))


def roomy_directory() -> Path:
    """Return where there is room to compile: the cache directory, or what serves instead."""
    directory = cache_dir()
    if has_room(directory, ROOM_BYTES):
        return directory
    return served_instead(NoDirectoryError(f"{directory} is nearly full"))


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Tell PoCL, which asks when it starts, where to compile; child processes have their own."""
    own = pocl_cache()
    if own is None:
        yield
        return
    os.environ[_VARIABLE] = str(own.directory)
    try:
        yield
    finally:
        os.environ.pop(_VARIABLE, None)
