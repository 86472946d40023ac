"""The disk cache of compiled kernels: what it gives back, what it forgets, what it survives."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tilewright.backend.cache import KernelCache
from tilewright.stencil import Source


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "kernels")


def test_a_key_is_of_everything_that_makes_a_binary() -> None:
    source = Source("text", {"M": 1})
    others = [
        KernelCache.key(source, ("-O3",), "driver 1"),
        KernelCache.key(source, (), "driver 1"),
        KernelCache.key(source, ("-O3",), "driver 2"),
        KernelCache.key(replace(source, text="text "), ("-O3",), "driver 1"),
        KernelCache.key(replace(source, defines={"M": 2}), ("-O3",), "driver 1"),
        KernelCache.key(replace(source, defines={"M": "1"}), ("-O3",), "driver 1"),
        KernelCache.key(replace(source, entry="other"), ("-O3",), "driver 1"),
    ]
    assert len(set(others)) == len(others)


def test_nobody_else_can_read_or_write_it(cache: KernelCache) -> None:
    assert cache.directory.stat().st_mode & 0o777 == 0o700


def test_the_least_recently_used_go_first(cache: KernelCache) -> None:
    for age, key in enumerate(("newest", "middle", "oldest")):
        cache.save(key, bytes(100))
        os.utime(cache.directory / key, (1e9 - age, 1e9 - age))
    assert cache.load("oldest") == bytes(100)  # and so it is the newest now
    assert cache.prune(limit=300) == 1
    assert cache.load("middle") is None
    assert cache.load("oldest") == cache.load("newest") == bytes(100)


def test_what_killed_writers_left_goes_once_it_is_old(cache: KernelCache) -> None:
    for name, age in ((".tilewright-old.tmp", 7200), (".tilewright-new.tmp", 0)):
        (cache.directory / name).write_bytes(b"half")
        os.utime(cache.directory / name, (time.time() - age, time.time() - age))
    cache.save("a", b"binary")
    assert {one.name for one in cache.directory.iterdir()} == {".tilewright-new.tmp", "a"}


@pytest.mark.parametrize("damage", [b"", b"binary", bytes(38), bytes(100)], ids=len)
def test_what_is_damaged_is_not_given_back(cache: KernelCache, damage: bytes) -> None:
    cache.save("a", b"binary")
    assert cache.load("a") == b"binary"
    (cache.directory / "a").write_bytes(damage)
    assert cache.load("a") is None
    assert not (cache.directory / "a").exists()


def test_a_cache_that_nobody_can_write_to_serves(
    cache: KernelCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a read-only file system: what is there is read, the rest is compiled each time."""
    cache.save("a", b"binary")

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for owner, name in ((os, "utime"), (os, "open"), (Path, "unlink")):
        monkeypatch.setattr(owner, name, refuse)
    assert cache.load("a") == b"binary"
    cache.save("b", b"another")
    cache.drop("a")
    assert cache.prune(limit=0) == 0
    monkeypatch.undo()
    assert cache.load("a") == b"binary"
    assert cache.load("b") is None
