"""Pages of mapped files that are made ahead."""

from __future__ import annotations

import mmap
import os
import threading
from itertools import pairwise

import numpy as np
import pytest

from tilewright.serve.streamed import pages


@pytest.fixture
def made(monkeypatch):
    """What the system is asked for: addresses and bytes; `refused` says what it answers."""
    calls = []

    def make(address, size):
        calls.append((address, size))
        return made.refused

    def made():
        for thread in threading.enumerate():
            if thread.name == "tilewright-pages":
                thread.join()
        return sorted(calls)

    made.refused = 0
    monkeypatch.setattr(pages, "_BYTES", 3 << 12)
    monkeypatch.setattr(pages, "_call", lambda: make)
    return made


def mapped(folder, shape=(100, 1000)):
    return np.memmap(folder / "c", "f8", "w+", shape=shape)


def test_pages_of_all_of_a_mapped_file_are_made_in_order(tmp_path, made):
    c = np.asarray(mapped(tmp_path))[1:].T
    with pages.made_ahead(c):
        calls = made()
    first, behind = c.ctypes.data, c.ctypes.data + c.nbytes
    assert calls[0][0] == first // 4096 * 4096
    assert all(a + size == b for (a, size), (b, _) in pairwise(calls))
    assert sum(calls[-1]) == behind


def test_none_are_made_of_memory_and_of_what_has_gaps(tmp_path, made):
    c = mapped(tmp_path)
    for other in (np.zeros((100, 1000)), c[:, :-1], object()):
        with pages.made_ahead(other):
            assert made() == []


def test_pages_made_ahead_take_a_part_of_the_memory(tmp_path, made, monkeypatch):
    c = mapped(tmp_path)
    whole = pages._PART_OF_MEMORY * os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE
    monkeypatch.setattr(pages, "_PART_OF_MEMORY", 100_000 * pages._PART_OF_MEMORY / whole)
    with pages.made_ahead(c):
        assert sum(size for _, size in made()) == pytest.approx(100_000, abs=4096)


def test_a_result_comes_where_there_are_no_more_threads(tmp_path, made, monkeypatch):
    def refused(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pages.made_ahead(mapped(tmp_path)):
        assert made() == []


def test_a_file_that_ends_before_its_map_ends_the_threads(tmp_path):
    c = mapped(tmp_path)
    os.truncate(tmp_path / "c", 8192)
    with pages.made_ahead(c):
        for thread in threading.enumerate():
            if thread.name == "tilewright-pages":
                thread.join()
    assert os.stat(tmp_path / "c").st_size == 8192


def test_no_more_are_made_once_a_call_has_ended_or_the_system_refuses(tmp_path, made):
    c = mapped(tmp_path)

    def interrupted():
        with pages.made_ahead(c):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not any(thread.name == "tilewright-pages" for thread in threading.enumerate())
    before = len(made())
    made.refused = -1
    with pages.made_ahead(c):
        assert len(made()) <= before + pages._THREADS


def test_a_new_file_holds_zeros_and_its_pages(tmp_path):
    c = mapped(tmp_path, (1000, 1000))
    with pages.made_ahead(c):
        for thread in threading.enumerate():
            if thread.name == "tilewright-pages":
                thread.join()
        assert not c.any()
