"""Bandwidth: sums that show a missing read, machine code that has the counted loads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.backend import BackendError, DeviceLostError, device
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.microbench import bandwidth, experiments
from tilewright.microbench.bandwidth import (
    Stream,
    Walker,
    cache_sizes,
    memory_sizes,
    shared_points,
)
from tilewright.microbench.points import (
    accesses_of_loops,
    measure_points,
    require_accesses,
)
from tilewright.microbench.sources import FACTOR, OFFSET, kernel_source, words_sum

MIB = 2**20
expected = bandwidth._expected


@given(st.integers(0, 5000))
def test_the_sum_of_a_filled_array_has_a_closed_form(count):
    words = np.arange(count, dtype=np.uint64) * np.uint64(FACTOR) + np.uint64(OFFSET)
    assert words_sum(count) == int((words % 2**32).sum()) % 2**32


@pytest.mark.parametrize("walk", [0, 1, 2])
@pytest.mark.parametrize("mode", ["READ", "WRITE", "COPY"])
def test_every_walk_is_checked_on_every_device(live, mode, walk):
    row = Walker(live).measure(Stream("memory", "any", mode, MIB, 2, walk))
    assert row["bytes"] > 0
    assert row["best_bytes_per_second"] >= row["bytes_per_second"] > 0
    moved = row["bytes_per_second"] * row["seconds"]
    # Whole walks move the array once a block, a copy twice.
    walks = moved / row["bytes"]
    assert walks == pytest.approx(round(walks))
    assert round(walks) >= 2 * (2 if mode == "COPY" else 1)


def test_a_wrong_word_is_found(live):
    walker = Walker(live)
    size = walker.rounded(MIB)
    memory, sums = live.allocate(size), live.allocate(walker.sums_bytes)
    try:
        filling = Stream("memory", "fill", "WRITE", size, 1)
        live.launch(*walker.walk(filling, (memory, memory, sums), size)).wait()
        walker.check_filled(memory, sums, size)
        live.write(memory, np.array([7], np.uint32), size // 2)
        with pytest.raises(ValueError, match=r"sum=\d+ of what was read is wrong"):
            walker.check_filled(memory, sums, size)
    finally:
        live.free(memory)
        live.free(sums)


@pytest.mark.parametrize("walk", [0, 1, 2])
@pytest.mark.parametrize("mode", ["READ", "WRITE", "COPY"])
def test_the_shape_that_gpus_get_reads_every_word_too(live, mode, walk, monkeypatch):
    monkeypatch.setattr(bandwidth, "_shape", lambda _: bandwidth._Shape(3, 64, 4, 8))
    row = Walker(live).measure(Stream("memory", "any", mode, MIB, 2, walk))
    assert row["bytes_per_second"] > 0


@pytest.mark.parametrize("words", [1, 2, 4])
def test_shared_memory_is_read_whole(live, words, monkeypatch):
    defines = {"WORDS": words, "THREADS": 64, "UNROLLED": 8 // words, "TRIPS": 20}
    monkeypatch.setattr(bandwidth, "shared_defines", lambda *_: defines)
    row = bandwidth._measure_shared(live, words)
    assert row["bytes"] == 8 * 4 * 64
    # A trip more or less would be a wrong sum.
    monkeypatch.setattr(bandwidth, "_expected", lambda t, w, trips, b: expected(t, w, trips + 1, b))
    with pytest.raises(ValueError, match="read from shared memory are wrong"):
        bandwidth._measure_shared(live, words)


def test_sizes_follow_the_device(live):
    caches = cache_sizes(live)
    assert caches == sorted(caches)
    assert caches[-1] == live.spec.l2_bytes
    for size in memory_sizes(live):
        assert size <= live.spec.memory_bytes // 8
        assert size <= (live.max_allocation or size)


def test_a_failing_point_is_a_row_and_the_time_ends_the_run():
    def fails():
        raise BackendError("no\nluck", "long")

    rows = []
    points = [({"at": 1}, fails), ({"at": 2}, lambda: {"value": 3.0})]
    measure_points(points, rows.append, 10)
    assert rows == [{"at": 1, "error": "no"}, {"at": 2, "value": 3.0}]
    rows.clear()
    measure_points(points, rows.append, 0)  # the first one in any case
    assert rows == [{"at": 1, "error": "no"}]


def test_a_lost_device_ends_the_experiment_after_its_row():
    def fails():
        raise DeviceLostError("illegal address")

    rows = []
    with pytest.raises(DeviceLostError):
        measure_points([({"at": 1}, fails), ({"at": 2}, dict)], rows.append, 10)
    assert rows == [{"at": 1, "error": "illegal address"}]


def test_a_cpu_has_no_shared_memory_to_measure():
    rows = []
    measure_points(shared_points(device("opencl")), rows.append, 5)
    for row in rows:
        assert "nothing to measure" in str(row.get("error", "nothing to measure"))


needs_nvrtc = pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not here")


def compiled(entry, defines, arch, real=""):
    cubin = compile_cubin(kernel_source("cuda", entry, defines, real), arch)
    return cubin.code, cubin.lowered[entry]


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    ("mode", "mnemonics"), [("READ", ["LDG"]), ("WRITE", ["STG"]), ("COPY", ["LDG", "STG"])]
)
def test_compilers_leave_the_accesses_that_are_timed(arch, mode, mnemonics):
    defines = {f"MODE_{mode}": 1, "LANES": 4, "THREADS": 512, "UNROLLED": 8}
    code, name = compiled("stream", defines, arch)
    for mnemonic in mnemonics:
        require_accesses(code, name, mnemonic, 128, 8)
    with pytest.raises(ValueError, match=r"has no loop with 9 LDG of 128 bits but"):
        require_accesses(code, name, "LDG", 128, 9)


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("words", [1, 2, 4])
def test_shared_loads_keep_their_width(arch, words):
    defines = {"WORDS": words, "THREADS": 1024, "UNROLLED": 8 // words, "TRIPS": 2000}
    code, name = compiled("shared_read", defines, arch)
    require_accesses(code, name, "LDS", 32 * words, 8 // words)


@needs_nvrtc
@pytest.mark.parametrize(
    ("real", "mnemonic", "defines", "count", "loads"),
    [
        ("s", "FFMA", {"SIDE": 8, "VECTOR": 4}, 512, 32),
        ("d", "DFMA", {"SIDE": 6, "VECTOR": 2}, 288, 48),
    ],
)
def test_outer_products_keep_their_mix(real, mnemonic, defines, count, loads):
    defines = {**defines, "DEPTH": 8, "THREADS": 256, "TRIPS": 5000}
    code, name = compiled("outer", defines, "sm_90a", real)
    found = max(accesses_of_loops(code, name), key=lambda loop: loop.get((mnemonic, 32), 0))
    assert found[mnemonic, 32] == count
    assert found["LDS", 128] == loads


@pytest.mark.gpu
@pytest.mark.alone
def test_on_a_gpu(cuda):
    rows = []
    experiments()["bandwidth"].run(cuda, rows.append, 15.0)
    assert not [row for row in rows if "error" in row]
    assert {row["level"] for row in rows} == {"shared", "l2", "memory"}
    shared = [row for row in rows if row["level"] == "shared"]
    # 32 banks of four bytes: nothing reads more in a cycle.
    assert all(0 < row["bytes_per_cycle_per_multiprocessor"] <= 128 for row in shared)
