"""Sweeps: everybody computes the same product, warm or cold, with transfers or without."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tilewright.backend import device, devices
from tilewright.bench.cold import ColdCache, host_cache_bytes
from tilewright.bench.peers import UnavailableError, peer
from tilewright.bench.session import peers_for
from tilewright.bench.sweep import Method, sweep, with_transfers
from tilewright.microbench.sources import FACTOR, OFFSET
from tilewright.problem import Problem
from tilewright.tuning.measure import Workload

TINY = 1 << 20


@pytest.fixture
def small_caches(monkeypatch):
    """Machine and devices with caches of 1 MiB: flushing half a gigabyte takes its time."""
    monkeypatch.setattr("tilewright.bench.cold.host_cache_bytes", lambda: TINY)
    for one in devices():
        monkeypatch.setattr(one, "spec", dataclasses.replace(one.spec, l2_bytes=TINY))


def test_everybody_computes_the_same_product():
    """Peers are timed on the workload's own matrices where they can reach them."""
    live = device()
    problem = Problem(70, 60, 50, "d", "T", "N")
    (row,) = sweep(live, [problem], [peer("numpy", live)], Method(rounds=2))
    assert set(row.seconds) == {"tilewright", "numpy"}
    assert all(len(times) == 2 and min(times) > 0 for times in row.seconds.values())
    assert row.rate("tilewright") == problem.flops / np.median(row.seconds["tilewright"])
    assert row.rate("cublas") is None
    assert row.total_seconds == {}


def test_transfers_are_timed_besides(live):
    problem = Problem(70, 60, 50, "z", "C", "N")
    (row,) = sweep(live, [problem], [peer("numpy", live)], Method(rounds=2, transfers=True))
    assert set(row.total_seconds) == set(row.seconds)
    assert all(len(times) == 2 and min(times) > 0 for times in row.total_seconds.values())
    assert row.rate("tilewright", transfers=True) != row.rate("tilewright")


def test_a_product_with_transfers_is_the_product_of_what_was_copied(live):
    workload = Workload(live, Problem(4, 4, 4, "s"))
    try:
        copied = []
        took = with_transfers(workload, lambda: copied.append(1) or 0)()
        got = np.empty(16, "f4")
        live.download(workload.memory["c"], got)
    finally:
        workload.close()
    assert copied == [1]
    assert took > 0


def test_a_cold_cache_is_flushed_before_each_product(small_caches, monkeypatch):
    flushed = []
    monkeypatch.setattr(ColdCache, "flush", lambda self: flushed.append(self.bytes))
    live = device()
    method = Method(rounds=3, cache="cold", transfers=True)
    (row,) = sweep(live, [Problem(8, 8, 8, "s")], [peer("numpy", live)], method)
    assert len(row.seconds["tilewright"]) == 3
    assert len(flushed) == 3 * 2 * 2
    with pytest.raises(ValueError, match="cache='tepid'"):
        Method(cache="tepid")


def test_flushing_writes_all_of_a_buffer_larger_than_the_caches(small_caches, live):
    cache = ColdCache(live, host=True)
    assert cache.bytes >= 2 * TINY
    cache.flush()
    last = np.empty(1, np.uint32)
    live.download(cache._memory[0], last, offset=cache.bytes - 4)
    assert last == ((cache.bytes // 4 - 1) * FACTOR + OFFSET) % 2**32
    cache.close()


def test_the_hosts_largest_cache_is_found():
    assert host_cache_bytes() >= 0


def test_clblast_agrees_where_it_is_installed(live):
    try:
        clblast = peer("clblast", live)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    problem = Problem(40, 30, 20, "s", "N", "T")
    workload = Workload(live, problem)
    host = {name: np.empty(size, "f4") for name, size in (("a", 800), ("b", 600), ("c", 1200))}
    clblast.prepare(workload)()
    for name, array in host.items():
        live.download(workload.memory[name], array)
    workload.close()
    a, b = host["a"].reshape(20, 40).T, host["b"].reshape(20, 30).T
    assert np.allclose(host["c"].reshape(30, 40).T, a @ b.T, rtol=1e-4, atol=1e-4)


def test_a_missing_peer_says_why():
    live = device("opencl")
    with pytest.raises(UnavailableError, match="cublas runs on CUDA devices"):
        peer("cublas", live)
    with pytest.raises(ValueError, match="peer='mkl'"):
        peer("mkl", device())
    # One that serves no device at all ends the sweep before it begins.
    with pytest.raises(UnavailableError, match="cublas runs on CUDA devices"):
        peers_for(["numpy", "cublas"], [live])
    ((peers, missing),) = peers_for(["numpy"], [live])
    assert [one.name for one in peers] == ["numpy"]
    assert missing == {}
