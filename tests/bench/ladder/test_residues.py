"""The ladder of residues: reasons without Hopper's tensor cores, right rungs with them."""

from __future__ import annotations

import json

import pytest

from tilewright.bench.ladder.residues import RUNGS
from tilewright.cli.app import run


def test_devices_without_tensor_cores_have_reasons(capsys):
    options = ["--kind", "residues", "--device", "opencl", "--rounds", "2", "--json"]
    assert run(["ladder", *options]) == 0
    (climb,) = json.loads(capsys.readouterr().out)["devices"][0]["results"]
    assert climb["problem"] == "DGEMM from residues, C = A B 64x64x64, row-major"
    assert [one["name"] for one in climb["rungs"]] == [one.name for one in RUNGS]
    assert "has no wgmma" in climb["bound"]["missing"]
    assert all("has no wgmma" in one["reason"] for one in climb["rungs"])


@pytest.mark.gpu
def test_every_rung_is_right_and_has_a_rate(capsys, cuda):
    options = ["--size", "300x513x700", "--device", cuda.id, "--rounds", "2", "--json"]
    assert run(["ladder", "--kind", "residues", *options]) == 0
    (climb,) = json.loads(capsys.readouterr().out)["devices"][0]["results"]
    for one in climb["rungs"]:
        assert not one["reason"]
        assert one["flops_per_second"] > 0
        assert one["eta"] < 2.0**-48
