"""What the machine lacks is held against no candidate: the run stops and stores nothing of it."""

from __future__ import annotations

import errno
import os

import pytest

import tests.tuning.faulty
from tests.disks import fill, small_disk
from tests.tuning.test_faults import run
from tilewright.backend import DeviceFailedError, DeviceLostError, HostError, OutOfMemoryError
from tilewright.backend.cuda.driver import error_of
from tilewright.tuning import process
from tilewright.tuning.measurement import Status
from tilewright.tuning.process import WorkerProcess, WorkerSettings
from tilewright.tuning.runner import TuningError
from tilewright.tuning.store import Store
from tilewright.tuning.worker import Worker


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Let workers import the faulty stencil."""
    monkeypatch.setenv("PYTHONPATH", os.getcwd(), prepend=os.pathsep)


def test_a_run_stops_where_memory_is_short_and_stores_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(tests.tuning.faulty.Faulty, "faults", (5,))
    monkeypatch.setattr(tests.tuning.faulty.Faulty, "speeds", tuple(range(1, 20)))
    seen = []
    with Store(tmp_path / "store.sqlite") as store:
        with pytest.raises(TuningError, match=r"stopped, as 5 candidates in a row") as refused:
            run(store, observer=seen.append)
        assert "Unable to allocate" in str(refused.value)
        assert "\n" not in str(refused.value)
        assert store.count() == 0
    assert seen == []


def test_a_run_stops_where_the_disk_is_full_and_goes_on_later(tmp_path, monkeypatch):
    monkeypatch.setattr(tests.tuning.faulty.Faulty, "faults", (0,))
    monkeypatch.setattr(tests.tuning.faulty.Faulty, "speeds", tuple(range(1, 11)))
    with small_disk(tmp_path / "disk", "100m") as disk:
        monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(disk))
        with Store(tmp_path / "store.sqlite") as store:

            def fill_up(_):
                if not (disk / "fill").exists():
                    fill(disk)

            with pytest.raises(TuningError, match=r"stopped, as 5 candidates .* nearly full"):
                run(store, observer=fill_up)
            assert 1 <= store.count() < 10
            assert store.count(status=Status.OK) == store.count()
            (disk / "fill").unlink()
            kept = store.count()
            again = run(store)
            assert again.resumed == kept
            assert again.resumed + again.tried == 10
            assert again.failed == 0


@pytest.mark.parametrize(
    ("error", "status", "machine"),
    [
        (HostError("NVRTC is not here"), Status.COMPILE_ERROR, True),
        (PermissionError(13, "Permission denied"), Status.COMPILE_ERROR, True),
        (ImportError("no such module"), Status.COMPILE_ERROR, True),
        (OutOfMemoryError("too little device memory"), Status.OUT_OF_MEMORY, True),
        (MemoryError(), Status.OUT_OF_MEMORY, True),
        (DeviceFailedError("uncorrectable ECC error"), Status.LAUNCH_ERROR, True),
        (DeviceLostError("illegal address"), Status.LAUNCH_ERROR, False),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else "",
)
def test_a_worker_tells_the_machine_from_the_candidate(error, status, machine):
    class Broken(Worker):
        def do_prepare(self, request):
            raise error

    answer = Broken(None).answer({"do": "prepare"})
    assert answer["status"] == status
    assert answer["machine"] is machine
    assert answer["reason"]


@pytest.mark.parametrize(("code", "failed"), [(214, True), (46, True), (700, False), (719, False)])
def test_the_driver_tells_a_failed_device_from_a_bad_kernel(code, failed):
    error = error_of(code, "launching")
    assert isinstance(error, DeviceLostError)
    assert isinstance(error, DeviceFailedError) is failed


def test_a_worker_that_cannot_start_again_ends_the_run():
    worker = WorkerProcess(WorkerSettings("no such device", 4.0))
    try:
        with pytest.raises(RuntimeError, match=r"could not start.*no such device"):
            worker.restart()
    finally:
        worker.kill()


def test_a_worker_that_never_has_its_device_ends_the_run(monkeypatch, tmp_path):
    (tmp_path / "asleep.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(process, "START_SECONDS", 0.5)
    worker = WorkerProcess(WorkerSettings("opencl:0", 4.0, modules=("asleep",)))
    with pytest.raises(RuntimeError, match=r"could not start: no answer within 0\.5 s"):
        worker.restart()


def test_nothing_stays_open_of_a_worker_that_no_process_is_made_for(monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(process.subprocess, "Popen", refuse)
    worker = WorkerProcess(WorkerSettings("opencl:0", 4.0))
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(OSError, match="temporarily unavailable"):
            worker.start()
    assert os.listdir("/proc/self/fd") == before


def test_nothing_is_left_of_a_killed_worker(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    worker = WorkerProcess(WorkerSettings("opencl:0", 4.0))
    worker.restart()
    assert list((tmp_path / "cache").glob("pocl-*"))
    worker.kill()
    assert list((tmp_path / "cache").glob("pocl-*")) == []
