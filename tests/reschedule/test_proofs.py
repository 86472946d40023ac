"""What was proved on a device may run; every other target is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright.backend.cuda.compiler import nvrtc, nvrtc_version
from tilewright.reschedule import proofs as registry
from tilewright.reschedule.levels import LEVELS
from tilewright.reschedule.proofs import (
    Proof,
    Run,
    add_proofs,
    earned,
    proofs,
    proved,
    read_proofs,
)
from tilewright.reschedule.version import SCHEDULER_VERSION

RUN = Run("sm_90a", "13.0.88", "H100", "580", "2026-11-21", "0123abc", "schedule_proof.json")
PROOF = Proof(
    "sm_90a", "13.0.88", SCHEDULER_VERSION, "simt_async", "s", "walked", 8, 800, 10**9,
    "H100", "580", "2026-11-21", "0123abc", "schedule_proof.json",
)  # fmt: skip


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Let the package come with other proofs; the compiler is 13.0.88."""

    def pretend(*found: Proof) -> None:
        proved.cache_clear()
        monkeypatch.setattr(registry, "proofs", lambda: found)

    monkeypatch.setattr(registry, "nvrtc_version", lambda: "13.0.88")
    yield pretend
    proved.cache_clear()


def test_every_proof_of_the_package_is_of_a_level_and_a_run() -> None:
    names = {one.name for one in LEVELS.values()}
    for one in proofs():
        assert one.level in names
        assert one.elements >= 10**9
        assert one.date
        assert one.commit


def test_a_proof_lets_its_own_target_run(known: Any) -> None:
    known(PROOF)
    assert proved("sm_90a") == ("simt_async/s/walked",)


@pytest.mark.parametrize(
    "change",
    [
        {"architecture": "sm_100a"},
        {"toolkit": "13.5.37"},
        {"scheduler": SCHEDULER_VERSION + 1},
        {"level": "another"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_target_proves_nothing_here(known: Any, change: dict[str, Any]) -> None:
    known(replace(PROOF, **change))
    assert proved("sm_90a") == ()


@pytest.mark.skipif(nvrtc() is None, reason="NVRTC is not here")
def test_the_toolkit_is_this_ones_with_its_build() -> None:
    assert len(nvrtc_version().split(".")) == 3


def row(trans: str, number: int, **changes: Any) -> dict[str, Any]:
    return {
        "stencil": "simt_async", "precision": "s", "trans": trans, "level": "walked",
        "id": f"{number:012x}", "status": "same", "launches": 100, "elements": 2 * 10**8, **changes,
    }  # fmt: skip


ROWS = [row(trans, number) for trans in ("NN", "NT", "TN", "TT") for number in (1, 2)]


def test_a_run_without_a_wrong_bit_is_a_proof() -> None:
    refused = row("NN", 3, status="refused", launches=0, elements=0)
    late = row("NN", 4, status="late", launches=0, elements=0)
    (found,) = earned([*ROWS, refused, late], RUN)
    assert found == replace(PROOF, kernels=8, launches=800, elements=16 * 10**8)


@pytest.mark.parametrize(
    "rows",
    [
        [*ROWS, row("NN", 3, status="wrong")],
        [*ROWS, row("NN", 3, status="failed")],
        ROWS[:6],  # one transpose is missing, and two kernels
        [*ROWS[:6], row("TN", 3), row("TN", 4)],
        [*ROWS[:7], ROWS[6]],
        [{**one, "elements": 1000} for one in ROWS],
        [{**one, "level": f"level {number % 2}"} for number, one in enumerate(ROWS)],
    ],
    ids=["wrong", "failed", "few", "transposes", "twice", "elements", "levels"],
)
def test_less_than_that_is_none(rows: list[dict[str, Any]]) -> None:
    assert earned(rows, RUN) == ()


def test_proofs_are_added_and_replaced_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "proofs.json"
    add_proofs([PROOF], file)
    newer = replace(PROOF, date="2027-01-01")
    other = replace(PROOF, level="ahead")
    add_proofs([newer, other], file)
    assert set(read_proofs(file.read_text())) == {newer, other}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", 'no object with a list "proofs"'),
        ("{", "Expecting"),
        (json.dumps({"proofs": [{"architecture": "sm_90a"}]}), "a proof has the fields"),
        (json.dumps({"proofs": [{**PROOF.__dict__, "kernels": "8"}]}), "kernels='8' of a proof"),
    ],
)
def test_a_file_that_is_none_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_proofs(text)
