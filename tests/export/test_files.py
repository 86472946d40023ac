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
from tilewright.library.choose import default_choice

from tests.export.building import run
from tests.export.conftest import FINGERPRINT
from tests.tuning.measurement_examples import example
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.cli.app import run as tilewright
from tilewright.export import Target, check, collect, find_target, variants_of, write, writing
from tilewright.export.fatbin import fatbin_of
from tilewright.export.grid import grid_of
from tilewright.paths import write_atomically
from tilewright.precision import PRECISIONS
from tilewright.problem import transposes_of
from tilewright.sass import read_cubin
from tilewright.sass.elf import section_of
from tilewright.space import Config
from tilewright.stencil import Launch, Source, Variant
from tilewright.stencil.portable import Portable
from tilewright.tuning.measurement import Stage
from tilewright.tuning.store import Store

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
def test_one_command_writes_all_formats_and_a_manifest_that_tells_how_to_launch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    output = tmp_path / "kernels"
    arguments = ["export", "--device", "sm_90a", "--precision", "d", "--trans", "NT"]
    assert tilewright([*arguments, "-o", str(output), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["tuned"] == {"dnt": False}
    manifest = json.loads((output / "manifest.json").read_text())
    assert Path(said["manifest"]) == output / "manifest.json"
    assert (manifest["architecture"], manifest["fingerprint"]) == ("sm_90a", FINGERPRINT)
    (kernel,) = manifest["kernels"]
    cubin = read_cubin(output / f"cubin/{kernel['name']}.cubin").kernel(kernel["name"])
    assert cubin.registers == kernel["registers"]
    assert cubin.max_threads[0] == kernel["threads"][0]
    config = Config(kernel["stencil"], kernel["config"])
    assert config == default_choice(variants_of("d", "NT")[0], find_target("sm_90a").spec).config
    digests = {
        name: hashlib.sha256((output / name).read_bytes()).hexdigest() for name in manifest["files"]
    }
    assert digests == manifest["files"]
    assert {name.split("/")[0] for name in digests} == {"cubin", "fatbin", "c"}

    # Again with less: what is no longer asked for goes.
    assert tilewright([*arguments, "-o", str(output), "--format", "fatbin"]) == 0
    assert sorted(p.name for p in output.iterdir()) == ["fatbin", "manifest.json"]
    assert "1 kernels for sm_90a" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--precision", "e"], "precision='e'"),
        (["--precision", "s,,d"], "precision='s,,d' has an empty part"),
        (["--trans", "N"], "trans='N' is no pair"),
        (["--trans", "NR"], "trans='NR' is no pair"),
        (["--format", "elf"], "format='elf' is unknown"),
        (["--device", "sm_52"], "arch="),
        (["--device", "ffffffffffff"], "has no CUDA measurements"),
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
    kernels = collect(find_target("sm_90a"), variants_of("s", "NN"))
    write(kernels, tmp_path, ["cubin", "c"])
    cubin = next((tmp_path / "cubin").iterdir())

    def full(path: Path, data: bytes) -> None:
        if path.name == "kernels.c":
            raise OSError(28, "No space left on device")
        write_atomically(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(writing, "write_atomically", full)
        with pytest.raises(OSError, match="No space"):
            write(kernels, tmp_path, ["c"])
    begun = json.loads((tmp_path / "manifest.json").read_text())
    assert begun["unfinished"]
    assert f"cubin/{cubin.name}" in begun["files"]
    assert "c/kernels.c" in begun["files"]
    write(kernels, tmp_path, ["c"])
    assert "unfinished" not in json.loads((tmp_path / "manifest.json").read_text())
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


def test_an_architecture_stands_for_the_one_device_measured_of_it():
    assert find_target("sm_90a").fingerprint == FINGERPRINT
    assert find_target(FINGERPRINT) == find_target("sm_90a")
    assert find_target("sm_90a", defaults=True).fingerprint == ""
    assert find_target("sm_80") == Target("sm_80", find_target("sm_80").spec, "", "sm_80")


def test_two_devices_of_an_architecture_have_to_be_told_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_DATA_DIR", str(tmp_path / "two"))
    assert find_target("sm_90a").fingerprint == ""
    devices = {"a" * 12: "H100", "b" * 12: "H200"}
    with Store() as store:
        for fingerprint, name in devices.items():
            here = {"device": fingerprint, "device_name": name, "environment": {"arch": "sm_90a"}}
            store.add(replace(example(), backend="cuda", stage=Stage.WINNER, **here))
    with pytest.raises(ValueError, match=r"aaaaaaaaaaaa \(H100\), bbbbbbbbbbbb \(H200\)"):
        find_target("sm_90a")
    assert find_target("b" * 12).name == "H200"
    assert find_target("sm_90a", defaults=True).fingerprint == ""


def test_options_name_each_variant_once():
    assert len(variants_of("all", "all")) == 2 * 4 + 2 * 9
    assert [str(v) for v in variants_of("S", "nt,CN,TN")] == ["snt", "stn"]
    every = [Variant(PRECISIONS["c"], a, b) for a, b in transposes_of(PRECISIONS["c"])]
    assert variants_of("c", "all") == every


class Odd(Portable):
    """A stencil whose launches follow no rule that a table could hold."""

    def __init__(self, launch):
        super().__init__()
        self.launch = launch


@pytest.mark.parametrize(
    "launch",
    [
        lambda config, m, n: Launch((132, 1), (128, 1)),
        lambda config, m, n: Launch((-(-m // 64) * -(-n // 128), 1), (128, 1)),
        lambda config, m, n: Launch((1, -(-n // 128)), (128, 1)),
        lambda config, m, n: Launch((-(-m // 128) * -(-n // 128), 1), (128 if m < 9 else 256, 1)),
    ],
)
def test_launches_that_no_table_can_tell_are_refused(launch):
    with pytest.raises(ValueError, match="cannot tell"):
        grid_of(Odd(launch), Config("portable", {"block_m": 128, "block_n": 128}))


def test_launches_of_several_blocks_for_one_of_c_are_told():
    """Two-dimensional grids and blocks that share a block of C."""
    config = Config("portable", {"block_m": 64, "block_n": 128})
    split = grid_of(
        Odd(lambda c, m, n: Launch((4 * -(-m // 64) * -(-n // 128), 1), (96, 1))), config
    )
    assert (split.factor, split.folded, split.cover(65, 1)) == (4, True, (8, 1))
    flat = grid_of(Odd(lambda c, m, n: Launch((-(-m // 64), -(-n // 128)), (32, 4))), config)
    assert (flat.folded, flat.cover(65, 129), flat.threads) == (False, (2, 2), (32, 4))
