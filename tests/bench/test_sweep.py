"""Sweeps: what is asked for is what is measured, and a peer that is missing says why."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tilewright.backend import device
from tilewright.bench.peers import UnavailableError, peer
from tilewright.bench.sweep import parse_cases, parse_sizes, problems_of, sweep
from tilewright.cli.app import run
from tilewright.problem import Problem
from tilewright.tuning.measure import Workload


def test_sizes():
    assert parse_sizes("512:4096") == [(n, n, n) for n in (512, 1024, 2048, 4096)]
    assert parse_sizes("100:250") == [(100,) * 3, (200,) * 3]
    assert parse_sizes("10:30:10,7") == [(10,) * 3, (20,) * 3, (30,) * 3, (7,) * 3]
    assert parse_sizes("8192x8192x1024") == [(8192, 8192, 1024)]


@pytest.mark.parametrize("text", ["", "big", "1x2", "1:2:3:4", "0", "-5", "1:2x3", "3,,4"])
def test_wrong_sizes_are_named(text):
    with pytest.raises(ValueError, match="sizes="):
        parse_sizes(text)


def test_cases():
    assert parse_cases("s,z", "NT") == [("s", "N", "T"), ("z", "N", "T")]
    assert len(parse_cases("all", "all")) == 26
    assert len(problems_of("s,d", "all", "64:256")) == 24
    with pytest.raises(ValueError, match="trans='NX'"):
        parse_cases("s", "NN,NX")


def test_everybody_computes_the_same_product():
    """Peers are timed on the workload's own matrices where they can reach them."""
    live = device()
    problem = Problem(70, 60, 50, "d", "T", "N")
    row = next(iter(sweep(live, [problem], [peer("numpy", live)], rounds=2)))
    assert set(row.seconds) == {"tilewright", "numpy"}
    assert all(len(times) == 2 and min(times) > 0 for times in row.seconds.values())
    assert row.rate("tilewright") == problem.flops / np.median(row.seconds["tilewright"])
    assert row.rate("cublas") is None


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
    with pytest.raises(UnavailableError, match="cublas runs on CUDA devices"):
        peer("cublas", next(d for d in [device("opencl")]))
    with pytest.raises(ValueError, match="against='mkl'"):
        peer("mkl", device())


def test_the_command_writes_one_file_that_tells_everything(tmp_path, capsys):
    out = tmp_path / "bench.json"
    command = ["bench", "--sizes", "48,32x16x8", "--trans", "NT", "--against", "numpy"]
    assert run([*command, "--rounds", "1", "-o", str(out), "--json"]) == 0
    document = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == document
    rows = document["devices"][0]["results"]
    assert [row["size"] for row in rows] == [[48, 48, 48], [32, 16, 8]]
    assert document["environment"]["commit"] is not None
    assert run([*command, "--against", "nobody"]) == 2
    assert run([*command, "--against", "cublas", "--device", "opencl"]) == 1
