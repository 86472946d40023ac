"""The registry, what a failing point leaves, and a short run on a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from tests.microbench import simulated
from tilewright.backend import LiveDevice
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.microbench import Row, experiments
from tilewright.microbench.timing import LoopTimer, alone, cycles_by_multiprocessor

OURS = ("mixes", "rates")


def test_experiments_are_found_by_name() -> None:
    found = experiments()
    assert set(OURS) <= set(found)
    for name, experiment in found.items():
        assert experiment.name == name
        assert experiment.title
        assert set(experiment.backends) <= {"cuda", "opencl"}


def test_cycles_go_from_the_first_start_to_the_last_end() -> None:
    when = np.array([[[10, 30, 7], [12, 42, 7]], [[100, 120, 3], [90, 119, 3]]], np.int64)
    assert cycles_by_multiprocessor(when).tolist() == [30.0, 32.0]  # multiprocessors 3 and 7


def test_two_blocks_on_a_multiprocessor_are_no_measurement() -> None:
    when = np.array([[[0, 9, 7]], [[0, 9, 7]]], np.int64)
    with pytest.raises(ValueError, match="let nothing else use the device"):
        cycles_by_multiprocessor(when)


def test_half_of_the_shared_memory_keeps_a_block_alone() -> None:
    h100 = architecture_spec("sm_90a")
    bytes_asked = alone(h100)
    assert 2 * (bytes_asked + 1024) > (h100.shared_bytes_per_multiprocessor or 0)  # 1 KiB reserved
    assert bytes_asked + 16 * 1024 <= h100.shared_bytes_per_block


@pytest.mark.every(3)
@pytest.mark.parametrize("name", OURS)
def test_an_experiment_runs_through(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the GPU is real here; the rows then say what the stand-in takes: issue alone."""
    monkeypatch.setattr(LoopTimer, "load", simulated.load)
    monkeypatch.setattr(LoopTimer, "_run", simulated.run)
    rows: list[Row] = []
    experiments()[name].run(simulated.SimulatedDevice(), rows.append, 200.0)
    assert len(rows) > 40
    assert not [row["error"] for row in rows if "error" in row]
    for row in rows:
        assert row["clock_hz"] == pytest.approx(simulated.CLOCK_HZ, rel=1e-3)
        if name == "mixes":
            warps = row["warps_per_multiprocessor"]
            assert row["instructions_per_cycle"] == pytest.approx(min(128, 32 * warps), rel=0.01)
        else:
            assert 0 < row["instructions_per_cycle"] <= 4


def test_an_experiment_stops_when_its_seconds_are_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopTimer, "load", simulated.load)
    monkeypatch.setattr(LoopTimer, "_run", simulated.run)
    for name in OURS:
        rows: list[Row] = []
        experiments()[name].run(simulated.SimulatedDevice(), rows.append, 0.0)
        assert len(rows) == 1


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("name", OURS)
def test_rows_come_from_a_gpu(name: str, cuda: LiveDevice) -> None:
    """A second of each; what is measured must be what such hardware can do."""
    rows: list[Row] = []
    experiments()[name].run(cuda, rows.append, 1.0)
    assert rows
    good = [row for row in rows if "error" not in row]
    assert good, rows[0]
    for row in good:
        assert 0 < row["instructions_per_cycle"] < 200
