"""From measured rows to a device's file, and from that to a bound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tilewright as tw
from tests.microbench.simulated import SimulatedDevice
from tilewright.hardware.catalogue import catalogue_device, read_device
from tilewright.microbench import probe
from tilewright.microbench.probe import measured_numbers, mix_lines, number_line, probe_toml

H100 = catalogue_device("h100")
CATALOGUE = Path(tw.__file__).parent / "hardware" / "catalogue"
POWER = {"load": "outer products, single precision", "seconds": 4.0}

RESULTS = {
    "bandwidth": {
        "clock_hz": 1980e6,
        "rows": [
            {"level": "memory", "access": "copy", "bytes": 9, "best_bytes_per_second": 3.0e12},
            {"level": "memory", "access": "read", "bytes": 8, "best_bytes_per_second": 3.1e12},
            {"level": "memory", "access": "write", "bytes": 9, "error": "out of memory"},
            {"level": "l2", "access": "read", "bytes": 7, "best_bytes_per_second": 5.5e12},
        ],
    },
    "link": {
        "rows": [
            {"bytes": 64, "direction": "host to device", "host_memory": "pinned",
             "best_bytes_per_second": 5.5e10},
            {"fit": "latency + bytes / rate", "bytes_per_second": 9e10},
        ]
    },
    "power": {
        "rows": [
            POWER | {"clock_hz": 1900e6, "counted_clock_hz": 1905e6, "power_w": 651.0},
        ]
    },
    "peak": {"rows": [{"precision": "s", "multiply_adds_per_cycle_per_multiprocessor": 127.2}]},
}  # fmt: skip


def numbers(device=H100, results=RESULTS):
    return {one.name: one for one in measured_numbers(results, device)}


def test_a_warps_share_of_the_tensor_cores_is_of_the_type_that_loses_least():
    def row(kind, rate, warps):
        return {"kind": kind, "multiply_adds_per_cycle": rate, "warps_per_multiprocessor": warps}

    rows = [row("wgmma_f16", 2048, 8), row("f16_16x8x16", 300, 1), row("f16_16x8x16", 1024, 8)]
    rows += [row("wgmma_s8", 4096, 8), row("s8_16x8x32", 2730, 8), row("bf16_16x8x16", 1365, 8)]
    (found,) = measured_numbers({"rates": {"rows": rows}}, H100)
    assert (found.name, found.value) == ("warp_matrix_share", pytest.approx(2730 / 4096))
    assert "s8_16x8x32" in found.source
    assert not measured_numbers({"rates": {"rows": rows[:1]}}, H100)


def test_rows_become_quantities():
    found = numbers()
    values = {name: one.value for name, one in found.items()}
    assert values == {
        "memory_bytes_per_s": 3.1e12,  # the fastest: a bound must not be below it
        "copy_bytes_per_s": 3.0e12,
        "l2_bytes_per_s": 5.5e12,
        "link_bytes_per_s": 5.5e10,
        "sustained_clock_hz.s": 1905e6,  # the higher one of count and sensor, after it settled
        "power_w": 651.0,
    }
    assert (
        found["memory_bytes_per_s"].source
        == "measured: experiment bandwidth, read, 8 bytes, at 1980 MHz"
    )


def test_lanes_are_taken_only_where_they_are_unknown_or_more():
    nameless = catalogue_device("avx2")  # 16 lanes
    assert "fma_lanes.s" not in numbers()
    assert numbers(nameless)["fma_lanes.s"].value == 127.2  # a CPU's clock is what it is
    assert probe._whole(127.2) == 128
    assert probe._whole(100.0) == 100.0
    assert probe._whole(1.0) == 1


def test_absent_experiments_leave_numbers_unknown():
    assert numbers(results={}) == {}
    assert numbers(results={"power": {"rows": [POWER | {"clock_hz": None}]}}) == {}


def test_a_live_device_becomes_a_file_that_bounds_read(live, tmp_path):
    text = probe_toml(live, RESULTS, 'version "0", \\ 2026')
    path = tmp_path / "mine.toml"
    path.write_text(text)
    device = tw.device(str(path))
    assert device.id == "mine"
    assert device.spec.multiprocessors == live.spec.multiprocessors
    assert device.value("memory_bytes_per_s") == 3.1e12
    assert 'version "0", \\ 2026' in device.quantities["memory_bytes_per_s"].source
    found = tw.bound(tw.Problem(512, 512, 512, "s"), device=str(path), sustained=True)
    assert found.device == "mine"
    assert found.limit > 0
    assert read_device(path).quantities == device.quantities


def mixtures(lanes):
    """Return rows of the experiment `mixes`: 128-bit loads between FFMA."""
    return [
        {"multiply_add": "FFMA", "load_bits": 128, "ratio": ratio, "lane_pattern": lanes,
         "bank_pattern": "kept", "warps_per_multiprocessor": 8, "instructions_per_cycle": rate}
        for ratio, rate in ((0, 8.0), (8, 71.0), (16, 117.0), (32, 119.0))
    ]  # fmt: skip


def test_a_gpu_that_no_catalogue_knows_is_bound_by_what_was_measured(tmp_path):
    card = SimulatedDevice()
    card.spec = replace(card.spec, clock_hz=1.98e9)
    results = RESULTS | {"mixes": {"rows": mixtures("conflict_free") + mixtures("broadcast")}}
    path = tmp_path / "card.toml"
    path.write_text(probe_toml(card, results, "today"))
    device = read_device(path)
    assert device.value("issue_lanes") == 128
    assert device.value("fma_lanes.s") == 128  # 127.2 measured
    assert {m.lanes for m in device.mixes} == {"conflict_free", "broadcast"}
    assert len(device.mixes) == 8
    found = tw.bound(tw.Problem(8192, 8192, 8192, "s"), device=device)
    assert found.limiting.name == "tabulated mix (eq. 11)"
    assert found.limit == pytest.approx(119 * 32 / 33 * 2 * 132 * 1.98e9, rel=0.02)
    assert device.value("tensor.tf32") is None
    missing = tw.bound(tw.Problem(64, 64, 64, "tf32"), device=device).missing
    assert "tensor.tf32" in missing["arithmetic peak"]


def test_numbers_and_mixes_are_written_as_toml_reads_them(tmp_path):
    lines = [
        number_line("clock_hz", 1.98e9, "s: x"),
        number_line("fma_lanes.d", 63.1234567, "s"),
    ]
    assert lines[0] == 'clock_hz = { value = 1980000000, source = "s: x" }'
    assert "63.1235" in lines[1]
    mix = {"width_bits": 128, "ratio": 21.3, "throughput": 117.0, "kind": "measured", "source": "s"}
    text, *_ = (CATALOGUE / "h100.toml").read_text().partition("[[mixes]]")
    text = text.replace("[sources]", '[sources]\ns = "here"')
    path = tmp_path / "h100.toml"
    path.write_text(text + "\n".join(["", *mix_lines(mix), ""]))
    (found,) = read_device(path).mixes
    assert (found.width_bits, found.ratio, found.throughput) == (128, 21.3, 117.0)
