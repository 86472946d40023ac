"""Rescheduled kernels are exported as they are served, and refused where they are not proved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tilewright.library.choose import choose

from tests.backend.rescheduled import FAMILY, TN, small
from tests.tuning.measurement_examples import example
from tilewright.backend.cuda.architecture import architecture_spec
from tilewright.cli.app import run as tilewright
from tilewright.export import collect, find_target
from tilewright.problem import Problem
from tilewright.sass import read_cubin
from tilewright.space import Config
from tilewright.stencil import unscheduled
from tilewright.tuning.measurement import Stage
from tilewright.tuning.store import Store
from tilewright.tuning.twins import marked

PROBLEM = Problem(3000, 3000, 3000, "s", "T", "N")
DEVICE = "c" * 12


def winner(config: Config, ns: int) -> None:
    """Store a winner that beat its twin by a tenth."""
    environment: dict[str, Any] = {"arch": "sm_90a"}
    if unscheduled(config) != config:
        environment["unscheduled"] = {"median_ns": ns * 10 // 9, "saved_ns": ns // 9}
    made = example(
        config=config, problem=PROBLEM, device=DEVICE, backend="cuda", times_ns=(ns,),
        stencil_version=FAMILY.version, stage=Stage.WINNER, environment=environment,
    )  # fmt: skip
    with Store() as store:
        store.add(marked(made))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a store of its own."""
    monkeypatch.setenv("TILEWRIGHT_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def proved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the level be proved on the architecture."""
    plain = architecture_spec("sm_90a")
    spec = replace(plain, schedules=("simt_async/s/order",))
    for module in ("proved", "target"):
        monkeypatch.setattr(f"tilewright.export.{module}.architecture_spec", lambda arch: spec)


def code(cubin: bytes) -> bytes:
    return read_cubin(cubin).kernels[0].code


def test_what_is_proved_is_embedded_as_it_is_served(proved: None) -> None:
    config, plain, made = small()
    winner(unscheduled(config), 1100)
    winner(config, 1000)
    target = find_target("sm_90a")
    assert choose(target, PROBLEM).config == config
    (kernel,) = collect(target, [TN]).kernels.values()
    assert kernel.config == config
    # Another name, the same instructions as the kernel that `gemm` loads.
    assert code(kernel.cubin) == code(made.code) != code(plain.code)


def test_what_is_not_proved_leaves_its_place_to_the_compilers_own() -> None:
    config, plain, _ = small()
    winner(unscheduled(config), 1100)
    winner(config, 1000)
    target = find_target("sm_90a")
    assert choose(target, PROBLEM).config == unscheduled(config)
    (kernel,) = collect(target, [TN]).kernels.values()
    assert code(kernel.cubin) == code(plain.code)


def test_alone_it_is_refused_in_one_line_that_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A default in the place of what was tuned would surprise."""
    config, *_ = small()
    winner(config, 1000)
    output = tmp_path / "kernels"
    arguments = ["export", "--device", "sm_90a", "--precision", "s", "--trans", "TN"]
    assert tilewright([*arguments, "-o", str(output)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"config {config.id} for stn is rescheduled (schedule=1), which is not proved on" in line
    assert "export with --defaults" in line
    assert not output.exists()
    assert tilewright([*arguments, "-o", str(output), "--defaults", "--format", "cubin"]) == 0
