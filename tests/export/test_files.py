"""What an export writes: cubins and fat binaries that NVIDIA's tools read, and a manifest."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.export.building import pretended, run
from tests.export.conftest import KEY, served_by
from tests.export.portfolios import DEVICE
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.cli.app import run as tilewright
from tilewright.export import check, collect, find_target, kernel_set, variants_of, write, writing
from tilewright.export.c_library import c_library
from tilewright.export.fatbin import fatbin_of
from tilewright.export.target import Target
from tilewright.paths import write_atomically
from tilewright.portfolio.choose import default_choice
from tilewright.portfolio.portfolio import read_portfolio, write_portfolio
from tilewright.precision import PRECISIONS
from tilewright.problem import transposes_of
from tilewright.sass import read_cubin
from tilewright.sass.elf import section_of
from tilewright.space import Config
from tilewright.stencil import Source, Variant

needs_compiler = pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not here")

EMPTY = Source('extern "C" __global__ void gemm(float *x) { x[0] = 1; }', {})


def nvidia_tool(name: str) -> str:
    """Return one of NVIDIA's programs, from a toolkit or from its wheel; skip without it."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for path in importlib.metadata.files(f"nvidia-cuda-{name}") or ():
            if path.name == name:
                return str(path.locate())
    found = shutil.which(name, path="/usr/local/cuda/bin") or shutil.which(name)
    if not found:
        pytest.skip(f"NVIDIA's {name} is not here")
    return found


@needs_compiler
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_100f", "sm_120a"])
def test_a_fat_binary_has_the_bytes_that_nvidias_tool_writes(arch: str, tmp_path: Path):
    tool = nvidia_tool("fatbinary")
    code = compile_cubin(EMPTY, arch).code
    (tmp_path / "in.cubin").write_bytes(code)
    image = f"--image3=kind=elf,sm={arch[3:]},file={tmp_path / 'in.cubin'}"
    run(tool, "-64", "--compress-mode=none", f"--create={tmp_path / 'out'}", image)
    assert fatbin_of(code, arch) == (tmp_path / "out").read_bytes()


@needs_compiler
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100a"])
def test_cuobjdump_finds_the_cubin_in_a_fat_binary(arch: str, tmp_path: Path):
    tool = nvidia_tool("cuobjdump")
    code = compile_cubin(EMPTY, arch).code
    (tmp_path / "it.fatbin").write_bytes(fatbin_of(code, arch))
    assert f"arch = {arch}" in run(tool, tmp_path / "it.fatbin")
    run(tool, "-xelf", "all", tmp_path / "it.fatbin", cwd=tmp_path)
    (extracted,) = tmp_path.glob("*.cubin")
    assert extracted.read_bytes().rstrip(b"\0") == code.rstrip(b"\0")


def test_what_is_no_cubin_makes_no_fat_binary():
    with pytest.raises(ValueError, match="ELF"):
        fatbin_of(b"hello" * 20, "sm_90a")
    with pytest.raises(ValueError, match="arch='gfx90a'"):
        fatbin_of(b"", "gfx90a")
    cubin = Path(__file__).parent.parent / "sass/cubins/sgemm_4x4_sm_80.cubin"
    assert section_of(cubin.read_bytes(), ".nothing") == b""


@needs_compiler
def test_where_nothing_ships_one_command_compiles_and_writes_all_formats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    output = tmp_path / "kernels"
    arguments = ["export", "--device", "sm_75", "--precision", "d", "--trans", "NT"]
    assert tilewright([*arguments, "-o", str(output), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["variants"] == {"dnt": 1}
    manifest = json.loads((output / "manifest.json").read_text())
    assert Path(said["manifest"]) == output / "manifest.json"
    assert manifest["architecture"] == "sm_75"
    ((name, kernel),) = manifest["kernels"].items()
    assert manifest["variants"] == {"dnt": {"kernels": [], "fallback": name}}
    for name in kernel["codes"].values():
        code = manifest["codes"][name]
        cubin = read_cubin(output / f"cubin/{name}.cubin").kernel(code["symbol"])
        assert cubin.registers == code["registers"]
        threads = kernel["geometry"]["threads"]
        assert cubin.max_threads[0] == threads[0] * threads[1]
    config = Config(kernel["stencil"], kernel["config"])
    assert config == default_choice(variants_of("d", "NT")[0], find_target("sm_75").spec).config
    digests = {
        name: hashlib.sha256((output / name).read_bytes()).hexdigest() for name in manifest["files"]
    }
    assert digests == manifest["files"]
    assert {name.split("/")[0] for name in digests} == {"cubin", "fatbin", "c"}

    # Again with less: what is no longer asked for goes.
    assert tilewright([*arguments, "-o", str(output), "--format", "fatbin"]) == 0
    assert sorted(p.name for p in output.iterdir()) == ["fatbin", "manifest.json"]
    assert "1 kernels for sm_75" in capsys.readouterr().out


def no_compiler(patch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("nothing is to be compiled")

    for name in ("arranged_cubin", "nvrtc_version"):
        patch.setattr(kernel_set, name, refuse)


@pytest.mark.usefixtures("drawn_portfolios")
def test_what_ships_is_exported_without_a_compiler_and_alike_each_time(
    portfolios: Path, monkeypatch: pytest.MonkeyPatch
):
    """Every kernel with all that its launches and choices depend on."""
    no_compiler(monkeypatch)
    sets = [
        collect(find_target("sm_90a", defaults=True), variants_of("d", "NN,NT,TN")) for _ in "12"
    ]
    assert c_library(sets[0]) == c_library(sets[1])
    shipped = read_portfolio(portfolios / "sm_90", "d")
    (kernels, _) = sets
    every = [x for x in shipped.kernels if x.variant in kernels.rows]
    assert [x.kernel for x in kernels.kernels.values()] == every
    assert kernels.devices == [(shipped.device, shipped.multiprocessors)]
    for one in kernels.kernels.values():
        codes = {mode: kernels.codes[name] for mode, name in one.codes.items()}
        assert {mode: x.code.digest for mode, x in codes.items()} == dict(one.kernel.modes)
        assert all(shipped.machine_code(x.code.digest) == x.cubin for x in codes.values())
        assert one.costs == one.kernel.costs
    tables = c_library(kernels)["kernels.c"].decode()
    assert all(float(cost).hex() in tables for x in every for cost in x.costs)


@pytest.mark.usefixtures("drawn_portfolios")
def test_what_was_tuned_comes_first_and_is_left_aside_on_demand(monkeypatch: pytest.MonkeyPatch):
    target = find_target("sm_90a")
    assert target == find_target(KEY)
    assert (target.portfolio_key, target.name) == (KEY, DEVICE)
    rows = pretended(monkeypatch, target, variants_of("s", "NN"))
    found = rows.rows[variants_of("s", "NN")[0]]
    own = [one for one in found.kernels if one.own]
    assert own == list(found.kernels[: len(own)])
    assert len(own) == 3
    assert all(one.costs for one in own), "estimated from the most similar kernel's"
    without = collect(find_target(KEY, defaults=True), variants_of("s", "NN"))
    assert not any(one.own for one in without.kernels.values())


def test_a_damaged_portfolio_is_named_in_one_line(
    portfolios: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    shutil.copytree(portfolios / "sm_90", tmp_path / "sm_90")
    (data,) = (tmp_path / "sm_90").glob("d-*.xz")
    data.write_bytes(b"no archive")
    output = tmp_path / "kernels"
    with served_by(tmp_path):
        arguments = ["export", "--device", "sm_90a", "--precision", "d", "-o", str(output)]
        assert tilewright([*arguments, "--trans", "NN"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"{data.name} cannot be read" in line
    assert not output.exists()


@pytest.mark.parametrize("changes", [{"tile_m": 1 << 16}, {"tma": True}], ids=str)
def test_launches_that_no_table_can_tell_are_refused_in_one_line(changes, portfolios, tmp_path):
    shipped = read_portfolio(portfolios / "sm_90", "d")
    first = shipped.kernels[0]
    bad = replace(first, geometry=replace(first.geometry, **changes))
    members = [(code, shipped.machine_code(digest)) for digest, code in shipped.codes.items()]
    made = replace(shipped, kernels=(bad, *shipped.kernels[1:]), codes={})
    (tmp_path / "sm_90").mkdir()
    write_portfolio(tmp_path / "sm_90", made, {"every": members})
    with served_by(tmp_path), pytest.raises(ValueError, match=f"kernel {bad.name}") as error:
        collect(find_target("sm_90a", defaults=True), [first.variant])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--precision", "q"], "precision='q'"),
        (["--precision", "s,,d"], "precision='s,,d' has an empty part"),
        (["--trans", "N"], "trans='N' is not a pair"),
        (["--trans", "NR"], "trans='NR' is not a pair"),
        (["--format", "elf"], "format='elf' is unknown"),
        (["--device", "sm_52"], "arch="),
        (["--device", "sm_90a-nothing"], "has no kernels that were tuned here"),
        (["--device", "opencl"], "is no CUDA device"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_written(arguments, said, tmp_path, capsys):
    output = tmp_path / "kernels"
    assert tilewright(["export", "-o", str(output), *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err or (said == "is no CUDA device" and "means several" in err)
    assert not output.exists()


@needs_compiler
def test_an_interrupted_export_is_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is whole its manifest says so, and names what it and an earlier one wrote."""
    output = tmp_path / "kernels"
    kernels = collect(find_target("sm_75"), variants_of("s", "NN"))
    write(kernels, output, ["cubin", "c"])
    cubin = next((output / "cubin").iterdir())

    def full(path: Path, data: bytes) -> None:
        if path.name == "kernels.c":
            raise OSError(28, "No space left on device")
        write_atomically(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(writing, "write_atomically", full)
        with pytest.raises(OSError, match="No space"):
            write(kernels, output, ["c"])
    begun = json.loads((output / "manifest.json").read_text())
    assert begun["unfinished"]
    assert f"cubin/{cubin.name}" in begun["files"]
    assert "c/kernels.c" in begun["files"]
    write(kernels, output, ["c"])
    assert "unfinished" not in json.loads((output / "manifest.json").read_text())
    assert not cubin.exists()


def test_somebody_elses_directory_is_left_alone(tmp_path: Path):
    (tmp_path / "CMakeLists.txt").write_text("mine")
    with pytest.raises(ValueError, match="not empty and no earlier export"):
        check(tmp_path, ["c"])
    with pytest.raises(ValueError, match="not a directory"):
        check(tmp_path / "CMakeLists.txt", ["c"])
    assert check(tmp_path / "new", ["c"]) == set()


def test_a_manifest_cannot_have_files_elsewhere_removed(tmp_path: Path):
    names = {
        "c/old.c": "",
        "../precious": "",
        "c/../../precious": "",
        "/etc/passwd": "",
        "c/..": "",
    }
    (tmp_path / "manifest.json").write_text(json.dumps({"files": names}))
    assert check(tmp_path, ["c"]) == {"c/old.c"}


def test_two_devices_of_an_architecture_have_to_be_told_apart(portfolios, tmp_path):
    for key in ("sm_90a-h100", "sm_90a-h200", "sm_80-a100"):
        shutil.copytree(portfolios / "own" / KEY, tmp_path / "own" / key)
    with served_by(tmp_path):
        with pytest.raises(ValueError, match="name one: sm_90a-h100, sm_90a-h200"):
            find_target("sm_90a")
        assert find_target("sm_90a-h200").portfolio_key == "sm_90a-h200"
        assert find_target("sm_90a", defaults=True).portfolio_key == ""
        assert find_target("sm_80").portfolio_key == "sm_80-a100"
    assert find_target("sm_80") == Target("sm_80", find_target("sm_80").spec, "", "sm_80")


def test_options_name_each_variant_once():
    assert len(variants_of("all", "all")) == 2 * 4 + 2 * 9
    assert [str(v) for v in variants_of("S", "nt,CN,TN")] == ["snt", "stn"]
    every = [Variant(PRECISIONS["c"], a, b) for a, b in transposes_of(PRECISIONS["c"])]
    assert variants_of("c", "all") == every
