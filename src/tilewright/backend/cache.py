"""The disk cache of compiled kernels: private files under a versioned key.

Guaranteed: what is read is, byte for byte, what this user wrote for exactly this source,
these macros, this device and this driver.  Not guaranteed: that a file stays; the oldest
go when the cache outgrows its limit, and one that was damaged goes when it is found.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from tilewright.paths import cache_dir, private_directory, sweep, write_atomically
from tilewright.stencil import Source

__all__ = ["KernelCache", "prune_directory"]

# Part of every key: raise it when what is stored under a key changes.
_FORMAT = 2

_DIGEST_BYTES = hashlib.sha256().digest_size

# A tuning run writes some thousand binaries of 10 to 200 kB.
_LIMIT_BYTES = 512 * 2**20


class KernelCache:
    """Binaries by key, one file each.

    Parameters
    ----------
    directory : Path, optional
        Where the files are; the user's cache directory by default.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = private_directory(directory or cache_dir() / "kernels")
        self._unpruned = True

    @staticmethod
    def key(source: Source, options: tuple[str, ...], fingerprint: str) -> str:
        """Return the key of a binary: a digest over everything that makes it."""
        parts = [_FORMAT, source.text, list(source.defines.items()), source.entry]
        canonical = json.dumps([*parts, options, fingerprint])
        return hashlib.sha256(canonical.encode()).hexdigest()

    def load(self, key: str) -> bytes | None:
        """Return a binary, or None if there is none that is whole."""
        path = self.directory / key
        try:
            kept = path.read_bytes()
        except OSError:
            return None
        digest, binary = kept[:_DIGEST_BYTES], kept[_DIGEST_BYTES:]
        if hashlib.sha256(binary).digest() != digest:
            self.drop(key)
            return None
        with contextlib.suppress(OSError):  # where nothing can be written, nothing is pruned
            os.utime(path)  # recently used files are pruned last
        return binary

    def save(self, key: str, binary: bytes) -> None:
        """Store a binary; a full disk is not an error, only a slower next start."""
        if self._unpruned:  # once a process, when it starts to add
            self._unpruned = False
            self.prune()
        try:
            write_atomically(self.directory / key, hashlib.sha256(binary).digest() + binary)
        except OSError:
            return

    def drop(self, key: str) -> None:
        """Forget a binary that is of no use any more, where something can be written."""
        with contextlib.suppress(OSError):
            (self.directory / key).unlink(missing_ok=True)

    def prune(self, limit: int = _LIMIT_BYTES) -> int:
        """Remove the least recently used files above `limit` bytes; return their number.

        What killed processes left half written goes, too.
        """
        sweep(self.directory)
        return prune_directory(self.directory, limit)


def prune_directory(directory: Path, limit: int) -> int:
    """Remove the oldest files under a directory until it holds at most `limit` bytes."""
    found = []
    for root, _, names in os.walk(directory):
        for name in names:
            path = Path(root, name)
            try:
                state = path.stat()
            except OSError:
                continue
            found.append((state.st_mtime, state.st_size, path))
    total = sum(size for _, size, _ in found)
    removed = 0
    for _, size, path in sorted(found, key=lambda entry: entry[0]):
        if total <= limit:
            break
        try:
            path.unlink(missing_ok=True)
        except OSError:
            continue
        total -= size
        removed += 1
    return removed
