"""What an export writes of tensor cores' types: cubins, and what a program needs to launch them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.cli.app import run
from tilewright.export import formats_of, kernel_set, variants_of
from tilewright.precision import SHORT
from tilewright.sass import read_cubin

ONE = "bf16,e4m3,tf32"


@pytest.fixture(autouse=True)
def ship(monkeypatch):
    """Leave the package's portfolios where they are; nothing is compiled."""
    monkeypatch.delattr(kernel_set, "arranged_cubin")


def test_kernels_of_tensor_cores_come_with_their_arguments_and_maps(tmp_path: Path, capsys):
    output = tmp_path / "kernels"
    arguments = ["export", "--device", "sm_90a", "--defaults", "--trans", "TN", "-o", str(output)]
    assert run([*arguments, "--precision", ONE]) == 0
    assert sorted(x.name for x in output.iterdir()) == ["cubin", "fatbin", "manifest.json"]
    manifest = json.loads((output / "manifest.json").read_text())
    assert set(manifest["variants"]) == {f"{letter}tn" for letter in ONE.split(",")}
    for one in manifest["kernels"].values():
        for code in (manifest["codes"][name] for name in one["codes"].values()):
            assert code["dynamic_shared_bytes"] <= 227 * 1024
        if not one["geometry"].get("tma"):
            assert "maps" not in one
            continue
        assert one["arguments"].count("map a") == one["arguments"].count("map b") == 1
        config, size = one["config"], SHORT[one["precision"]].element_bytes
        for (inner, side, _), block, share in (
            (one["maps"][0]["box"], config["block_m"], config["cluster_n"]),
            (one["maps"][1]["box"], config["block_n"], config["cluster_m"]),
        ):
            assert side * share == block
            assert inner == config["block_k"]
            assert one["maps"][0]["swizzle"] == inner * size
    name, code = next(iter(manifest["codes"].items()))
    found = read_cubin(output / f"cubin/{name}.cubin").kernel(code["symbol"])
    assert found.registers == code["registers"]


def test_the_c_library_has_blas_precisions_alone(tmp_path: Path, capsys):
    assert formats_of(variants_of("s,z", "NN")) == ("cubin", "fatbin", "c")
    arguments = ["export", "--device", "sm_90a", "-o", str(tmp_path / "kernels")]
    assert run([*arguments, "--precision", "s,bf16", "--format", "c"]) == 2
    assert "format='c' has no precision=bf16" in capsys.readouterr().err


def test_variants_are_the_orders_that_kernels_read():
    assert [str(x) for x in variants_of("int8", "all")] == ["int8tn"]
    assert [str(x) for x in variants_of("tf32", "all")] == ["tf32nn", "tf32tn", "tf32tt"]
    with pytest.raises(ValueError, match="trans=NN has no kernels of int8"):
        variants_of("int8", "NN")
