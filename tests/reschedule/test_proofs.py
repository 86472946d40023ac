"""What was proved on a device may run; every other target is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tilewright.backend.cuda.compiler import nvrtc, nvrtc_version
from tilewright.reschedule import proofs as registry
from tilewright.reschedule.levels import LEVELS
from tilewright.reschedule.proofs import Proof, proofs, proved
from tilewright.reschedule.version import SCHEDULER_VERSION

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
