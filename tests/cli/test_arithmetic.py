"""`--arithmetic`: tensor cores by name in every command that takes a stencil; no GPU here."""

from __future__ import annotations

import json

import pytest

from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.backend.cuda.compiler import nvrtc
from tilewright.bounds.units import ARITHMETIC
from tilewright.cli.app import run
from tilewright.precision import SHORT
from tilewright.problem import Problem
from tilewright.stencil.wgmma import ARITHMETICS, TensorVariant, Wgmma, variant_of
from tilewright.stencil.wgmma.named import IEEE, family_of

needs_compiler = pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not here")


def printed(capsys, *arguments):
    assert run(list(arguments)) == 0
    return json.loads(capsys.readouterr().out)


def test_bounds_and_kernels_have_the_same_names():
    assert {IEEE, *ARITHMETICS} == set(ARITHMETIC) - {"residues"}  # several kernels


@pytest.mark.parametrize("letter", SHORT)
def test_a_precision_of_tensor_cores_has_a_default_for_hopper(letter):
    hopper, problem = architecture_spec("sm_90a"), Problem(1, 1, 1, letter, "T", "N")
    made = variant_of(problem)
    assert family_of(problem, IEEE, None) == "wgmma"
    assert Wgmma().default(made, hopper) in Wgmma().space(made, hopper)


@pytest.mark.parametrize("name", ARITHMETICS)
def test_a_name_is_a_variant_with_a_default_for_hopper(name):
    hopper = architecture_spec("sm_90a")
    made = variant_of(Problem(1, 1, 1, "s", "T", "N"), name)
    assert isinstance(made, TensorVariant)
    assert made.arithmetic.scaled  # what has several products is split and guarded before
    assert made.arithmetic.routed
    assert Wgmma().default(made, hopper) in Wgmma().space(made, hopper)


def test_the_space_is_listed_without_a_gpu(capsys):
    found = printed(capsys, "space", "--arithmetic", "fp16x3", "--trans", "NT", "--json")
    assert (found["stencil"], found["device"]) == ("wgmma", "sm_90a")
    assert found["variant"] == "snt-float16x3"
    assert {"stages", "promote_k"} <= {one["name"] for one in found["parameters"]}
    counts = [found["raw_size"], *(stage["survivors"] for stage in found["funnel"])]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] > 0
    # Integers are summed exactly, so that nothing is promoted.
    whole = printed(capsys, "space", "--precision", "int8", "--trans", "TN", "--json")
    (promote,) = (one for one in whole["parameters"] if one["name"] == "promote_k")
    assert promote["values"] == [0]


def test_any_stencil_has_a_space_for_an_architecture(capsys):
    found = printed(capsys, "space", "--arch", "sm_80", "--stencil", "portable", "--json")
    assert found["device"] == "sm_80"


@needs_compiler
def test_machine_code_is_inspected_without_a_gpu(capsys):
    command = ("inspect", "default,stages=3", "--precision", "fp16_f32", "--trans", "NT")
    found = printed(capsys, *command, "--json")
    assert found["variant"] == "fp16_f32nt"
    assert found["config"]["stages"] == 3
    (kernel,) = found["kernels"]
    config = found["config"]
    # A stage is multiplied in steps of 16 along k, and waited for once.
    pieces = config["block_m"] * config["block_n"]
    pieces //= 64 * config["instruction_m"] * config["consumers"]
    steps = pieces * config["block_k"] // 16
    assert kernel["warpgroups"]["runs"] == [steps]
    assert kernel["warpgroups"]["cycles"] == steps * config["instruction_m"] / 2
    assert kernel["loop"]["mix"]["multiply-add"] == steps
    assert kernel["cycles"] is None
    assert f"{steps} warpgroup multiplies a trip over k" in kernel["verdict"]


@needs_compiler
@pytest.mark.parametrize(("name", "mnemonic"), [("int8", "IGMMA.64x"), ("e4m3", "QGMMA.64x")])
def test_the_loop_is_printed_line_by_line(capsys, name, mnemonic):
    assert run(["inspect", "default", "--precision", name, "--trans", "TN"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if mnemonic in line]
    assert lines
    assert "port conflict" not in "".join(lines)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("space --arithmetic fp8", "arithmetic='fp8' is unknown; use ieee or one of fp16x3"),
        ("space --precision tf32 --trans NT", "trans='NT': tensor cores do not read tf32 in that"),
        ("space --arithmetic tf32x3", "trans='NN': tensor cores do not read tf32 in that order"),
        ("space --arithmetic bf16x6 --precision d", "goes with precision s, not d; use ieee"),
        ("space --arithmetic bf16x6 --stencil portable", "stencil='portable' has no arithmetic="),
        ("space --arithmetic bf16x6 --arch sm_80", "arch='sm_80' lacks what wgmma takes"),
        ("space --precision bf16 --device opencl", "device='opencl' lacks what wgmma takes"),
        ("space --arch sm_90a --device opencl", "are two devices; give one"),
        ("inspect default --arithmetic bf16", "arithmetic='bf16' is unknown"),
        ("inspect default --precision bf16 --arch sm_80", "arch='sm_80' lacks what wgmma takes"),
        ("inspect default --precision bf16 --stencil packed", "stencil='packed' has no BF16 GEMM"),
        ("inspect x.cubin --arithmetic bf16x6", "arithmetic='bf16x6' is for a config"),
        ("bound --arithmetic tf32 --device h100", "arithmetic='tf32' is unknown"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line(capsys, command, said):
    assert run(command.split()) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_space_says_whose_parameters_it_shows(capsys):
    assert run(["space", "--precision", "bf16", "--trans", "TN", "--arch", "sm_90a"]) == 0
    assert capsys.readouterr().out.startswith("wgmma bf16tn on sm_90a\n")
