"""`tilewright inspect --diff`, and of a config with a schedule: what changed, and its proof."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.reschedule.rescheduled import small
from tests.reschedule.test_schedule import kernel, multiply_adds, rescheduled
from tests.sass.compiled import kept
from tilewright.cli.app import run
from tilewright.sass import edit, patch


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str, str]:
    """Return cubins: as compiled, rescheduled, and with a register changed."""
    one = multiply_adds()[0]
    other = next(x for x in multiply_adds() if x.srcs[0].value != one.srcs[0].value)
    made = {
        "before.cubin": kept("sm_90a"),
        "after.cubin": patch(kept("sm_90a"), rescheduled()),
        "wrong.cubin": patch(kept("sm_90a"), [edit(one, 90, a=other.srcs[0].value)]),
    }
    for name, code in made.items():
        (tmp_path / name).write_bytes(code)
    before, after, wrong = (str(tmp_path / name) for name in made)
    return before, after, wrong


def test_a_rescheduled_cubin_is_proved(
    files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    before, after, _ = files
    assert run(["inspect", "--diff", before, after]) == 0
    out = capsys.readouterr().out
    assert "proved to compute the same" in out
    assert "predicted by the cycle model, not measured" in out
    changed = [i for x, i in zip(kernel(), rescheduled(), strict=True) if x.raw != i.raw]
    assert all(f"{one.address:#07x}" in out for one in changed)


def test_json_says_why_a_cubin_is_not_proved(
    files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    before, _, wrong = files
    assert run(["inspect", "--diff", before, wrong, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not found["proved_same"]
    assert "differ" in found["reasons"][0]
    assert found["changes"]["other registers"] == 1
    assert found["predicted"]["before"]["terms"]["issue slots"] == 184


def test_options_that_mean_nothing_are_refused(
    files: tuple[str, str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", "default", "--diff", files[0]]) == 2
    assert "is for a cubin" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_config_with_a_schedule_shows_the_scheduled_code(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config, _, made = small()
    values = ",".join(f"{name}={value}" for name, value in config.items())
    arguments = ["inspect", values, "--stencil", "simt_async", "--trans", "TN", "--no-listing"]
    output = tmp_path / "made.cubin"
    assert run([*arguments, "--json", "-o", str(output)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert output.read_bytes() == made.code
    predicted = found["schedule"]["predicted"]
    assert found["schedule"]["proved_same"]
    assert predicted["after"]["cycles"] <= predicted["before"]["cycles"]
    assert found["kernels"][0]["cycles"]["cycles"] == predicted["after"]["cycles"]
    assert "schedules that are proved" in found["unproved"][0]
    assert not any("proved" in rule for rule in found["unlikely"])

    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert "not proved, so gemm() does not use it" in out
    assert "proved to compute the same" in out


def test_a_config_that_the_scheduler_refuses_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["inspect", "default,schedule=5", "--stencil", "simt_async", "--arch", "sm_80"]
    assert run(arguments) == 2
    assert "compute capability 9.0 only" in capsys.readouterr().err
