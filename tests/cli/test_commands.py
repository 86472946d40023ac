"""The command line as a person uses it: files in, files out, one-line errors, exit status."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tilewright.backend import devices
from tilewright.cli import app, main
from tilewright.cli.app import run
from tilewright.cli.output import emit_lines
from tilewright.precision import dtype_of
from tilewright.version import VERSION


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Two matrices in files, in the current directory."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((30, 20)), rng.standard_normal((30, 10))
    np.save("a.npy", a)
    np.save("b.npy", b)
    return a, b


def out(capsys):
    return capsys.readouterr().out


def test_multiply(files, capsys):
    a, b = files
    assert run(["multiply", "a.npy", "b.npy", "-o", "c.npy", "--trans", "TN", "--alpha", "2"]) == 0
    assert np.allclose(np.load("c.npy"), 2 * a.T @ b)
    assert "20 x 10 float64" in out(capsys)


@pytest.mark.parametrize(
    ("letter", "result"),
    [
        ("fp16_f32", "float32"), ("bf16", "bfloat16"), ("e4m3_f32", "float32"), ("int8", "int32"),
        ("tf32", "float32"),
    ],
)  # fmt: skip
def test_multiply_converts_to_types_of_tensor_cores(files, capsys, letter, result):
    pytest.importorskip("ml_dtypes")
    a = np.random.default_rng(1).integers(-4, 5, (20, 20)).astype("f8")
    np.save("a.npy", a)
    as_one = ["--precision", letter, "--trans", "TN"]
    assert run(["multiply", "a.npy", "a.npy", "-o", "c.npy", *as_one]) == 0
    assert f"20 x 20 {result}" in out(capsys)
    assert run(["multiply", "a.npy", "a.npy", "--c", "c.npy", "-o", "d.npy", "--beta", "-1",
                *as_one]) == 0  # fmt: skip
    rounded = (a.T @ a).astype(dtype_of(result))
    np.testing.assert_array_equal(np.load("c.npy").view(rounded.dtype), rounded)
    assert f"20 x 20 {result}" in out(capsys)


def test_multiply_takes_the_files_of_types_that_npy_has_no_name_for(files):
    types = pytest.importorskip("ml_dtypes")
    a = np.random.default_rng(1).standard_normal((9, 9)).astype(types.bfloat16)
    np.save("a.npy", a)
    assert run(["multiply", "a.npy", "a.npy", "-o", "c.npy", "--precision", "bf16_f32"]) == 0
    np.testing.assert_allclose(np.load("c.npy"), a.astype("f4") @ a.astype("f4"), 1e-6, 1e-6)
    assert run(["multiply", "a.npy", "a.npy", "-o", "c.npy", "--precision", "e4m3"]) == 2


def test_multiply_takes_files_of_machines_with_bytes_in_another_order(files):
    a, b = files
    np.save("a.npy", a.astype(a.dtype.newbyteorder()))
    assert run(["multiply", "a.npy", "b.npy", "-o", "c.npy", "--trans", "TN"]) == 0
    assert np.allclose(np.load("c.npy"), a.T @ b)


def test_multiply_takes_batches(files, capsys):
    a, b = np.ones((3, 4, 5)), np.ones((5, 6))
    np.save("a.npy", a)
    np.save("b.npy", b)
    assert run(["multiply", "a.npy", "b.npy", "-o", "c.npy"]) == 0
    assert np.array_equal(np.load("c.npy"), a @ b)
    assert "3 x 4 x 6 float64" in out(capsys)


def test_bound_of_a_batch(capsys):
    command = ["bound", "--device", "h100", "--size", "64", "--json"]
    assert run([*command, "--batch", "4096"]) == 0
    many = json.loads(out(capsys))
    assert run(command) == 0
    one = json.loads(out(capsys))
    assert (many["batch"], one["batch"]) == (4096, 1)
    assert many["flops_per_second"] >= one["flops_per_second"]  # its tiles fill whole waves


def test_multiply_computes_in_the_file_which_is_whole_or_not_there(files, capsys, monkeypatch):
    from tilewright.cli import multiply

    monkeypatch.setattr(multiply, "_LEAST_MAPPED", 0)
    command = ["multiply", "a.npy", "b.npy", "-o", "c.npy", "--trans", "TN"]
    assert run([*command, "--device", "opencl,opencl"]) == 2
    assert "twice" in capsys.readouterr().err
    assert run([*command, "--device", "opencl"]) == 0
    made = np.load("c.npy")
    assert np.allclose(made, np.load("a.npy").T @ np.load("b.npy"))

    def full(descriptor, start, size):
        raise OSError(28, "No space left on device")

    names = set(Path.cwd().iterdir())
    monkeypatch.setattr(multiply.os, "posix_fallocate", full, raising=False)
    assert run([*command, "--alpha", "2"]) == 1
    assert "c.npy cannot be used (No space left on device)" in capsys.readouterr().err
    assert np.array_equal(np.load("c.npy"), made)
    assert set(Path.cwd().iterdir()) == names


@pytest.mark.parametrize("kind", ["i1", "f4"])
def test_a_large_matrix_of_the_type_that_is_asked_for_stays_in_its_file(files, monkeypatch, kind):
    from tilewright.cli import multiply

    monkeypatch.setattr(multiply, "_LEAST_MAPPED", 0)
    np.save("x.npy", np.ones((3, 3), kind))
    assert isinstance(multiply.load(Path("x.npy"), np.dtype(kind), mapped=True).base, np.memmap)


def test_multiply_adds_to_a_c_it_does_not_change(files, capsys):
    a, b = files
    np.save("c.npy", np.ones((20, 10), np.complex64))
    command = ["multiply", "a.npy", "b.npy", "--c", "c.npy", "-o", "d.npy", "--trans", "CN"]
    assert run([*command, "--beta", "1+1j", "--precision", "c", "--json"]) == 0
    assert np.allclose(np.load("d.npy"), a.T @ b + 1 + 1j, atol=1e-4)
    assert np.array_equal(np.load("c.npy"), np.ones((20, 10)))
    assert json.loads(out(capsys))["dtype"] == "complex64"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["multiply", "a.npy", "b.npy", "-o", "c.npy"], 2, "inner sizes must agree"),
        (["multiply", "a.npy", "nowhere.npy", "-o", "c.npy"], 1, "nowhere.npy"),
        (["multiply", "a.npy", "text.npy", "-o", "c.npy"], 2, "text.npy is not an .npy file"),
        (["multiply", "a.npy", "b.npy", "-o", "c.npy", "--trans", "XX"], 2, "trans='XX'"),
        (["multiply", "a.npy", "b.npy", "-o", "c.npy", "--alpha", "x"], 2, "alpha='x'"),
        (["multiply", "a.npy", "b.npy", "-o", "c.npy", "--precision", "q"], 2, "precision='q'"),
        (["multiply", "a.npy", "b.npy", "-o", ".", "--trans", "TN"], 1, "not a plain file"),
        (["multiply", "a.npy", "b.npy", "-o", "c.npz", "--trans", "TN"], 2, "end its name in .npy"),
        (["multiply", "a.npy", "b.npy", "-o", "no/c.npy", "--trans", "TN"], 1, "in no directory"),
        (["multiply", "a.npy", "b.npy", "-o", "a.npy", "--trans", "TN"], 2, "is the input a.npy"),
        (["multiply", "a.npy", "b.npy", "-o", "link.npy"], 2, "is the input b.npy"),
        (["solve", "a.npy", "b.npy", "-o", "b.npy"], 2, "is the input b.npy"),
        (["multiply", "head.npy", "b.npy", "-o", "c.npy"], 2, "head.npy is not an .npy file"),
        (["multiply", "zip.npy", "b.npy", "-o", "c.npy"], 2, "zip.npy is not an .npy file"),
        (["multiply", "v.npy", "b.npy", "-o", "c.npy"], 2, "v.npy holds |V2: bytes whose type"),
        (["multiply", "z.npy", "z.npy", "-o", "c.npy", "--precision", "d"], 2, "z.npy is complex"),
        (["multiply", "t.npy", "t.npy", "-o", "c.npy", "--precision", "d"], 2, "not numbers"),
        (["multiply", "a.npy", "z.npy", "-o", "c.npy"], 2, "but z.npy complex"),
        (["multiply", "a.npy", "b.npy", "-o", "c.npy", "--precision", "int8"], 2, "int8 has not"),
        (["multiply", "a.npy", "b.npy", "-o", "c.npy", "--alpha", "1e999"], 2, "beyond float64"),
        (
            ["multiply", "a.npy", "b.npy", "-o", "c.npy", "--trans", "TN", "--device", ","],
            2,
            "leaves one out",
        ),
        (["portfolio", "build", "s", "--work", "w", "--device", "opencl"], 2, "no CUDA device"),
        (["portfolio", "loss", "no.json"], 2, "times: 'precision' is missing"),
        (["solve", "--size", "4", "-o", "no/x.npy"], 1, "in no directory"),
        (["solve", "--size", "4", "-o", "x.npz"], 2, "end its name in .npy"),
        (["solve", "--size", "99999999"], 1, "Unable to allocate 71.1 PiB for an array with"),
        (["ladder", "--size", "64", "-o", "no/x.json"], 1, "in no directory"),
        (["ladder", "--size", "64", "--tune", "soon"], 2, "tune='soon'"),
        (["ladder", "--size", "999999999"], 2, "GiB in three matrices"),
        (["bound", "--device", "h100", "--size", "9" * 120], 2, "beyond any"),
        (["bound", "--device", "gtx580", "--precision", "fp16"], 2, "tensor.fp16"),
        (["microbench", "-o", "no/x.json"], 1, "in no directory"),
        (["report", "-o", "no/x.html"], 1, "in no directory"),
        (["inspect", "default", "-o", "no/x.cubin"], 1, "in no directory"),
        (["inspect", "none.cubin"], 1, "none.cubin cannot be used (No such file"),
        (["inspect", "default,pad=" + "9" * 400], 2, "pad="),
        (["inspect", "default", "--stencil", "packed", "--precision", "e"], 2, "packed"),
        (["multiply", "a.npy", "b.npy"], 2, "--output"),
        (["tune", "--size", "big"], 2, "size='big'"),
        (["tune", "--size", "0"], 2, "is empty"),
        (["tune", "--budget", "soon"], 2, "budget='soon'"),
        (["tune", "--device", "abacus"], 2, "device='abacus'"),
        (["tune", "--strategy", "luck", "--budget", "5s"], 2, "strategy='luck'"),
        (["space", "--stencil", "none"], 2, "stencil='none'"),
        (["space", "--stencil", "mma_f64", "--precision", "s"], 2, "precision='s'"),
        (["space", "--stencil", "wgmma"], 2, "precision='s' is none of tensor cores"),
        (["tune", "--stencil", "mma_f64", "--precision", "d"], 2, "is not for opencl:0"),
        (["tune", "--stencil", "mma_f64", "--precision", "s"], 2, "has no SGEMM"),
        (["tune", "--stencil", "wgmma", "--size", "64"], 2, "has no SGEMM"),
        (["solve", "a.npy"], 2, "both A and b"),
        (["solve", "a.npy", "b.npy", "--precision", "s"], 2, "is a random system's"),
        (["nonsense"], 2, "No such command"),
    ],
)
def test_errors_are_one_line_and_leave_nothing_behind(files, capsys, arguments, status, message):
    with open("text.npy", "w") as text:
        text.write("not a matrix")
    with open("head.npy", "wb") as damaged:
        damaged.write(b"\x93NUMPY\x01\x00\x10\x00{bad            ")
    with open("zip.npy", "wb") as archive:
        archive.write(b"PK\x03\x04 and no more")
    np.save("z.npy", np.array([[1 + 2j]]))
    np.save("t.npy", np.array([["2026-11-23"]], dtype="datetime64[D]"))
    np.save("v.npy", np.zeros((2, 2), "V2"))  # what bfloat16 becomes
    os.symlink("b.npy", "link.npy")
    Path("no.json").write_text("{}")
    assert run(arguments) == status
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    given = {f"{name}.npy" for name in ["link", "a", "b", "head", "t", "text", "v", "z", "zip"]}
    assert set(os.listdir()) - {"data", "no.json"} == given


@pytest.mark.parametrize(
    "arguments",
    [
        "bench", "bench calls", "bench strategies a.npy", "bench pruning a.npy",
        "ladder", "microbench", "devices --probe", "multiply a.npy b.npy", "solve", "report",
        "quickstart --report", "inspect default", "db export", "db reproduce 1", "space --trace",
        "portfolio measure s", "portfolio verify",
    ],
)  # fmt: skip
def test_what_a_command_did_not_write_is_not_replaced(files, capsys, arguments):
    notes = Path("notes.toml")
    notes.write_text("{my notes}")
    words = arguments.split()
    names = [] if words[-1].startswith("--") and words[-1] != "--probe" else ["-o"]
    assert run([*words, *names, "notes.toml"]) == 2
    assert "='notes.toml' holds something else than this command writes" in capsys.readouterr().err
    assert notes.read_text() == "{my notes}"


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("strategies", b' "devices": [\n  {\n   "results": []\n  }\n ]'),
        ("strategies", b' "results": [\n  {"space": "a \\"b\\"", "points": 4}\n ]'),
        ("pruning", b' "results": [\n  {"space": "a \\"b\\"", "strategy": "random"}\n ]'),
    ],
)
def test_searches_do_not_replace_other_results(files, capsys, name, others):
    Path("results.json").write_bytes(b'{\n "environment": {\n  "cores": 2\n },\n' + others + b"\n}")
    assert run(["bench", name, "a.npy", "-o", "results.json"]) == 2
    assert "holds something else than this command writes" in capsys.readouterr().err


def test_what_is_empty_or_of_its_own_kind_is_replaced(files):
    for path in (Path("c.npy"), Path("passed.json")):
        path.touch()
    for _ in range(2):
        assert run(["multiply", "a.npy", "b.npy", "-o", "c.npy", "--trans", "TN"]) == 0
        assert run(["portfolio", "verify", "--device", "opencl", "-o", "passed.json"]) == 0
    assert json.loads(Path("passed.json").read_text()) == {}
    assert np.load("c.npy").ndim == 2


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["tune", "--size", "big", "--json"], 2, "size='big' is not a size"),
        (["tune", "--no-such", "--json"], 2, "--no-such"),
        (["nonsense", "--json"], 2, "nonsense"),
        (["multiply", "--json"], 2, "Missing argument"),
        (["bench", "--rounds", "0", "--json"], 2, "--rounds"),
        (["db", "show", "1", "--store", "none.sqlite", "--json"], 1, "there is no store"),
    ],
)
def test_errors_are_json_where_json_was_asked_for(capsys, arguments, status, message):
    assert run(arguments) == status
    told = capsys.readouterr()
    assert told.out == ""
    error = json.loads(told.err)
    assert error["status"] == status
    assert message in error["error"]


def test_an_interrupt_is_json_where_json_was_asked_for(capsys, files, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("tilewright.serve.gemm.gemm", stopped)
    for more, told in ((["--json"], '"status": 130}'), ([], "tilewright: ")):
        assert run(["multiply", "a.npy", "b.npy", "-o", "c.npy", "--trans", "TN", *more]) == 130
        assert told in capsys.readouterr().err


def test_nothing_is_told_where_nothing_goes_wrong(capsys, files):
    assert run(["multiply", "a.npy", "b.npy", "-o", "c.npy", "--trans", "TN"]) == 0
    assert capsys.readouterr().err == ""


def test_the_version_is_told(capsys):
    assert run(["--version"]) == 0
    assert out(capsys) == f"tilewright {VERSION}\n"


def test_devices_fit_a_narrow_terminal(capsys, monkeypatch):
    monkeypatch.setattr(Console, "is_terminal", True)
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["devices"]) == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", out(capsys))
    for device in devices():
        assert device.id in text
        assert device.fingerprint in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_missing_pyopencl_is_named(tmp_path):
    package = tmp_path / "pyopencl"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('no')")
    code = "import tilewright as tw, numpy as np; tw.gemm(np.eye(2), np.eye(2), device='opencl')"
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    ran = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    # Where there is an NVIDIA GPU, it is said that it is not asked for.
    assert "pip install pyopencl" in ran.stderr or "is not here; use one of" in ran.stderr


def test_a_config_may_be_longer_than_a_files_name(capsys):
    from tilewright.backend.cuda.architecture import architecture_spec
    from tilewright.cli.config_argument import is_cubin, wanted_config
    from tilewright.problem import Problem
    from tilewright.stencil import Variant, stencil

    family, variant = stencil("simt_async"), Variant.of(Problem(1, 1, 1, "s"))
    config = family.default(variant, architecture_spec("sm_90a"))
    text = ",".join(f"{name}={value}" for name, value in config.items())
    text += ",persistent=0,stream_k=0,warps_k=1,specialised_epilogue=0,tma=0"
    text += ",tree_reduction=0,parallel_split_k=0,run_bytes=32"
    assert len(text) > 255
    assert not is_cubin(text)
    found = wanted_config(text).values
    assert found is not None
    assert found.items() >= dict(config).items()


def test_help_shows_ranges_as_they_are_written(capsys):
    assert run(["bench", "--help"]) == 0
    assert ":STEP" in out(capsys)


def test_an_npy_file_with_objects_is_not_unpickled(files, capsys):
    np.save("evil.npy", np.array([{}], dtype=object), allow_pickle=True)
    assert run(["multiply", "evil.npy", "b.npy", "-o", "c.npy"]) == 2


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "tilewright", "devices", "--json"]
    listed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert "opencl:0" in {one["id"] for one in listed}


def test_devices(capsys):
    assert run(["devices", "--json"]) == 0
    found = json.loads(out(capsys))
    assert found[0]["id"] == "opencl:0"
    assert all(len(d["fingerprint"]) == 12 for d in found)
    assert run(["devices"]) == 0
    assert "opencl:0" in out(capsys)


def test_space_shows_how_every_constraint_narrows_it(capsys):
    assert run(["space", "--json", "--precision", "z", "--trans", "CN"]) == 0
    told = json.loads(out(capsys))
    left = told["raw_size"]
    for stage in told["funnel"]:
        assert stage["survivors"] + stage["removed"] == left
        assert stage["reason"]
        left = stage["survivors"]
    assert left > 0
    assert run(["space"]) == 0
    assert "every combination" in out(capsys)
    # Devices of the catalogue have the stencils that they would have here.
    for device, stencil in (("gtx680", "portable"), ("h100", "simt_async"), ("avx2", "packed")):
        assert run(["space", "--device", device, "--json"]) == 0
        told = json.loads(out(capsys))
        assert (told["device"], told["stencil"]) == (device, stencil)
        assert told["funnel"][-1]["survivors"] > 0


def test_solve(files, capsys, tmp_path):
    rng = np.random.default_rng(1)
    a = rng.standard_normal((50, 50))
    np.save("a.npy", a)
    np.save("b.npy", a.sum(axis=1))
    assert run(["solve", "a.npy", "b.npy", "-o", "x.npy"]) == 0
    assert "accepted" in out(capsys)
    assert np.allclose(np.load("x.npy"), 1)
    assert run(["solve", "--size", "64", "--precision", "c", "--json"]) == 0
    assert json.loads(out(capsys))["accepted"]


def test_what_solves_nothing_is_not_written(files, capsys):
    np.save("a.npy", np.full((4, 4), np.nan))
    np.save("b.npy", np.ones(4))
    assert run(["solve", "a.npy", "b.npy", "-o", "x.npy"]) == 1
    assert "is not below 16; x.npy is not written" in capsys.readouterr().err
    assert not Path("x.npy").exists()


def test_tune_then_tune_again(capsys):
    command = ["tune", "--size", "64", "--budget", "1s", "--strategy", "random", "--json"]
    assert run(command) == 0
    first = json.loads(out(capsys))
    assert first["tried"] > 0
    assert first["resumed"] == 0
    assert first["error"] < 1e-5
    assert run(command) == 0
    assert json.loads(out(capsys))["resumed"] == first["tried"]


QUICKSTART = ["quickstart", "--size", "128", "--budget", "1s", "--system", "200", "--report"]


@pytest.mark.parametrize(
    "wrong",
    [
        ("--precision", "bf16"),
        ("--precision", "e"),
        ("--size", "0"),
        ("--budget", "soon"),
        ("--report", "missing/page.html"),
    ],
)
def test_quickstart_refuses_what_it_cannot_use_before_it_works(capsys, wrong):
    assert run(["quickstart", *wrong]) in (1, 2)
    told = capsys.readouterr()
    assert not told.out
    assert wrong[1] in told.err


def test_quickstart_from_nothing_and_again(capsys, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # no results of others
    page = tmp_path / "report.html"
    assert run([*QUICKSTART, str(page), "--json"]) == 0
    told = json.loads(out(capsys))
    assert told["device"] in {one.id for one in devices()}
    assert told["tuned"]["flops_per_second"] > 0
    beside = told["beside"]
    assert set(beside["flops_per_second"]) == {"tilewright", "numpy"}
    assert all(one["eta"] < 1e-5 for one in beside["errors"].values())
    assert told["solved"]["accepted"] is True
    assert told["report"] == str(page)

    assert run([*QUICKSTART, str(page)]) == 0
    text = out(capsys)
    assert "results are stored from before: starting from them" in text
    assert text.rstrip().endswith(str(page))
    assert "Tuning progress" in page.read_text()
    for part in ("every combination", "winner for SGEMM", "NumPy", "of the bound", "accepted"):
        assert part in text
    (kept,) = (data / "results").glob("*.json")
    (row,) = json.loads(kept.read_text())["devices"][0]["results"]
    rates = row["flops_per_second"]
    ratio = f"{rates['tilewright'] / rates['numpy']:.2f}"
    assert f"{ratio} times NumPy's rate" in text
    assert f"<dt>times NumPy&#39;s rate</dt><dd>{ratio}</dd>" in page.read_text()


def test_what_ends_a_job_is_an_interrupt(monkeypatch):
    monkeypatch.setattr(app, "run", lambda arguments: os.kill(os.getpid(), signal.SIGTERM))
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(KeyboardInterrupt):
            main()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with pytest.raises(SystemExit):  # who started it wants it to go on
            main()
    finally:
        signal.signal(signal.SIGTERM, before)


def test_tables_show_brackets_and_break_words_where_there_is_no_room(monkeypatch, capsys):
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    monkeypatch.setenv("COLUMNS", "24")
    emit_lines(("device", "state"), [("name[/a]", "x" * 30)], title="[/b]")
    told = capsys.readouterr().out
    assert "[/b]" in told
    cells = [line.split("│")[1].strip() for line in told.splitlines() if "│" in line]
    assert "".join(cells) == "name[/a]"
    assert told.count("x") == 30


def test_where_standard_error_is_closed_the_status_tells():
    command = f"{sys.executable} -m tilewright bound --size x 2>&-"
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 2
