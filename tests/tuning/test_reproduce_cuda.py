"""Reproducers for CUDA: the written file alone shows what was recorded."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.backend.cuda.naive_cuda import NAIVE
from tests.tuning.measurement_examples import example
from tilewright.precision import PRECISIONS
from tilewright.problem import Problem, transposes_of
from tilewright.space import Config
from tilewright.stencil import Launch, Source, Variant
from tilewright.tuning.reproduce import reproducer


def written(letter="s", fault=0, device_name="Tiny GPU", platform="", shared=0):
    trans = transposes_of(PRECISIONS[letter])[-1]
    problem = Problem(37, 29, 23, letter, *trans)
    config = NAIVE.config(fault)
    measured = replace(
        example(),
        backend="cuda",
        problem=problem,
        config=config,
        device_name=device_name,
        environment={"platform": platform},
    )
    source = NAIVE.source(config, Variant.of(problem), "cuda")
    source = replace(source, dynamic_shared_bytes=shared)
    return reproducer(measured, source, lambda m, n: NAIVE.launch(config, m, n))


def run(cuda, tmp_path, *arguments, **what):
    path = tmp_path / "shown.py"
    text = written(device_name=cuda.spec.name, platform=cuda.platform, **what)
    path.write_text(text, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-I", str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_file_is_a_program_without_tilewright():
    text = written()
    tree = ast.parse(text)
    imported = [
        name.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for name in node.names
    ]
    assert "tilewright" not in imported
    assert "from cuda.bindings import driver, nvrtc" in text
    assert "-DFAULT=0" in text
    assert "pyopencl" not in text


def test_the_file_asks_for_the_shared_memory_that_the_source_does():
    assert "\nDYNAMIC_SHARED_BYTES = 50176\n" in written(shared=50176)
    assert "\nDYNAMIC_SHARED_BYTES = 0\n" in written()


@pytest.mark.gpu
@pytest.mark.parametrize("letter", list(PRECISIONS))
def test_a_right_kernel_passes(cuda, tmp_path, letter):
    done = run(cuda, tmp_path, letter=letter)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing went wrong" in done.stdout


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("fault", "shown"),
    [(1, "LAUNCH ERROR"), (2, "WRONG RESULT: C(24, 0)"), (3, "COMPILE ERROR")],
)
def test_a_fault_is_shown(cuda, tmp_path, fault, shown):
    done = run(cuda, tmp_path, fault=fault)
    assert done.returncode == 1, done.stdout + done.stderr
    assert shown in done.stdout


@pytest.mark.gpu
def test_an_absent_device_is_named_with_those_that_are_here(cuda, tmp_path):
    done = run(cuda, tmp_path, "--device", "abacus")
    assert done.returncode == 2
    assert cuda.spec.name in done.stdout


@pytest.mark.parametrize(
    ("schedule", "second", "cluster", "why"),
    [(5, "", 1, "machine code"), (0, "add_up", 1, "two kernels"), (0, "", 2, "clusters")],
)
def test_what_is_more_than_a_plain_launch_is_run_by_tilewright(schedule, second, cluster, why):
    made = example(backend="cuda", config=Config("simt_async", {"schedule": schedule}))
    source = replace(Source("", {}), second=second)
    text = reproducer(made, source, lambda m, n: Launch((1, 1), (1, 1), cluster=cluster))
    assert why in text
    ast.parse(text)
