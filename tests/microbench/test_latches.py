"""Whether loads end a register's reuse: loops that tell, and what is concluded from them."""

from __future__ import annotations

import pytest

from tests.microbench import simulated
from tests.microbench.compiled import trip, wide
from tilewright.backend import LiveDevice
from tilewright.microbench import experiments, latches
from tilewright.microbench.experiment import Row
from tilewright.microbench.latches import Pattern, address_bank, body, patterns, predicted, verdict
from tilewright.microbench.port_patterns import TRIP
from tilewright.microbench.timing import LoopTimer


@pytest.mark.parametrize("way", ["same latch", "other bank", "other slot", "no flag"])
@pytest.mark.parametrize("kind", ["LDS", "LDS.128"])
def test_a_loop_has_its_loads_and_the_kept_register_where_it_should_be(way: str, kind: str) -> None:
    loop = wide()
    slots = body(loop, Pattern(kind, 4, way))
    assert len(slots) == TRIP
    found = trip(loop, slots)  # refuses what does not decode to the slots
    loads = [one for one in found.instructions if one.mnemonic == "LDS"]
    sums = [one for one in found.instructions if one.mnemonic == "FFMA" and one.reads]
    assert len(loads) == (TRIP - 4) // 5 + 1
    bank = loads[0].srcs[0].value % 2
    assert bank == address_bank(loop)
    kept = {o.value for one in sums for o in one.srcs if o.slot == ("B" if "slot" in way else "A")}
    assert len(kept) == 1
    assert kept.pop() % 2 == (1 - bank if way == "other bank" else bank)
    assert not {r for one in loads for r in one.dst} & {r for one in sums for r in one.reads}


def test_the_answers_differ_by_a_cycle_for_each_load() -> None:
    loop = wide()
    slots = body(loop, Pattern("LDS", 4, "same latch"))
    loads = sum(slot.kind != "FFMA" for slot in slots)
    through, apart = (predicted(loop, slots, answer) for answer in (False, True))
    assert through - apart == pytest.approx(loads, abs=3)


@pytest.mark.parametrize("way", ["other bank", "other slot"])
def test_the_answers_agree_on_the_controls(way: str) -> None:
    loop = wide()
    slots = body(loop, Pattern("LDS", 8, way))
    assert predicted(loop, slots, False) == predicted(loop, slots, True)


def rows(apart: bool, own: float = 28.0) -> list[Row]:
    """Return what a device would say that is one or the other."""
    found: list[Row] = []
    for load, gap, way, through, alone in (
        ("LDS", 4, "same latch", 616, 515), ("LDS", 4, "other bank", 515, 515),
        ("LDS", 8, "same latch", 571, 516), ("LDS", 8, "other bank", 515, 515),
    ):  # fmt: skip
        took = own + (alone if apart else through)
        found.append({"load": load, "gap": gap, "way": way, "cycles_if_through": through,
                      "cycles_if_apart": alone, "cycles_per_trip": took})  # fmt: skip
    return found


@pytest.mark.parametrize("apart", [False, True])
def test_one_run_decides(apart: bool) -> None:
    said = verdict(rows(apart))
    assert said["answer"] == ("apart" if apart else "through the latches")
    assert (said["memory_apart"], said["loops_for"], said["loops_against"]) == (int(apart), 2, 0)


def test_loops_that_disagree_are_counted() -> None:
    mixed = rows(True)[:2] + rows(False)[2:] + rows(True)[2:3]
    said = verdict(mixed)
    assert said["loops_for"] == 2
    assert said["loops_against"] == 1


def test_without_controls_nothing_is_decided() -> None:
    assert verdict(rows(True)[:1])["answer"] == "not decided"


def test_the_experiment_runs_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the GPU is real here; the stand-in issues an instruction a cycle, as if apart."""
    monkeypatch.setattr(LoopTimer, "load", simulated.load)
    monkeypatch.setattr(LoopTimer, "_run", simulated.run)
    few = [p for p in patterns() if p.kind == "LDS" and p.gap == 4]
    monkeypatch.setattr(latches, "patterns", lambda: iter(few))
    found: list[Row] = []
    experiments()["latches"].run(simulated.SimulatedDevice(), found.append, 200.0)
    assert [row["way"] for row in found[:-1]] == [p.way for p in few]
    assert not [row["error"] for row in found if "error" in row]
    assert found[-1]["answer"] == "apart"


@pytest.mark.gpu
@pytest.mark.alone
def test_a_gpu_answers(cuda: LiveDevice) -> None:
    found: list[Row] = []
    experiments()["latches"].run(cuda, found.append, 20.0)
    assert found[-1]["answer"] in ("apart", "through the latches")
