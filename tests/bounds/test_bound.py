"""The Bound object and the command."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import tilewright as tw
from tests.hardware.test_catalogue import DEVICES, GOOD
from tilewright.backend import device as live_device
from tilewright.cli.app import run
from tilewright.hardware.catalogue import described
from tilewright.hardware.spec import DeviceSpec
from tilewright.serve.bound import bound

SGEMM = tw.Problem(4800, 4800, 4800, "s", "N", "T")


def test_a_file_is_a_device(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(GOOD + 'clock_hz = { value = 1e9, source = "paper" }\n')
    found = tw.bound(SGEMM, device=str(path))
    assert found.device == "mine"
    assert found.limit == 2 * 8 * 4 * 1e9
    for wrong, message in (
        ("nowhere.toml", "cannot be read: No such file"),
        (str(tmp_path) + "/.toml", "cannot be read"),
    ):
        with pytest.raises(ValueError, match=message):
            tw.device(wrong)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"mine\.toml is not TOML"):
        tw.device(str(path))
    path.write_text("#" * 2**20 + GOOD)
    with pytest.raises(ValueError, match="shorten it"):
        tw.device(str(path))


def test_limit_is_the_smallest_term():
    found = tw.bound(SGEMM, device="gtx580")
    assert found.limit == min(t.value for t in found.terms if t.value is not None)
    assert found.limiting.value == found.limit
    assert found.seconds == pytest.approx(SGEMM.flops / found.limit)
    with pytest.raises(ValueError, match="name='luck' is no term"):
        found.term("luck")


def test_explain_can_be_followed_by_hand():
    found = tw.bound(SGEMM, device="gtx580")
    text = found.explain()
    for one in found.terms:
        assert one.name in text
        assert one.formula in text
        for quantity in one.inputs:
            assert quantity.source in text
    inputs = {q.name: q.value for q in found.limiting.inputs}
    share = inputs["share of multiply-adds"] * inputs["throughput"] / inputs["fma_lanes.s"]
    assert found.limit == pytest.approx(share * inputs["arithmetic peak"])
    assert text.count("\n>") == 1


def test_unknown_numbers_are_named():
    found = bound(SGEMM, "avx2")
    assert "clock_hz" in found.missing["arithmetic peak"]
    assert found.as_dict()["flops_per_second"] is None
    with pytest.raises(
        ValueError, match=r"device='avx2' has no bound for SGEMM NT 4800.*clock_hz.*--probe -o"
    ):
        _ = found.limit


def test_every_device_bounds_every_precision():
    for name in set(DEVICES) - {"avx2"}:
        for letter in "sdcze":
            found = bound(tw.Problem(1000, 700, 300, letter), name)
            assert 0 < found.limit <= found.term("arithmetic peak").value
            assert json.dumps(found.as_dict())


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="device='gtx9000' is not here"):
        bound(SGEMM, "gtx9000")
    with pytest.raises(ValueError, match="size=0x4x4 is empty"):
        bound(tw.Problem(0, 4, 4), "gtx580")
    with pytest.raises(ValueError, match="arithmetic='fp4' is unknown"):
        bound(SGEMM, "gtx580", arithmetic="fp4")
    with pytest.raises(ValueError, match="kernel_rate=-1"):
        bound(SGEMM, "gtx580", kernel_rate=-1)
    with pytest.raises(ValueError, match="for bounds and spaces also one of a100"):
        tw.device("gtx9000")


def spec(name, **more):
    return DeviceSpec(name, "NVIDIA Corporation", "gpu", 114, 32, 1024, 49152, **more)


@pytest.mark.parametrize(
    "wrong",
    [{"kernel_rate": "x"}, {"kernel_rate": float("nan")}, {"promote_k": "a"}, {"promote_k": 1.5},
     {"compiled": "x"}],
)  # fmt: skip
def test_what_is_no_number_or_no_kernel_is_named(wrong):
    [(name, value)] = wrong.items()
    with pytest.raises(ValueError, match=f"^{name}={value!r} is no"):
        tw.bound(SGEMM, device="h100", transfer="kernel_rate" in wrong, **wrong)


def test_live_devices_are_recognised_by_name():
    live = described(spec("NVIDIA H100 80GB HBM3", clock_hz=1.755e9), "cuda:0")
    assert live.id == "cuda:0"
    assert live.needs("multiprocessors") == 114  # the driver's word
    assert live.needs("fma_lanes.s") == 128
    assert live.needs("clock_hz") == 1980e6  # a clock that was set lower bounds nothing
    for kind in ("H100 PCIe", "GeForce RTX 4070 Ti", "GeForce RTX 4070 Laptop GPU", "GH200 480GB"):
        name = f"NVIDIA {kind}"
        other = described(spec(name), "cuda:0")
        assert other.value("fma_lanes.s") is None
        with pytest.raises(ValueError, match=r"device='cuda:0' has no bound.*fma_lanes\.s"):
            _ = bound(SGEMM, other).limit


def test_a_live_device_has_a_bound():
    live = tw.device("opencl")
    assert live.backend == "opencl"
    found = tw.bound(SGEMM, device=live)
    assert found.device == live.id
    assert found.limit > 1e9


def test_a_kind_means_the_best_device_of_it(cpu):
    assert tw.device("cpu").spec.kind == "cpu"
    assert tw.bound(SGEMM, "cpu").limit > 1e9
    if not any(one.spec.kind == "gpu" for one in tw.devices()):
        with pytest.raises(ValueError, match="device='gpu' is not here"):
            tw.device("gpu")


def test_a_catalogue_device_runs_nothing():
    for found in (tw.device("gtx580"), 7):
        with pytest.raises(TypeError, match="is no live device"):
            live_device(found)
    with pytest.raises(ValueError, match="device='gtx580' is not here"):
        live_device("gtx580")


def test_cached_operands_leave_memory_without_a_limit():
    small = tw.Problem(64, 64, 64, "s")
    found = tw.bound(small, "h100", warm_cache=True)
    assert "no limit" in found.explain()
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["flops_per_second"]
    assert found.limit > tw.bound(small, "h100").limit


def test_complex_double_double_takes_four_real_multiply_adds():
    real, complex_ = (tw.bound(tw.Problem(4096, 4096, 4096, p), "h100") for p in "ew")
    assert complex_.term("arithmetic peak").value == real.term("arithmetic peak").value


def test_nothing_heavy_is_imported_and_no_backend_for_the_catalogue():
    code = (
        "import sys, tilewright as tw\n"
        "b = tw.bound(tw.Problem(64, 64, 64, 's'), device='gtx580')\n"
        "print([m for m in ('pyopencl', 'matplotlib', 'rich', 'typer') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_command(capsys):
    command = ["bound", "--device", "gtx580", "--trans", "NT", "--size", "4800"]
    assert run(command) == 0
    assert "set by multiprocessor (eq. 11)" in capsys.readouterr().out
    assert run([*command, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["flops_per_second"] == tw.bound(SGEMM, "gtx580").limit
    assert told["size"] == [4800, 4800, 4800]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--device", "gtx9000"], 2, "device='gtx9000'"),
        (["--device", "gtx580", "--precision", "q"], 2, "precision='q' is unknown"),
        (["--device", "gtx580", "--size", "0"], 2, "is empty"),
        (["--device", "gtx580", "--link", "-3"], 2, "link=-3"),
        (["--device", "gtx580", "--rate", "-1", "--transfer"], 2, "rate=-1 is no rate"),
        (
            ["--device", "gtx580", "--rate", "9"],
            2,
            "rate=9 means nothing without transfer",
        ),
        (["--device", "gtx580", "--overlap"], 2, "overlap=True means nothing without transfer"),
        (["--device", "h100", "--presplit"], 2, "means nothing without arithmetic in parts"),
        (["--device", "h100", "--sequence", "x"], 2, "sequence=x means nothing without double-"),
        (["--device", "avx2"], 2, "clock_hz"),
    ],
)
def test_command_refuses_in_one_line(arguments, status, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["bound", *arguments]) == status
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
