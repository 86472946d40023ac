"""The tensor ladder: right in any order of events, and as promised when compiled."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from tests.stencil.emulator import EmulatedDevice, compiler
from tilewright.backend import LaunchError, LiveDevice, device
from tilewright.backend.cuda.compiler import compile_cubin, nvrtc
from tilewright.bench.bounded import bound_of
from tilewright.bench.ladder.race import Contender, Result
from tilewright.bench.ladder.record import climb_record
from tilewright.bench.ladder.tensor.climb import (
    NAME,
    climb_tensor,
    rounded,
    tensor_contenders,
    tensor_problem,
    widened,
)
from tilewright.bench.ladder.tensor.climb import _exact as exact
from tilewright.bench.ladder.tensor.rungs import (
    TENSOR_RUNGS,
    TensorRung,
    stencil_rung,
)
from tilewright.bench.peers.cublas import CuBLAS
from tilewright.cli.app import run
from tilewright.problem import Problem
from tilewright.sass import decode, inspect_kernel, read_cubin
from tilewright.tuning.verify import WrongResultError


def tensor_rung(name: str) -> TensorRung:
    """Return a rung by the beginning of its name."""
    return next(one for one in TENSOR_RUNGS if one.name.startswith(name))


emulates = pytest.mark.skipif(compiler() is None, reason="needs g++ or clang++")
compiles = pytest.mark.skipif(nvrtc() is None, reason="needs NVRTC: tilewright[tune]")
SOME = [pytest.param(one, id=one.name) for one in TENSOR_RUNGS]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> EmulatedDevice:
    return EmulatedDevice(tmp_path_factory.mktemp("kernels"), words="rung_words.h")


@dataclass(frozen=True)
class Small(TensorRung):
    """A rung on a device of so few multiprocessors that blocks go on to the next block of C."""

    blocks: int = 2

    def launch(self, m, n):
        return replace(super().launch(m, n), grid=(self.blocks, 1))


@pytest.mark.every(5)
@emulates
@pytest.mark.parametrize("one", SOME)
def test_a_rung_computes_the_product(emulated: EmulatedDevice, one: TensorRung):
    """Bit for bit, copies and multiplies as early and as late as the text allows."""
    kernel = emulated.compile(one.source())
    for check in ((64, 256, 64, 0), (70, 300, 100, 0), (260, 270, 200, 8), (1, 1, 1, 8)):
        exact(emulated, one, kernel, *check)


@emulates
@pytest.mark.parametrize("one", [one for one in SOME if one.values[0].persistent])
def test_persistent_blocks_go_from_one_block_of_c_to_the_next(
    emulated: EmulatedDevice, one: TensorRung
):
    few = Small(**{**one.__dict__, "blocks": 2})
    exact(emulated, few, emulated.compile(one.source()), 270, 520, 330, 0)


@emulates
def test_the_stencil_is_the_last_rung(tmp_path: Path):
    live = EmulatedDevice(tmp_path, words="wgmma_words.h")
    one = stencil_rung(live.spec)
    kernel = live.compile(one.source())
    exact(live, one, kernel, 70, 300, 100, 0)
    assert one.constants["block_m"] * one.constants["block_n"] == 128 * 256


FAULTS = [
    ("t2", "wait_for_multiplies<1>(); /*", "/*"),
    ("t2", "            BARRIER();\n", ""),
    ("t2", "t / STAGES & 1", "0"),
    ("t4", "        wait_until_empty(at);\n", ""),
    ("t4", "    if (steps > 0)\n        give_back(before);\n", ""),
    ("t4", "operand(b) + (2 * l >> 4)", "operand(b)"),
    ("t5", "begin_ring(at.arena, CLUSTER_M * WARPS", "begin_ring(at.arena, WARPS"),
    ("t5", "    cluster_barrier(); /* nobody leaves", "    /* nobody leaves"),
    ("t5", "t * BLOCK_K, 3);", "t * BLOCK_K, 1 << cluster_rank());"),
]


@pytest.mark.every(3)
@emulates
@pytest.mark.parametrize(("name", "old", "new"), FAULTS)
def test_the_emulator_finds_a_planted_fault(emulated: EmulatedDevice, name, old, new):
    one = tensor_rung(name)
    source = one.source()
    assert old in source.text
    kernel = emulated.compile(replace(source, text=source.text.replace(old, new)))
    few = Small(**{**one.__dict__, "blocks": 2}) if one.persistent else one

    def run_often() -> None:
        for _ in range(5):  # threads run in another order each time
            exact(emulated, few, kernel, 270, 520, 660, 0)

    with pytest.raises((LaunchError, WrongResultError)):
        run_often()


# Numbers of USETMAXREG and of UTMALDG with a mask of blocks, as nvdisasm names them.
SETMAXREG, MULTICAST = 0x9C8, 0x3B4


@cache
def compiled(name: str):
    one = tensor_rung(name)
    cubin = compile_cubin(one.source(), "sm_90a")
    kernel = read_cubin(cubin.code).kernel(cubin.lowered["gemm"])
    return kernel, cubin.log


@compiles
@pytest.mark.parametrize("one", TENSOR_RUNGS, ids=lambda one: one.name)
def test_machine_code_is_what_the_rung_promises(one: TensorRung):
    """No spills, no multiplies that wait for each other, the words that the idea needs."""
    kernel, log = compiled(one.name)
    assert "wgmma" not in log, log  # ptxas says so where it had to serialise them
    assert "setmaxnreg" not in log, log
    found = inspect_kernel(kernel, one.threads, one.shared_bytes)
    taken = found.resources
    assert (taken.local_loads, taken.local_stores, taken.stack_bytes) == (0, 0, 0)
    code = decode(kernel.code, kernel.arch)
    names = [i.mnemonic for i in code]
    multiplies = names.count("HGMMA")
    assert multiplies == 4  # a step of 64 in k, nothing unrolled or peeled
    assert names.count("UTMALDG") in (2, 4)  # in rung 2 also before the loop
    numbers = [int.from_bytes(kernel.code[i : i + 2], "little") & 0xFFF
               for i in range(0, len(kernel.code), 16)]  # fmt: skip
    assert numbers.count(SETMAXREG) == (2 if one.name >= "t3" else 0)
    assert numbers.count(MULTICAST) == (1 if one.name == "t5_multicast" else 0)
    assert found.occupancy.blocks == (3 if one.name == "t1_wgmma" else 1)
    assert taken.registers * one.threads <= 65536


def test_rungs_have_names_and_say_what_they_cost():
    for number, one in enumerate(TENSOR_RUNGS, start=1):
        text = one.source().text
        assert f"/* Rung {number}, " in text
        assert "What it costs: " in text
        assert one.idea.endswith(".")
        assert one.shared_bytes <= 232448  # what a block of an H100 may have


def test_a_text_is_read_in_ten_minutes():
    folder = files("tilewright.bench.ladder").joinpath("kernels", "tensor")
    for file in folder.iterdir():
        lines = file.read_text().splitlines()
        assert len(lines) <= 150, file.name
        assert lines[0].startswith("/* "), file.name
        assert max(map(len, lines)) <= 100, file.name


class OnTheHost:
    """A library in the place of cuBLAS."""

    name, version = "numpy", np.__version__

    def __init__(self, live: LiveDevice) -> None:
        self.live = live

    def timed(self, p: Problem, letter: str, memory):
        """C is row-major A B^T; operands come exchanged."""
        assert letter == "bf16 to float32"
        b, a = (x.bytes.view(np.uint16)[: rows * p.lda].reshape(rows, p.lda)[:, : p.k]
                for x, rows in zip(memory, (p.m, p.n), strict=False))  # fmt: skip
        c = memory[2].bytes.view(np.float32)[: p.n * p.ldc].reshape(p.n, p.ldc)

        def call() -> int:
            c[:, : p.m] = widened(a) @ widened(b).T
            return 1

        return call


class Careless(TensorRung):
    """A rung that forgets the last step of k."""

    def source(self):
        made = super().source()
        text = made.text.replace("(k + BLOCK_K - 1) / BLOCK_K", "k / BLOCK_K")
        assert text != made.text
        return replace(made, text=text)


@emulates
def test_a_climb_has_errors_and_times_or_a_reason(emulated: EmulatedDevice):
    problem = tensor_problem(70, 130, 100)
    assert (problem.trans, problem.lda) == ("TN", 104)
    one = tensor_rung("t2")
    careless = Careless(**{**one.__dict__, "name": "t2_pipelined"})
    right = Contender(Result("t2", "right", ""), one, emulated.compile(one.source()))
    wrong = Contender(Result("t2", "wrong", ""), careless, emulated.compile(careless.source()))
    absent = Contender(Result("t1", "absent", "", reason="not here"), tensor_rung("t1"))
    results = climb_tensor(emulated, problem, [right, absent], [OnTheHost(emulated)], 2)
    told = climb_record(problem, bound_of(device(), problem), results, ["numpy"], NAME)
    assert told["problem"] == f"{NAME} 70x130x100, row-major"
    first, second, library = told["rungs"]
    assert 0 < first["eta"] < 1e-5
    assert len(first["seconds"]) == len(library["seconds"]) == 2
    assert 0 < library["eta"] < 1e-5
    assert second["reason"] == "not here"
    assert not second["seconds"]
    (judged,) = climb_tensor(emulated, problem, [wrong], [], 1)
    assert "eta is" in judged.reason
    assert not judged.seconds


def test_a_device_without_wgmma_is_told_so():
    all_ = list(tensor_contenders(device()))
    assert [one.told.name for one in all_] == [*(r.name for r in TENSOR_RUNGS), "t6_stencil"]
    for one in all_:
        assert "no wgmma" in one.told.reason
        assert one.kernel is None


@pytest.mark.gpu
def test_rungs_on_a_gpu(cuda: LiveDevice):
    problem = tensor_problem(300, 520, 1000)
    ours = list(tensor_contenders(cuda))
    for result in climb_tensor(cuda, problem, ours, [CuBLAS(cuda)], 2):
        assert not result.reason
        assert result.eta < 1e-5


def test_bf16_ties_go_to_even_and_nan_stays():
    ties = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, math.inf, math.nan], np.float32)
    back = widened(rounded(ties))
    assert back[:3].tolist() == [1, 1 + 2.0**-6, math.inf]
    assert math.isnan(back[3])
    x = np.random.default_rng(0).standard_normal(1000, np.float32)
    error = np.abs(widened(rounded(x)) - x) / np.abs(x)
    assert 2.0**-9 < error.max() <= 2.0**-8


def test_the_command(tmp_path: Path, capsys):
    command = ["ladder", "--kind", "tensor", "--size", "20x30x40", "--rounds", "1"]
    assert run([*command, "-o", str(tmp_path / "t.json")]) == 0
    assert "t5_multicast" in capsys.readouterr().out
    bound = json.loads((tmp_path / "t.json").read_text())["devices"][0]["results"][0]["bound"]
    assert "tensor.bf16" in bound["missing"]
    assert run(["ladder", "--kind", "quantum"]) == 2
    assert "kind='quantum'" in capsys.readouterr().err
    assert run([*command, "--tune", "5s"]) == 2
    assert run([*command, "--peer", "numpy"]) == 2
    assert "peer='numpy' is not of this ladder" in capsys.readouterr().err
