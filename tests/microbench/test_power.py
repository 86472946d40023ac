"""Clock and power: sensors by two ways, loads that are checked, nothing where nothing is."""

from __future__ import annotations

import shutil
import subprocess
import time
from types import SimpleNamespace

import numpy as np
import pytest

from tilewright.microbench import experiments, power, sensors
from tilewright.microbench.power import PowerSamples, sample_power
from tilewright.microbench.sensors import Reading, reasons_of

NVML = r"""
/* A management library that knows one device. */
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **h) {
    *h = (void *)7;
    return strcmp(id, "00000000:1B:00.0") ? 6 : 0;
}
int nvmlDeviceGetClockInfo(void *h, int type, unsigned *v) { *v = type == 1 ? 1980 : 0; return 0; }
int nvmlDeviceGetPowerUsage(void *h, unsigned *v) { *v = 651250; return h != (void *)7; }
int nvmlDeviceGetEnforcedPowerLimit(void *h, unsigned *v) { *v = 700000; return 0; }
int nvmlDeviceGetTemperature(void *h, int sensor, unsigned *v) { (void)sensor; return 3; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, unsigned long long *v)
{
    *v = 0x24;
    return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(NVML)
    made = folder / "libnvml.so"
    command = [compiler, "-shared", "-fPIC", "-w", "-o", str(made), str(folder / "nvml.c")]
    subprocess.run(command, check=True)
    return str(made)


def test_the_library_is_read(library):
    reading = sensors._Library("00000000:1B:00.0", library)()
    assert reading == Reading(1980e6, 651.25, None, 700.0, 0x24)  # one sensor is silent
    assert reasons_of(reading.reasons) == "software power cap, software thermal slowdown"
    with pytest.raises(OSError, match=r"knows no device at 00000000:02:00\.0"):
        sensors._Library("00000000:02:00.0", library)


class Card:
    """What is asked of a CUDA device to find its sensors."""

    backend, id, raw = "cuda", "cuda:0", 0
    api = SimpleNamespace(cuDeviceGetPCIBusId=lambda size, raw: (0, b"0000:1B:00.0" + bytes(20)))

    def check(self, result, doing):
        return result[1]


def test_a_library_that_is_not_there_is_named(monkeypatch):
    def missing(place):
        assert place == "0000:1B:00.0"
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    monkeypatch.setattr(sensors, "_Library", missing)
    with pytest.raises(ValueError, match=r"cuda:0: libnvidia-ml\.so\.1: cannot open"):
        sensors.sensors(Card())


def test_a_device_without_sensors_says_so_and_hinders_nothing(cpu):
    with sample_power(cpu) as samples:
        time.sleep(0.01)
    assert samples.readings == []
    assert samples.clock_hz is None
    assert samples.reason == f"{cpu.id} has no sensors that can be read"


def test_samples_are_taken_while_something_runs(cpu, monkeypatch):
    clocks = iter(range(1, 10_000))
    monkeypatch.setattr(
        power, "sensors", lambda _: lambda: Reading(next(clocks) * 1e6, 300.0, 50.0, 700.0, 4)
    )
    with sample_power(cpu, 0.005) as samples:
        while len(samples.readings) < 3 or samples.readings[-1][0] <= 0.05:
            time.sleep(0.005)
    count = len(samples.readings)
    time.sleep(0.05)
    assert len(samples.readings) == count  # the thread has ended
    assert samples.power_w == 300
    assert samples.reasons == "software power cap"
    assert samples.since(0.05).clock_hz > samples.clock_hz


def test_medians_ignore_what_is_silent():
    samples = PowerSamples(
        [(0.0, Reading(1e9, None, None, None, 0)), (1.0, Reading(3e9, 20.0, None, None, 1))]
    )
    assert samples.clock_hz == 2e9
    assert samples.power_w == 20
    assert samples.median("temperature_c") is None
    assert samples.since(0.5).clock_hz == 3e9


@pytest.mark.parametrize("threads", [16, 64])
@pytest.mark.parametrize(("letter", "side", "vector"), [("s", 8, 4), ("d", 6, 2)])
def test_outer_products_are_checked(live, letter, side, vector, threads, monkeypatch):
    defines = power.outer_defines(live, letter) | {"THREADS": threads, "TRIPS": 500}
    monkeypatch.setattr(power, "outer_defines", lambda *_: defines)
    load = power._outer_load(live, letter)
    try:
        load.enqueue().wait()
        load.check()
    finally:
        for memory in load.memory:
            live.free(memory)
    wrong = np.full((2, 16), 1e9, np.float32 if letter == "s" else np.float64)
    with pytest.raises(ValueError, match="outer products from shared memory are wrong"):
        power._check_outer(wrong, side, vector, 8, 5000)


@pytest.mark.thorough
def test_power_on_every_device(everywhere):
    rows = []
    experiments()["power"].run(everywhere, rows.append, 3.0)
    assert not [row for row in rows if "error" in row]
    assert rows[0]["load"] == "outer products, single precision"
    for row in rows:
        rate = row.get("flops_per_second") or row.get("bytes_per_second")
        assert rate > 0
    if everywhere.spec.kind == "cpu":
        assert all(row["clock_hz"] is None and row["sensors"] for row in rows)


@pytest.mark.gpu
@pytest.mark.alone
def test_a_gpu_counts_its_own_clock(cuda):
    rows = []
    experiments()["power"].run(cuda, rows.append, 6.0)
    single = next(r for r in rows if str(r["load"]).endswith("single precision"))
    assert "error" not in single
    if single["clock_hz"] is not None:  # what the kernel counts is what the sensor reads
        assert single["counted_clock_hz"] == pytest.approx(single["clock_hz"], rel=0.05)
