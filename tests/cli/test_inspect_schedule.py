"""`tilewright inspect --diff` and `--schedule`: what changed, and whether it is proved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sass.compiled import kept
from tests.sass.test_schedule import kernel, multiply_adds, rescheduled
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
    assert run(["inspect", files[0], "--schedule"]) == 2
    assert "is for a config" in capsys.readouterr().err
    assert run(["inspect", "default", "--diff", files[0]]) == 2
    assert "is for a cubin" in capsys.readouterr().err
