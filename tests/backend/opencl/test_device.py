"""The OpenCL backend: devices, compiling, caching, and errors that say what happened."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright.backend.opencl.device as opencl_device
from tilewright.backend import CompileError, OutOfMemoryError, device, devices
from tilewright.backend.base import LaunchError
from tilewright.bench.ladder.rungs import RUNGS
from tilewright.microbench.peak import measured_peak
from tilewright.precision import precision
from tilewright.problem import Trans
from tilewright.stencil import Launch, Source, Variant, stencil

DOUBLE_IT = Source(
    "kernel void twice(global float *x) { x[get_global_id(0)] *= FACTOR; }", {"FACTOR": 2}, "twice"
)


def test_a_kernel_runs_and_is_timed(live):
    memory = live.upload(np.arange(16, dtype="f4"))
    event = live.launch(live.compile(DOUBLE_IT), Launch((4, 1), (4, 1)), (memory,))
    assert event.nanoseconds() > 0
    got = np.empty(16, "f4")
    live.download(memory, got)
    assert np.array_equal(got, 2 * np.arange(16))
    live.free(memory)


def test_a_forked_process_neither_copies_nor_launches(live, monkeypatch):
    """It would wait for threads that stayed in its parent."""
    memory, kernel, got = live.upload(np.ones(4, "f4")), live.compile(DOUBLE_IT), np.empty(4, "f4")
    with monkeypatch.context() as patch:
        patch.setattr(live, "_process", 0)
        for action in (
            lambda: live.allocate(4),
            lambda: live.wrap(got),
            lambda: live.pinned(4).__enter__(),
            lambda: live.upload(got),
            lambda: live.download(memory, got),
            lambda: live.launch(kernel, Launch((4, 1), (1, 1)), (memory,)),
        ):
            with pytest.raises(LaunchError, match="use multiprocessing's 'spawn'"):
                action()
    live.free(memory)


def test_a_forked_process_waits_for_nothing(live, monkeypatch):
    """What its parent enqueued never ends there."""
    cl = pytest.importorskip("pyopencl")
    held = cl.UserEvent(live.context)
    cl.enqueue_barrier(live.queue, wait_for=[held])
    with monkeypatch.context() as patch:
        patch.setattr(live, "_process", 0)
        live.finish()
    held.set_status(cl.command_execution_status.COMPLETE)
    live.finish()


def test_compile_errors_name_the_first_mistake(live):
    with pytest.raises(CompileError, match="undeclared identifier 'oops'") as caught:
        live.compile(Source("kernel void f() { oops; }", {}, "f"))
    assert "oops" in caught.value.detail


def test_pocl_5_does_not_optimise_blocks_of_several_threads(cpu, monkeypatch):
    """It makes wrong kernels of them; those of one thread a block it may optimise."""
    monkeypatch.setattr(opencl_device, "version_of", lambda text: (5, 0))
    device, built = opencl_device.OpenCLDevice(cpu.raw, "opencl:9"), []
    build = device._build
    monkeypatch.setattr(
        device, "_build", lambda text, options: built.append(options) or build(text, options)
    )
    of = Variant(precision("s"), Trans.N, Trans.N)
    for family, optimised in (
        (stencil("portable"), False), (RUNGS[2], False), (stencil("packed"), True)
    ):  # fmt: skip
        config = family.default(of, device.spec)
        device.compile(family.source(config, of, "opencl"))
        assert ("-cl-opt-disable" not in built.pop()) is optimised


def test_too_much_memory_is_said_so(cpu):
    with pytest.raises(OutOfMemoryError, match="cannot allocate"):
        cpu.allocate(1 << 60)


def test_devices_have_names(live):
    assert device(live.id) is live
    assert device("opencl") is next(d for d in devices() if d.backend == "opencl")
    with pytest.raises(ValueError, match="device='nonsense' is not here"):
        device("nonsense")
    if len([d for d in devices() if "PoCL" in d.platform]) > 1:
        with pytest.raises(ValueError, match="device='pocl' means several"):
            device("pocl")
    with pytest.raises(ValueError, match="device='1' is not here"):
        device("1")  # a part of "PoCL 3.1", but nobody means that


def test_newest_platform_comes_first():
    versions = [d.platform for d in devices() if "PoCL" in d.platform]
    assert versions == sorted(versions, reverse=True, key=lambda text: text.split("PoCL ")[1][:3])


def test_environment_variable_chooses(monkeypatch):
    last = devices()[-1]
    monkeypatch.setenv("TILEWRIGHT_DEVICE", last.id)
    assert device() is last
    monkeypatch.setenv("TILEWRIGHT_DEVICE", "nothing")
    with pytest.raises(ValueError, match="TILEWRIGHT_DEVICE='nothing' is not here; use one of"):
        device()


def test_fingerprints_tell_devices_apart():
    assert len({d.fingerprint for d in devices()}) == len(devices())


def test_measured_peak_is_above_what_any_kernel_reaches(live):
    from tilewright.precision import PRECISIONS

    single, double = (measured_peak(live, PRECISIONS[p]) for p in "sd")
    assert single > 1e9
    assert double > 0
