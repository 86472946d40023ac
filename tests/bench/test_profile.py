"""Nsight Compute: its CSV is read, its refusals are told, its process is one of our own."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.backend import device
from tilewright.bench import profiled
from tilewright.bench.counters import (
    COUNTERS,
    STALLS,
    parse_ncu,
    refused_metrics,
)
from tilewright.bench.profile import (
    ProfileError,
    Profiler,
    find_ncu,
    ncu_command,
    why_it_failed,
)
from tilewright.bench.sweep import Method
from tilewright.portfolio import choose
from tilewright.problem import Problem
from tilewright.tuning.record import problem_to_json

# What CUDA 13.0's Nsight Compute printed for two kernels on an H100, with fewer metrics than now.
SAMPLE = (Path(__file__).parent / "ncu" / "h100_raw.csv").read_text()
PROBLEM = Problem(48, 40, 32, "s", "N", "T")


def sample_with(**columns):
    """Return the sample with other columns, each a unit and a value, at the end."""
    lines = SAMPLE.splitlines()
    head = next(at for at, line in enumerate(lines) if line.startswith('"ID"'))
    rows = list(csv.reader(lines[head:]))
    for metric, (unit, value) in columns.items():
        for row, cell in zip(rows, (metric, unit, value, value), strict=True):
            row.append(cell)
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(rows)
    return "\n".join(lines[:head]) + "\n" + text.getvalue()


def test_what_was_counted_is_read():
    one, two = parse_ncu(SAMPLE)
    assert (one["name"], one["grid"], one["block"]) == ("gemm", "(792, 1, 1)", "(64, 1, 1)")
    assert one["counters"]["time_ns"] == 455_968
    assert one["counters"]["cycles"] == 897_052
    assert one["counters"]["bank_conflicts"] == 30_818_936
    assert one["counters"]["registers"] == 168
    assert one["counters"]["occupancy_limit_pct"] == 18.75
    assert one["counters"]["fma_pct"] is None  # nobody asked for it then
    assert one["stalls"]["short_scoreboard"] == 2.04
    assert set(one["stalls"]) == set(STALLS)
    assert all(value is not None for value in one["stalls"].values())
    assert two["counters"]["registers"] == 122


def test_metrics_that_a_gpu_lacks_are_none():
    names = {one.name: one.metric for one in COUNTERS}
    text = sample_with(
        **{names["fma_pct"]: ("%", "80.25"), names["tensor_pct"]: ("%", "n/a")},
        **{names["dram_pct"]: ("%", "(!) n/a"), names["l2_pct"]: ("%", "nan")},
    )
    counters = parse_ncu(text)[0]["counters"]
    assert counters["fma_pct"] == 80.25
    assert counters["tensor_pct"] is counters["dram_pct"] is counters["l2_pct"] is None


def test_units_are_ours_whatever_the_version_prints():
    assert parse_ncu(SAMPLE.replace('"ns"', '"usecond"'))[0]["counters"]["time_ns"] == 455_968_000
    traffic = next(one.metric for one in COUNTERS if one.name == "dram_bytes")
    counters = parse_ncu(sample_with(**{traffic: ("Mbyte", "1,234.5")}))[0]["counters"]
    assert counters["dram_bytes"] == pytest.approx(1_234_500_000)


def test_what_the_program_prints_between_is_left_out():
    assert parse_ncu(SAMPLE + "goodbye\n==PROF== done\n\n") == parse_ncu(SAMPLE)
    for text in ("", "==ERROR== no\n", '"ID","a"\n', '"ID","a"\n"0","1"\n'):
        with pytest.raises(ValueError, match="Nsight Compute"):
            parse_ncu(text)
    assert parse_ncu('"ID","a"\n"","ns"\n') == []


@given(st.text(max_size=200))
def test_any_text_is_kernels_or_a_value_error(text):
    for head in ("", '"ID","a"\n"","ns"\n'):
        try:
            kernels = parse_ncu(head + text)
        except ValueError:
            continue
        assert all(set(kernel["stalls"]) == set(STALLS) for kernel in kernels)


def test_refused_metrics_are_known_by_name():
    tensor = next(one.metric for one in COUNTERS if one.name == "tensor_pct")
    base = tensor.partition(".")[0]
    for line in (f"==ERROR== Failed to find metric {tensor}", f"==WARNING== no metric '{base}'"):
        assert refused_metrics(f"hello\n{line}\n") == {tensor}
    assert refused_metrics(f"the program says {tensor}\n") == set()


def test_the_command_line():
    command = ncu_command("/bin/ncu", ["a", "b"], "warm", ["python", "-m", "x y; rm"])
    assert command[0] == "/bin/ncu"
    assert command[-3:] == ["python", "-m", "x y; rm"]
    options = dict(itertools.pairwise(command))
    assert options["--clock-control"] == options["--cache-control"] == "none"
    assert options["--page"] == "raw"
    assert options["--metrics"] == "a,b"
    assert "all" in ncu_command("ncu", [], "cold", [])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not ...", "NVreg_RestrictProfilingToAdmin"),
        ("hello\n==ERROR== Profiling is not supported\nbye", "failed: Profiling is not supported"),
        ("Traceback\nValueError: device='cuda:9'", "nothing was counted: ValueError: device="),
        ("", "nothing was counted: no output"),
    ],
)
def test_failures_are_one_line(text, reason):
    assert reason in why_it_failed(text)
    assert "\n" not in why_it_failed(text)


# -- with something in the place of ncu ------------------------------------------------


def stand_in(tmp_path, monkeypatch, body):
    """Put a program called ncu first in PATH; it notes its arguments, one line a call."""
    path = tmp_path / "bin" / "ncu"
    path.parent.mkdir()
    path.write_text(
        f"#!{sys.executable}\nimport json, subprocess, sys, time\n"
        f"LOG = {str(tmp_path / 'calls')!r}\nSAMPLE = {SAMPLE!r}\n"
        "open(LOG, 'a').write(json.dumps(sys.argv) + '\\n')\n"
        "calls = len(open(LOG).readlines())\n"
        "metrics = sys.argv[sys.argv.index('--metrics') + 1].split(',')\n"
        "child = sys.argv[sys.argv.index('--metrics') + 2:]\n" + body
    )
    path.chmod(0o700)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    return lambda: [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]


def profiler(seconds=60.0):
    """Return a profiler of a CPU device that passes for one of CUDA."""
    return Profiler(SimpleNamespace(backend="cuda", id="opencl:0"), Method(), seconds)


def test_ours_and_the_peers_are_counted_in_processes_of_their_own(tmp_path, monkeypatch):
    body = "subprocess.run(child, check=True)\nprint(SAMPLE)\n"
    calls = stand_in(tmp_path, monkeypatch, body)
    told = profiler().profile(PROBLEM, choose(device("opencl:0"), PROBLEM), ["numpy"])
    assert list(told["libraries"]) == ["tilewright", "numpy"]
    assert told["libraries"]["numpy"]["kernels"] == parse_ncu(SAMPLE)
    assert told["refused"] == []
    tasks = [json.loads(call[-1]) for call in calls()]
    assert [task["library"] for task in tasks] == ["tilewright", "numpy"]
    assert tasks[0]["problem"] == problem_to_json(PROBLEM)


def test_metrics_that_are_refused_are_left_out(tmp_path, monkeypatch):
    tensor = next(one.metric for one in COUNTERS if one.name == "tensor_pct")
    body = (
        f"if {tensor!r} not in metrics: print(SAMPLE)\n"
        f"else: print('==ERROR== Failed to find metric {tensor}'); sys.exit(1)\n"
    )
    calls = stand_in(tmp_path, monkeypatch, body)
    told = profiler().profile(PROBLEM, choose(device("opencl:0"), PROBLEM), ["numpy"])
    assert told["refused"] == [tensor]
    assert all("kernels" in one for one in told["libraries"].values())
    assert len(calls()) == 3  # the peer is not asked for it any more


def test_no_permission_ends_it_with_what_to_do(tmp_path, monkeypatch):
    stand_in(tmp_path, monkeypatch, "print('==ERROR== ERR_NVGPUCTRPERM'); sys.exit(1)\n")
    with pytest.raises(ProfileError, match="run as root"):
        profiler().profile(PROBLEM, choose(device("opencl:0"), PROBLEM), [])


def test_other_failures_are_a_reason_in_the_result(tmp_path, monkeypatch):
    calls = stand_in(tmp_path, monkeypatch, "print('==ERROR== cuInit failed'); sys.exit(1)\n")
    told = profiler().profile(PROBLEM, choose(device("opencl:0"), PROBLEM), [])
    reason = "Nsight Compute failed: cuInit failed"
    assert told["libraries"] == {"tilewright": {"error": reason}}
    assert len(calls()) == 1


def test_a_profiler_that_hangs_is_stopped_with_its_children(tmp_path, monkeypatch):
    body = "subprocess.run([sys.executable, '-c', 'import time; time.sleep(250)'])\n"
    stand_in(tmp_path, monkeypatch, body)
    started = time.monotonic()
    told = profiler(1.0).profile(PROBLEM, choose(device("opencl:0"), PROBLEM), [])
    assert "no counters within 1 s" in told["libraries"]["tilewright"]["error"]
    assert time.monotonic() - started < 120


def test_no_ncu_or_no_cuda_is_said_before_anything_runs(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("tilewright.bench.profile._PLACES", ("/nowhere/*/ncu",))
    with pytest.raises(ProfileError, match="not in PATH; install Nsight Compute"):
        find_ncu()
    with pytest.raises(ProfileError, match="not on opencl:0"):
        Profiler(device("opencl:0"), Method())


def test_the_child_computes_one_product(live):
    choice = choose(live, PROBLEM)
    task = {
        "device": live.id,
        "problem": problem_to_json(PROBLEM),
        "library": "tilewright",
        "stencil": choice.stencil.name,
        "config": dict(choice.config),
    }
    assert profiled.run(task) > 0
    assert profiled.run(task | {"library": "numpy"}) > 0


@pytest.mark.gpu
@pytest.mark.alone
def test_a_real_gpu_is_counted(cuda):
    try:
        found = Profiler(cuda, Method())
        problem = Problem(1024, 1024, 1024, "s")
        told = found.profile(problem, choose(cuda, problem), ["cublas"])
    except ProfileError as reason:
        pytest.skip(str(reason))
    for one in told["libraries"].values():
        (kernel, *_) = one["kernels"]
        assert 0 < kernel["counters"]["fma_instructions_pct"] <= 100
        assert 0 < kernel["counters"]["issue_pct"] <= 100
