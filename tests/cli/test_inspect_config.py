"""`tilewright inspect CONFIG`: every way to name a config, checked before it is compiled."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import tilewright as tw
from tests.tuning.measurement_examples import example
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import nvrtc
from tilewright.cli.app import run
from tilewright.cli.config_argument import is_cubin, wanted_config
from tilewright.hardware.catalogue import catalogue_device
from tilewright.precision import PRECISIONS
from tilewright.problem import Problem, Trans
from tilewright.sass import read_cubin
from tilewright.space import Config
from tilewright.stencil import Mode, Variant
from tilewright.stencil.packed import Packed
from tilewright.stencil.portable import Portable
from tilewright.stencil.simt_async import SimtAsync
from tilewright.tuning.store import Store
from tilewright.tuning.t4 import t4_results

needs_compiler = pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not here")
SPEC = architecture_spec("sm_90a")
DOUBLE = Variant(PRECISIONS["d"], Trans.N, Trans.T)
CONFIG = Portable().default(DOUBLE, SPEC)


def measured(config: Config = CONFIG, **problem: str):
    letters = {"precision": "d", "trans_a": "N", "trans_b": "T", **problem}
    return replace(example(), config=config, problem=Problem(512, 512, 512, **letters))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
def test_an_architecture_is_a_device_that_the_stencil_suits(arch: str) -> None:
    spec = architecture_spec(arch)
    assert spec.registers_per_multiprocessor == 65536
    assert Portable().suits(spec)
    assert Portable().default(DOUBLE, spec)


def test_a_name_that_is_no_architecture_is_refused() -> None:
    for arch in ("gfx90a", "sm_", "sm_52"):
        with pytest.raises(ValueError, match="arch="):
            architecture_spec(arch)


@pytest.mark.parametrize("form", ["plain", "tune", "record", "export", "inline", "id", "prefix"])
def test_every_form_names_the_same_config(form: str, tmp_path: Path) -> None:
    store = tmp_path / "results.sqlite"
    with Store(store) as opened:
        opened.add(measured())
        opened.add(example())
    exported = t4_results([measured()])
    documents = {
        "plain": dict(CONFIG),
        "tune": {"problem": "DGEMM NT 512", "stencil": "portable", "config": dict(CONFIG)},
        "record": {
            **exported["results"][0]["tilewright"],
            "parameters": dict(CONFIG),
        },
        "export": exported,
    }
    texts = {
        "inline": ", ".join(f"{name}={value}" for name, value in CONFIG.items()),
        "id": CONFIG.id,
        "prefix": CONFIG.id[:5].upper(),
    }
    if form in documents:
        file = tmp_path / "config.json"
        file.write_text(json.dumps(documents[form]))
        texts[form] = str(file)
        assert not is_cubin(str(file))
    found = wanted_config(texts[form], store)
    assert found.values == dict(CONFIG)
    if form not in ("plain", "inline"):
        assert (found.stencil, found.precision, found.trans) == ("portable", "d", "NT")


def test_a_config_measured_for_several_variants_leaves_the_variant_open(tmp_path: Path) -> None:
    file = tmp_path / "two.json"
    file.write_text(json.dumps(t4_results([measured(), measured(precision="s")])))
    found = wanted_config(str(file))
    assert (found.precision, found.trans) == (None, "NT")


def test_several_configs_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "two.json"
    file.write_text(json.dumps(t4_results([measured(), measured(CONFIG.replace(pad=0))])))
    with pytest.raises(ValueError, match="holds several configs"):
        wanted_config(str(file))


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["default,block_m=100"], 2, "block_m=100 is not a choice; use one of"),
        (["default,block_k=4"], 2, "fails constraint 'unrolling divides the k block'"),
        (["default,depth=4"], 2, "depth=4 is no parameter of portable"),
        (["block_m=128"], 2, "block_n is missing"),
        (["default,block_m=128,block_m=64"], 2, "gives block_m twice"),
        (["default,block_m"], 2, "is no name=value pair"),
        (["nothing"], 2, "config='nothing' is neither a file"),
        (["default", "--threads", "64"], 2, "threads='64' is for a cubin"),
        (["default", "--arch", "gfx90a"], 2, "arch='gfx90a' is no architecture"),
        (["default", "--precision", "q"], 2, "precision='q' is unknown"),
        (["default", "--trans", "NX"], 2, "trans='NX' is not a pair"),
        (["default", "--stencil", "packed"], 2, "packed"),
        (["{tmp}/broken.json"], 2, "broken.json is no readable JSON"),
        (["{tmp}/empty.json"], 2, "empty.json holds no config"),
        (["{tmp}/nan.json"], 2, "nan.json: block_m=nan is no parameter's value"),
        (["{tmp}/t4.json"], 2, "t4.json: parameters=None is no parameter's value"),
        (["{tmp}/x.cubin", "--arch", "sm_80"], 2, "arch='sm_80' is for a config"),
    ],
)
def test_wrong_usage_is_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: list[str],
    status: int,
    said: str,
) -> None:
    (tmp_path / "broken.json").write_text('{"block_m": ')
    (tmp_path / "nan.json").write_text('{"block_m": NaN}')
    (tmp_path / "t4.json").write_text('{"results": [{"tilewright": {}}]}')
    (tmp_path / "empty.json").write_text("[]")
    assert run(["inspect", *(word.format(tmp=tmp_path) for word in arguments)]) == status
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_stored_config_of_a_cpu_is_refused_as_one(capsys, tmp_path: Path) -> None:
    """Whatever it has that a GPU's would not."""
    of = Variant(PRECISIONS["s"], Trans.N, Trans.N)
    cpu = replace(catalogue_device("avx2").spec, vector_bytes=64)
    config = Packed().default(of, cpu)
    with Store(tmp_path / "results.sqlite") as opened:
        opened.add(measured(config, precision="s", trans_b="N"))
    assert run(["inspect", config.id, "--store", str(tmp_path / "results.sqlite")]) == 2
    assert "stencil='packed' is for CPUs, and sm_90a is none" in capsys.readouterr().err


def test_an_unknown_id_fails(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Store(tmp_path / "s.sqlite").close()
    assert run(["inspect", "beef1234", "--store", str(tmp_path / "s.sqlite")]) == 1
    told = "no stored config's id begins with 'beef1234'; tilewright db show NUMBER has a result's"
    assert told in capsys.readouterr().err


@needs_compiler
def test_a_config_is_compiled_kept_and_told_of(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = tmp_path / "kernel.cubin"
    arguments = ["inspect", "default,pad=0", "--precision", "d", "-o", str(kept)]
    assert run([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["variant"] == "dnn"
    assert found["config"]["pad"] == 0
    (kernel,) = found["kernels"]
    assert kernel["resources"]["shared_bytes"] == found["estimated"]["shared_bytes"]
    assert kernel["threads"] == found["estimated"]["threads"]
    assert kernel["loop"]["names"]["DFMA"] > 0
    assert read_cubin(kept).kernels[0].registers == kernel["resources"]["registers"]
    assert run([*arguments, "--arch", "sm_80", "--no-listing"]) == 0
    out = capsys.readouterr().out
    assert f"; {found['estimated']['registers']} were estimated, " in out
    assert "sm_80" in out


@needs_compiler
def test_a_config_is_compiled_in_the_mode_that_is_asked_for_or_stored(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def inspected(what: str, *options: str) -> str:
        assert run(["inspect", what, "--stencil", "simt_async", *options, "--json"]) == 0
        return str(json.loads(capsys.readouterr().out)["mode"])

    assert inspected("default", "--mode", "scalar+staged") == "scalar+staged"
    assert inspected("default,narrow=1") == "scalar"  # as it was written once
    store = tmp_path / "results.sqlite"
    config = SimtAsync().default(Variant(PRECISIONS["s"], Trans.N, Trans.N), SPEC)
    stored = measured(config, precision="s", trans_b="N")
    with Store(store) as opened:
        opened.add(replace(stored, mode=Mode(clamped=True)))
    stored_id = replace(stored, mode=Mode(clamped=True)).stored_config.id
    assert inspected(stored_id, "--store", str(store)) == "clamped"
    assert run(["inspect", "default", "--mode", "scalar"]) == 2  # portable has no modes
    assert "mode=scalar is none of this config; use one of plain" in capsys.readouterr().err


@pytest.mark.thorough
@needs_compiler
def test_a_loop_that_a_launch_does_not_bring_is_told_of(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """SGEMM's 256 x 128 that stays: storing stands before its loop, in 130 KiB of text."""
    config = {
        "b_first": 1, "block_k": 12, "block_m": 256, "block_n": 128, "copy_groups": 2,
        "lanes_m": 8, "persistent": 1, "swizzle_rows": 8, "min_blocks": 1,
        "cluster_k": 1, "stages": 3, "tile_m": 8, "tile_n": 16, "unroll_k": 12,
        "serpentine_rows": 0,
    }  # fmt: skip
    file = tmp_path / "config.json"
    told = {"problem": "SGEMM NN 2048", "stencil": "simt_async", "config": config}
    file.write_text(json.dumps(told))
    assert run(["inspect", str(file), "--arch", "sm_90a", "--no-listing"]) == 0
    assert "a launch brings the first 64" in capsys.readouterr().out
    assert run(["inspect", str(file), "--arch", "sm_90a", "--json"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["loop"]["comes_late"]
    assert kernel["loop"]["end"] > 64 << 10


@needs_compiler
def test_a_heuristic_is_told_not_enforced() -> None:
    # One element of C a thread: no reuse of what is read, but a right kernel.
    tile = {"block_m": 16, "block_n": 16, "threads_m": 16, "threads_n": 16, "fragment_vector": 1}
    reads = {
        "strided": 0,
        "read_a_m": 16,
        "read_b_n": 16,
        "block_k": 16,
        "unroll_k": 16,
        "read_vector": 1,
    }
    found = tw.inspect_config({**tile, **reads}, partial=True)
    assert any(rule.startswith("register reuse") for rule in found.unlikely)
    assert found.kernel.loop is not None


@pytest.mark.parametrize("wrong", [5, "block_m=64", [("block_m", 64)]])
def test_what_is_no_config_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError, match=f"config is a {type(wrong).__name__}"):
        tw.inspect_config(wrong)  # type: ignore[arg-type]
